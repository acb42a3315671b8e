"""What the page can show: pipelines in folders of weights, and exports."""

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.explorer import views
from keras_transformers.files import read_json
from keras_transformers.saved_model.examples import first_row
from keras_transformers.saved_model.versions import version_folders
from keras_transformers.serving.server.settings import ModelSettings, model_settings
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.weights.loading import load

__all__ = ["Subject", "open_subjects"]

View = Callable[[Mapping[str, Any]], Any]
_METADATA = Path("assets.extra/keras_transformers.json")
_IMAGE = "image_bytes"


@dataclass(frozen=True)
class Subject:
    """A model that the page shows.

    Attributes:
        name: what requests call it.
        about: what the page needs to draw it: `kind`, `task`, `inputs`, `labels`, `example` (a
            value for each input), `views` and, for exports, `signatures`.
        views: view -> its function, from a request's JSON object to JSON values.
        export: how the server finds it, if it is an export.
    """

    name: str
    about: Mapping[str, Any]
    views: Mapping[str, View]
    export: ModelSettings | None = None


def open_subjects(paths: Sequence[str | os.PathLike[str]]) -> list[Subject]:
    """Opens folders of weights and exports.

    Args:
        paths: folders for `keras_transformers.load`, base folders of exports, or exports.

    Raises:
        FileNotFoundError: a folder does not exist.
        ValueError: a folder is neither, is damaged, or two have the same name.
    """
    subjects = [_open(Path(path)) for path in paths]
    names = [subject.name for subject in subjects]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"two of the models are called {twice[0]!r}: rename one of the folders")
    return subjects


def of_pipeline(name: str, pipeline: Pipeline) -> Subject:
    """Returns a pipeline as a subject."""
    shown: dict[str, View] = {"answer": lambda values: _answer(pipeline, values)}
    shown["parameters"] = lambda values: views.parameters(pipeline.model)
    if pipeline.tokenizers:
        shown["tokens"] = lambda values: views.spelling(pipeline, values["text"])
    if views.has_attention(pipeline.model):
        shown["attention"] = lambda values: views.attention_of(pipeline, *_texts(pipeline, values))
    if views.has_heads(pipeline.model):
        chosen = ("kind", "layer", "head")
        shown["qkv"] = lambda values: views.qkv(
            pipeline,
            *_texts(pipeline, values),
            **{name: values[name] for name in chosen if name in values},
        )
    if views.has_embedding(pipeline.model) and "token_ids" in pipeline.model.input:
        shown["inputs"] = lambda values: views.inputs(pipeline, *_texts(pipeline, values))
    if hasattr(pipeline, "watch_greedy"):
        shown["decoding"] = lambda values: views.decoding(pipeline, *_texts(pipeline, values))
    if views.positions(pipeline.model):
        shown["positions"] = lambda values: views.positions(pipeline.model)
    if pipeline.explained and pipeline.explained_inputs == pipeline.text_names:
        shown["shares"] = lambda values: views.shares(pipeline, *_texts(pipeline, values))
    if getattr(pipeline, "num_beams", 1) > 1:
        shown["beams"] = lambda values: views.beams(pipeline, values["text"])
    if pipeline.text_names == ("prompt",):
        shown["next"] = lambda values: views.next_tokens(pipeline, **values)
    if getattr(pipeline, "chat_template", None) is not None:
        shown["chat"] = lambda values: views.chat(pipeline, **values)
    if hasattr(pipeline, "prompts"):
        shown["search"] = lambda values: views.search(pipeline, **values)
    about = {
        "kind": "weights",
        "task": pipeline.task,
        "inputs": list(pipeline.text_names),
        "labels": list(getattr(pipeline, "labels", [])),
        "parameters": pipeline.model.count_params(),
        "example": _example(pipeline),
        "views": list(shown),
    }
    return Subject(name, about, shown)


def _open(path: Path) -> Subject:
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such folder; give weights or an export")
    if (path / "saved_model.pb").is_file():
        path = path.absolute().parent
    versions = version_folders(path) if path.is_dir() else {}
    if versions:
        return _of_export(model_settings(str(path)), versions[max(versions)])
    return of_pipeline(path.absolute().name, load(path))


def _of_export(settings: ModelSettings, folder: Path) -> Subject:
    try:
        metadata = read_json(folder / _METADATA)
        signatures = metadata["signatures"]
        inputs, outputs = (signatures["serving_default"][side] for side in ("inputs", "outputs"))
        first = signatures["serving_default"]["examples"][0]["inputs"]
        example = {name: _text(first_row(first[name])) for name in inputs}
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ValueError(
            f"{folder}: no export of keras_transformers ({error}): the explorer needs its "
            f"{_METADATA}"
        ) from error
    about = {
        "kind": "export",
        "task": metadata["task"],
        "inputs": list(inputs),
        "labels": metadata.get("labels", []),
        "parameters": metadata["model"]["num_parameters"],
        "example": example,
        # The page draws these from the answers of the server's API.
        "views": [
            "answer",
            *(["chat"] if "chat_complete" in signatures else []),
            *(["search"] if "embedding" in outputs else []),
        ],
        "signatures": list(signatures),
    }
    return Subject(settings.name, about, {}, settings)


def _answer(pipeline: Pipeline, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the outputs in columns of one row, as TF Serving's REST API does."""
    texts = _texts(pipeline, values)
    row = pipeline.rows({n: [t] for n, t in zip(pipeline.text_names, texts, strict=True)})[0]
    return {"outputs": {name: [value] for name, value in row.items()}}


def _texts(pipeline: Pipeline, request: Mapping[str, Any]) -> list[Any]:
    values = [request[name] for name in pipeline.text_names]
    is_binary = [isinstance(value, dict) and value.keys() == {"b64"} for value in values]
    return [
        base64.b64decode(value["b64"]) if binary else value
        for value, binary in zip(values, is_binary, strict=True)
    ]


def _example(pipeline: Pipeline) -> dict[str, Any]:
    first = pipeline.example_batches(None)[0]
    return {name: _text(np.asarray(column)[0]) for name, column in first.items()}


def _text(value: Any) -> Any:
    """Returns a string; an image or other bytes in base64; the same of each element of a list."""
    if isinstance(value, np.ndarray | list):
        return [_text(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return value
