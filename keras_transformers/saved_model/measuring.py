"""`keras-transformers evaluate`: measures an export, so what is served, on labelled data."""

import dataclasses
import os
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_transformers.evaluation.reports.report import Report
from keras_transformers.saved_model.description import read_metadata
from keras_transformers.saved_model.prediction import Predictor
from keras_transformers.saved_model.versions import resolve
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.labels import LabelsAre
from keras_transformers.tasks.task import all_tasks
from keras_transformers.tasks.texts import text_inputs
from keras_transformers.tasks.training import Trainer

__all__ = ["evaluate_export"]


def evaluate_export(
    path: str | os.PathLike[str],
    data: Any,
    *,
    columns: Mapping[str, str] | None = None,
    labels_are: LabelsAre | None = None,
    batch_size: int = 32,
) -> Report:
    """Reports on the answers of an export to labelled data, like `evaluate` on a pipeline's.

    Args:
        path: an export, or the BASE of its versions, of which the newest is used.
        data: labelled data, see `evaluate`.
        columns: see `evaluate`.
        labels_are: see `evaluate`.
        batch_size: rows in one call of the graph.

    Raises:
        FileNotFoundError: there is no export, or the data are a file that does not exist.
        ValueError: the export cannot be loaded, its task has no report, or the data do not fit.

    Example:
        print(kt.saved_model.evaluate_export("saved_models/sentiment_en", "dev.tsv.gz"))
    """
    version = resolve(path)
    metadata = read_metadata(version)
    task = all_tasks().get(metadata.get("task", ""))
    trainer = None if task is None else task.trainer()
    if task is None or trainer is None or not _has_report(trainer):
        measured = [name for name, other in all_tasks().items() if _has_report(other.trainer())]
        raise ValueError(
            f"{version}: exports for {metadata.get('task') or 'an unknown task'} cannot be "
            f"measured, only those for {', '.join(measured)}: measure the pipeline with "
            "keras_transformers.evaluate"
        )
    export = Export(version, batch_size)
    (examples,) = trainer.read(export, {"data": data}, columns or {}, labels_are)
    report = trainer.report(export, trainer.ask(export, examples), examples)
    if report is None:
        raise ValueError(f"{version}: {task.name} has no report")
    return report


def _has_report(trainer: Trainer[Any, Any] | None) -> bool:
    """Returns whether a task's exports can be measured."""
    return trainer is not None and (
        type(trainer).inputs is not Trainer.inputs or type(trainer).ask is not Trainer.ask
    )


def _hashable(value: Any) -> Any:
    """Returns a JSON value with tuples for lists."""
    return tuple(value) if isinstance(value, list) else value


class Export:
    """An export with the attributes of its pipeline, for what reads and answers tables.

    They are those that the metadata records, else the defaults.

    Args:
        path: the version folder.
        batch_size: rows in one call of the graph.

    Raises:
        ValueError: the export's task is unknown.

    Attributes:
        task: the pipeline's.
        text_names: the inputs that take texts or images, in the order of a call.
    """

    def __init__(self, path: Path, batch_size: int) -> None:
        self._path, self._batch_size = path, batch_size
        self._metadata = read_metadata(path)
        self.task: str = self._metadata.get("task", "")
        if self.task not in all_tasks():
            raise ValueError(
                f"{path}: its task, {self.task or 'which it does not say'}, is unknown: export the "
                "model again, or install the package that registers the task"
            )
        task = all_tasks()[self.task]
        self._parameters, self._pipeline = task.parameters, task.pipeline
        inputs = list(self._metadata["signatures"]["serving_default"]["inputs"])
        self.text_names = text_inputs(inputs) or tuple(inputs)
        self._predictors: dict[str, Predictor] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "pair":  # some tasks' pipelines always take pairs
            return "text_b" in self._metadata["signatures"]["serving_default"]["inputs"]
        if name in self._metadata:
            return self._metadata[name]
        parameter = self._parameters.get(name)
        if parameter is None:
            raise AttributeError(name)
        kind = typing.get_type_hints(self._pipeline.__init__).get(name)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):  # such as a decoder
            names = {field.name for field in dataclasses.fields(kind)} & self._metadata.keys()
            return kind(**{field: _hashable(self._metadata[field]) for field in names})
        if parameter.default is parameter.empty:
            raise ValueError(f"{self._path}: its metadata lack {name}: export the model again")
        return parameter.default

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `serving_default`: name -> tf.TensorSpec."""
        outputs = self._metadata["signatures"]["serving_default"]["outputs"]
        return {
            name: tf.TensorSpec(about["shape"], about["dtype"]) for name, about in outputs.items()
        }

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts of an embedder."""
        return self._metadata.get("prompts") or {}

    def rows(
        self, inputs: Mapping[str, Sequence[Any]], *, batch_size: int | None = None
    ) -> list[dict[str, Any]]:
        """Answers columns of inputs with the first signature that takes them."""
        signatures = self._metadata["signatures"]
        names = [
            name
            for name, signature in signatures.items()
            if set(signature["inputs"]) == set(inputs)
        ]
        if not names:
            raise ValueError(
                f"{self._path}: no signature takes {', '.join(inputs)}: export the model again"
            )
        return self._predictor(names[0])(inputs, batch_size=batch_size or self._batch_size)

    def __call__(
        self, texts: Sequence[str], *, prompt_name: str | None = None, batch_size: int = 32
    ) -> list[Any]:
        """Answers texts, with the signature of a prompt if it has one."""
        signature = prompt_name if prompt_name in self._metadata["signatures"] else None
        predictor = self._predictor(signature or "serving_default")
        answer = reading.answer_type(self.task)
        rows = predictor({"text": texts}, batch_size=batch_size)
        return [reading.typed(row, answer) for row in rows]

    def _predictor(self, signature: str) -> Predictor:
        if signature not in self._predictors:
            self._predictors[signature] = Predictor(self._path, signature=signature)
        return self._predictors[signature]
