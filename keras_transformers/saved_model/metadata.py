"""Collects the metadata that exports have for every task; `keras-transformers show` prints it."""

import hashlib
import importlib.metadata
import json
import math
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.tasks.pipeline import Pipeline, Signature

_GIT_TIMEOUT_S = 10


def of_pipeline(pipeline: Pipeline) -> dict[str, Any]:
    """Returns a pipeline's task, configuration, model and vocabulary."""
    return {
        "task": pipeline.task,
        **pipeline.metadata(),
        **of_models(pipeline.models),
        **of_vocabulary(list(pipeline.tokenizers.values())),
    }


def of_signature(signature: Signature) -> dict[str, Any]:
    """Returns the method, inputs and outputs of a `pipelines.Signature`, without its examples."""

    def described(specs: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
        return {
            name: {"dtype": spec.dtype.name, "shape": spec.shape.as_list()}
            for name, spec in specs.items()
        }

    return {
        "method_name": signature.method_name,
        "inputs": described(signature.inputs),
        "outputs": described(signature.outputs),
    }


def of_models(models: Sequence[keras.Model]) -> dict[str, Any]:
    """Returns `of_model` for the models of a pipeline, usually one, as one field `model`."""
    described = [of_model(model)["model"] for model in models]
    return {
        "model": {
            "name": " + ".join(one["name"] for one in described) or "no model",
            "num_parameters": sum(one["num_parameters"] for one in described),
            "configuration": [entry for one in described for entry in one["configuration"]],
        }
    }


def of_model(model: keras.Model) -> dict[str, Any]:
    """Returns a model's name, exact parameter count and configuration, as the fields of `model`.

    The configuration has an entry for each set of identical layers: their class, their number, and
    their options that are numbers, strings or booleans. The graph has their calls.
    """
    counts: dict[str, dict[str, Any]] = {}
    for layer in model.layers:
        kind, options = type(layer).__name__, _options(layer)
        if kind == "InputLayer":
            continue
        entry = {"class": kind, "count": 0, "options": options}
        counts.setdefault(json.dumps([kind, options], sort_keys=True), entry)["count"] += 1
    return {
        "model": {
            "name": model.name,
            "num_parameters": model.count_params(),
            "configuration": list(counts.values()),
        }
    }


def of_vocabulary(tokenizers: Sequence[Any]) -> dict[str, Any]:
    """Returns the size and SHA-256 of the last tokenizer's vocabulary, the one for answers.

    The checksum is the one `sha256sum vocab.txt` prints for a file with one token per line.
    """
    tokenizer = tokenizers[-1] if tokenizers else None
    if tokenizer is None or not hasattr(tokenizer, "vocabulary"):  # characters, or images
        return {}
    tokens: Sequence[str] = tokenizer.vocabulary
    lines = "".join(f"{token}\n" for token in tokens)
    return {
        "vocabulary_size": tokenizer.vocabulary_size,
        "vocabulary_sha256": hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest(),
    }


def of_environment() -> dict[str, Any]:
    """Returns the versions of the libraries that made the export, and this package's commit.

    The commit is None unless the package runs from a checkout of its repository; it ends in
    "-dirty" if files differ from it.
    """
    names = ("keras", "tensorflow-text", "keras-transformers")
    installed = {name: _version(name) for name in names}
    return {
        "library_versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,  # its distribution may have another name
            **{name: version for name, version in installed.items() if version},
        },
        "commit": _commit(Path(__file__).parent),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def checked_scores(scores: Mapping[str, float] | None) -> dict[str, float]:
    """Returns a copy of the scores; ValueError if one has no name or is not a finite number."""
    for name, value in (scores or {}).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not isinstance(name, str) or not name or not number or not math.isfinite(value):
            raise ValueError(
                f"score {name!r}: {value!r}: expected finite numbers, each with a name that says "
                "what was measured on which data, such as {'accuracy on SST-2 dev': 0.91}"
            )
    return dict(scores or {})


def _options(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns a layer's plain options, and those of its sub-layers, prefixed with their names."""

    def plain(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
        for name, value in config.items():
            if name in ("name", "trainable"):
                continue
            if isinstance(value, str | int | float):
                yield prefix + name, value
            elif isinstance(value, dict) and "trainable" in value.get("config", ()):  # a layer
                yield from plain(value["config"], f"{prefix}{name} ")

    return dict(plain(layer.get_config()))


def _commit(folder: Path) -> str | None:
    """Returns the commit of a tracked folder; None without git or a repository."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_TIMEOUT_S,
        ).stdout.strip()

    try:
        # An installed copy may be inside another repository, whose commit says nothing about it.
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
