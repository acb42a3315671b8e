"""sentence-transformers' folders: Hugging Face's encoder and how to pool its outputs."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from keras_transformers.convert.formats.checkpoints import Checkpoint, Format, Served
from keras_transformers.convert.formats.huggingface import open_huggingface, save_huggingface
from keras_transformers.files import read_json, read_json_list, write_json
from keras_transformers.models.heads.embedding import embedder_options

__all__ = ["open_sentence_transformers", "save_sentence_transformers"]

_MODULES = "modules.json"
_LENGTH = "sentence_bert_config.json"
_SETTINGS = "config_sentence_transformers.json"
# Kind of a module -> its folder.
_PLACES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
_ORDERS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
_POOLINGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}


def open_sentence_transformers(folder: Path) -> Checkpoint:
    """Opens a folder that sentence-transformers saved.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the folder has a module, pooling or option that
            `heads.embedder` lacks.
    """
    places = _modules(folder)
    encoder = open_huggingface(places["Transformer"])
    width_file = places["Pooling"] / "config.json"
    pooling = _pooling(width_file, read_json(width_file))
    _check_prompts(folder / _SETTINGS)
    return dataclasses.replace(
        encoder,
        source=folder,
        trained=("embedding",),
        options={"pooling": pooling, "normalize": "Normalize" in places},
        max_sequence_length=_length(places["Transformer"], encoder),
    )


def save_sentence_transformers(served: Served, folder: Path) -> None:
    """Writes a model of `heads.embedder` for SentenceTransformer and `keras_transformers.load`.

    Args:
        served: the model and its tokenizer.
        folder: an empty folder.

    Raises:
        ValueError: transformers has no class for the model.
    """
    save_huggingface(dataclasses.replace(served, options={}), folder)
    options = embedder_options(served.model)
    kinds = [kind for kind in _PLACES if kind != "Normalize" or options["normalize"]]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": _PLACES[kind],
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    write_json(folder / _MODULES, modules)
    for kind in kinds[1:]:
        (folder / _PLACES[kind]).mkdir()
    pooling = {field: options["pooling"] == ours for field, ours in _POOLINGS.items()}
    width = served.model.output["embedding"].shape[-1]
    write_json(
        folder / _PLACES["Pooling"] / "config.json", {"word_embedding_dimension": width, **pooling}
    )
    length = {"max_seq_length": served.max_sequence_length, "do_lower_case": False}
    write_json(folder / _LENGTH, length)
    similarity = "cosine" if options["normalize"] else "dot"
    write_json(folder / _SETTINGS, {"prompts": {}, "similarity_fn_name": similarity})


def _modules(folder: Path) -> dict[str, Path]:
    """Returns the kind of each module -> its folder."""
    file = folder / _MODULES
    kinds, places = [], {}
    for module in read_json_list(file):
        fields = module if isinstance(module, dict) else {}
        kind, path = fields.get("type"), fields.get("path", "")
        if not isinstance(kind, str) or not isinstance(path, str):
            raise ValueError(f"{file}: a module needs a type and a path, not {module!r}")
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{file}: path {path!r} leaves the folder")
        # "sentence_transformers.models.Pooling"; other packages' modules are other code.
        own = kind.startswith("sentence_transformers.")
        kinds.append(kind.rpartition(".")[2] if own else kind)
        places[kinds[-1]] = folder / path
    if kinds not in _ORDERS:
        raise ValueError(
            f"{file}: modules {', '.join(kinds) or 'none'}; only Transformer, Pooling and possibly "
            "Normalize, in this order, are supported"
        )
    return places


def _pooling(file: Path, config: Mapping[str, Any]) -> str:
    chosen = [name for name, value in config.items() if name.startswith("pooling_mode_") and value]
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        raise ValueError(
            f"{file}: pooling by {', '.join(chosen) or 'nothing'}; only one of "
            f"{', '.join(_POOLINGS)} is supported"
        )
    return _POOLINGS[chosen[0]]


def _check_prompts(file: Path) -> None:
    """Raises ValueError if a prompt goes before every text."""
    name = read_json(file).get("default_prompt_name") if file.is_file() else None
    if name is not None:
        raise ValueError(
            f"{file}: default_prompt_name={name!r}: prompts before texts are not supported"
        )


def _length(folder: Path, encoder: Checkpoint) -> int | None:
    """Returns the limit of sentence_bert_config.json, or else the tokenizer's."""
    file = folder / _LENGTH
    config = read_json(file) if file.is_file() else {}
    if config.get("do_lower_case"):
        raise ValueError(
            f"{file}: do_lower_case=True; only the tokenizer's own lower-casing is supported"
        )
    length = config.get("max_seq_length")
    if length is None:
        return encoder.max_sequence_length
    if not isinstance(length, int) or length < 1:
        raise ValueError(f"{file}: max_seq_length={length!r}; expected a number above 0")
    return length


FORMAT = Format(
    "sentence-transformers' modules.json",
    lambda path: (path / _MODULES).is_file(),
    open_sentence_transformers,
)
