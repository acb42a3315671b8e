"""Shows a finished run in TensorBoard: its options beside its scores, and its embeddings."""

import dataclasses
import functools
import json
import logging
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.plugins import projector
from tensorboard.plugins.hparams import api as hparams

from keras_transformers.evaluation.reports.report import Report
from keras_transformers.inspection.embeddings import token_vectors
from keras_transformers.inspection.pictures import svg_pixels
from keras_transformers.runs.board.attempts import Attempts
from keras_transformers.runs.board.epochs import event_file
from keras_transformers.runs.options import MAY_DIFFER, Options
from keras_transformers.tasks.pipeline import Pipeline

logger = logging.getLogger(__name__)

_PLACES = {"name", "runs_dir"}  # of the run's folder


def write_final(
    folder: Path,
    config: Options,
    figures: Mapping[str, Any],
    pipeline: Pipeline | None,
    *,
    num_embeddings: int,
    reports: Mapping[str, Report] | None = None,
    attempts: Attempts | None = None,
) -> None:
    """Writes hyper-parameters, scores and embeddings, replacing those of an earlier call.

    Whatever fails is left out with a warning.

    Args:
        folder: where to write; only this function may use it.
        config: the options, a dataclass.
        figures: the scores by name; those that are finite numbers are written.
        pipeline: the finished pipeline, or None.
        num_embeddings: how many tokens to write, from the start of the vocabulary; 0 for none.
        reports: part of the data -> report, shown as text and pictures.
        attempts: the run's attempts at figures.
    """
    at = (attempts or Attempts()).at
    shutil.rmtree(folder, ignore_errors=True)
    at("its options and scores in TensorBoard", lambda: _write_scores(folder, config, figures))
    for part, report in (reports or {}).items():
        at("reports in TensorBoard", functools.partial(_write_report, folder, part, report))
    if num_embeddings and pipeline is not None:
        at(
            "embeddings for TensorBoard",
            lambda: _write_embeddings(folder, pipeline, num_embeddings),
        )


def _write_scores(folder: Path, config: Options, figures: Mapping[str, Any]) -> None:
    with event_file(folder, "final", step=0):
        hparams.hparams(hyper_parameters(config))
        for name, value in figures.items():
            if _is_finite_number(value):
                tf.summary.scalar(name, value)


def _write_report(folder: Path, part: str, report: Report) -> None:
    """Writes a report as text, and its pictures if matplotlib can draw them."""
    with event_file(folder, f"report-{part}", step=0):
        # Four spaces make Markdown keep the columns.
        text = "".join(f"    {line}\n" for line in str(report).splitlines())
        tf.summary.text(f"report/{part}", text)
        for name in report.pictures:
            pixels = svg_pixels(report.svg(name))
            tf.summary.image(f"report/{part}, {name}", pixels[None])


def hyper_parameters(config: Options) -> dict[str, bool | int | float | str]:
    """Returns the set options that may change the scores; lists and similar values as JSON."""
    options = {
        name: value
        for name, value in dataclasses.asdict(config).items()
        if name not in MAY_DIFFER | _PLACES and value is not None
    }
    return {
        name: value
        if isinstance(value, bool | int | float | str)
        else str(value)
        if isinstance(value, Path)
        else json.dumps(value, default=str)
        for name, value in options.items()
    }


def _write_embeddings(folder: Path, pipeline: Pipeline, count: int) -> None:
    """Writes the files of TensorBoard's projector."""
    try:
        tokens, vectors = token_vectors(pipeline, count)
    except ValueError as error:
        logger.warning("no embeddings for TensorBoard: %s", error)
        return
    np.savetxt(folder / "tensors.tsv", vectors, fmt="%.6g", delimiter="\t")
    # One line per token, without a header: there is one column. Tabs and line ends are escaped.
    names = [token if token.isprintable() else repr(token)[1:-1] for token in tokens]
    (folder / "metadata.tsv").write_text("".join(f"{name}\n" for name in names), "utf-8")
    config = projector.ProjectorConfig()
    config.embeddings.add(
        tensor_name="tokens", tensor_path="tensors.tsv", metadata_path="metadata.tsv"
    )
    projector.visualize_embeddings(str(folder), config)


def _is_finite_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)
