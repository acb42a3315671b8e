"""Opens and saves Hugging Face's folders: config.json, safetensors and the vocabulary."""

import dataclasses
import functools
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.families import (
    families,
    family_of,
    tokenizer_writer,
)
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.chat_templates import write_chat_template
from keras_transformers.convert.formats.generation_config import check_end_token
from keras_transformers.convert.formats.tokenizer_files import (
    longest_text,
    read_tokenizers,
    write_tokenizers,
)
from keras_transformers.convert.formats.weights import (
    MOST_LABELS,
    Format,
    FoundWeights,
    Head,
    TrainedModel,
)
from keras_transformers.files import read_json, write_json
from keras_transformers.models.as_encoder import as_encoder

__all__: list[str] = []

_logger = logging.getLogger(__name__)

_WEIGHTS = "model.safetensors"
_GENERATION = "generation_config.json"
# The fields that config.json also has.
_GENERATION_TOKENS = (
    *("bos_token_id", "eos_token_id", "pad_token_id"),
    *("decoder_start_token_id", "bad_words_ids"),
)
# The options of a pipeline for which Hugging Face's files have no fields.
_OPTIONS = "keras_transformers.json"
# Options stored in other files.
_ELSEWHERE = ("labels", "image_size", "num_channels")
# The layers that replace a pooler before a head, and what such a model reads.
_POOLINGS = {
    "mean_pooling": "the mean of all tokens",
    "cls_pooling": "that vector alone",
    "last_pooling": "the last token's",
}
# Fields of models whose matrices differ from their family's in shape or contents.
_CHANGED = ("pruned_heads", "quantization_config")
# The endings of the names of an encoder's pooler.
_POOLERS = ("pooler.dense.weight", "pooler.weight")
# The biases of the last layers of heads with labels.
_HEAD_BIASES = (
    "classifier.bias",
    "classifier.out_proj.bias",
    "classification_head.out_proj.bias",
)


def open_huggingface(folder: Folder, *, encodes: bool = False) -> FoundWeights:
    """Opens a folder in Hugging Face's layout.

    Args:
        folder: the folder.
        encodes: whether to open a decoder as an encoder of texts; others are encoders anyway.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: config.json is damaged, names an unknown family, or needs something that the
            family's layers or the pipelines lack.
    """
    family = family_of(folder, families())
    weights = _opened(folder, family, as_encoder if encodes and family.continues_texts else None)
    if family.as_encoder is None:
        return weights

    def open_as_encoder() -> FoundWeights:
        encoder = _opened(folder, family, family.as_encoder)
        return dataclasses.replace(encoder, serves=family.encoder_tasks)

    return dataclasses.replace(weights, as_encoder=open_as_encoder)


def _opened(
    folder: Folder, family: Family, encoder: Callable[[keras.Model], keras.Model] | None
) -> FoundWeights:
    """Opens a folder; `encoder`, if given, makes the model an encoder of texts."""
    file, config = folder / "config.json", folder.json("config.json")
    if "auto_map" in config:
        raise ValueError(
            f"{file}: auto_map names code to run, which is never run here: only models of known "
            "families can be loaded"
        )
    for field in _CHANGED:
        if config.get(field):
            raise ValueError(
                f"{file}: {field}={config[field]!r:.100}; only whole matrices of floating-point "
                "numbers are supported: save the model without it"
            )
    name = _architecture(folder, config)
    encodes = encoder is not None
    return FoundWeights(
        source=folder.path,
        base="embedding" if encodes else family.task,
        trained=(),
        head=Head(
            folder=folder,
            file=file,
            config=config,
            name=name,
            tasks=family.trained,
            shapes=folder.arrays.shapes,
            labels=functools.cache(lambda: _labels(folder, config)),
            written=_written(folder),
        ),
        tokenizers=functools.partial(_tokenizers, folder, family, encodes=encodes),
        heads=name,
        parts=(*family.parts, *family.projection) if encodes else family.parts,
        **_weights(folder, family, encoder),
    )


def save_huggingface(trained: TrainedModel, folder: Path) -> None:
    """Writes a model in Hugging Face's layout, for `from_pretrained` and `keras_transformers.load`.

    The files are config.json, model.safetensors, tokenizer_config.json and the tokenizers' own,
    generation_config.json for models that generate text, preprocessor_config.json for images, and
    keras_transformers.json with the pipeline's options, which only this package reads.

    Args:
        trained: the model, its tokenizers and options.
        folder: an empty folder.

    Raises:
        ValueError: transformers has no class for it (the message lists what can be saved), or its
            class reads the first token's vector through a pooler and this model reads another.
    """
    family, writer, of_tokenizer = family_for(trained)
    class_name = writer.class_for(trained.task, trained.class_end)
    options = dict(trained.options)
    pooled = [_POOLINGS[layer.name] for layer in trained.model.layers if layer.name in _POOLINGS]
    if pooled:
        raise ValueError(
            f"transformers' {class_name} reads the first token's vector through "
            f"a pooler, and model {trained.model.name!r} {pooled[0]}: save it in the format "
            "'keras_transformers', or train a head on the pooler (pooling='pooler' in "
            "keras_transformers.load)"
        )
    labels = {"labels": options["labels"]} if "labels" in options else {}
    family.save(trained.model, folder / _WEIGHTS)
    family.save_config(trained.model, folder / "config.json", **labels)
    ids = {}
    if trained.tokenizers:
        ids = write_tokenizers(
            trained.tokenizers, folder, of_tokenizer, trained.max_sequence_length
        )
    config = {
        "architectures": [class_name],
        **trained.fields,
        **ids,
        **read_json(folder / "config.json"),
    }
    write_json(folder / "config.json", config)
    if writer.generation_fields is not None and trained.task == family.task:
        tokens = {name: config[name] for name in _GENERATION_TOKENS if name in config}
        if more := options.get("also_end_token_ids"):
            tokens["eos_token_id"] = [config["eos_token_id"], *more]
        if options.get("force_end"):
            tokens["forced_eos_token_id"] = config["eos_token_id"]
        write_json(folder / _GENERATION, {**tokens, **writer.generation_fields(options)})
    write_chat_template(options, folder)
    rest = {name: value for name, value in options.items() if name not in _ELSEWHERE}
    if rest:
        write_json(folder / _OPTIONS, {"task": trained.task, "options": rest})


def family_for(trained: TrainedModel) -> tuple[Family, Writer, Writer]:
    """Returns a model's family, and how transformers reads the model and its tokenizers.

    Raises:
        ValueError: no family or several have the model's layers, or transformers has no class.
    """
    kinds = {type(tokenizer).__name__ for tokenizer in trained.tokenizers.values()}
    possible = {
        name: (family, writer)
        for family in families()
        if (writer := family.writer) is not None
        and bool(writer.tokenizer) == bool(kinds)
        and (name := writer.class_for(trained.task, trained.class_end))
    }
    classes = {
        name: (family, writer, of_tokenizer)
        for name, (family, writer) in possible.items()
        if family.fits(trained.model)
        and (of_tokenizer := tokenizer_writer(family, *kinds) if kinds else writer)
    }
    # A family may have another's tokenizer, if the choice is still unique.
    classes = {name: row for name, row in classes.items() if row[1] is row[2]} or classes
    if len(classes) == 1:
        return next(iter(classes.values()))
    what = (
        f"{trained.task} by model {trained.model.name!r} with {', '.join(kinds) or 'no tokenizer'}"
    )
    if classes:
        raise ValueError(f"{what} fits several classes of transformers: {', '.join(classes)}")
    rows = ", ".join(
        f"{name} with {writer.tokenizer or 'no tokenizer'}"
        for name, (_, writer) in possible.items()
    )
    raise ValueError(
        f"{what} fits none of transformers' classes that can be saved{', which are ' * bool(rows)}"
        f"{rows}: save it in the format 'keras_transformers'"
    )


def _weights(
    folder: Folder, family: Family, encoder: Callable[[keras.Model], keras.Model] | None
) -> dict[str, Any]:
    """Returns the fields of `FoundWeights` that depend on how the family reads weights."""
    arguments = family.read(folder)

    def build(**changes: Any) -> keras.Model:
        model = family.build(**(arguments | changes))
        return model if encoder is None else encoder(model)

    return {
        "build": build,
        "fill": lambda model, ignore: family.fill(model, folder.arrays, ignore=ignore),
        "has_pooler": any(name.endswith(_POOLERS) for name in folder.arrays.shapes),
        "max_sequence_length": longest_text(folder) or family.longest_text,
        "masked_lm": {
            "activation": family.masked_lm_activation or arguments["activation"],
            "norm_epsilon": arguments.get("norm_epsilon", 1e-12),
        },
    }


def _tokenizers(
    folder: Folder, family: Family, lowercase: bool | None = None, *, encodes: bool = False
) -> tuple[Any, ...]:
    if not family.reads_texts:
        return ()
    tokenizers: tuple[Any, ...] = read_tokenizers(folder, family, lowercase=lowercase)
    if family.continues_texts and not encodes:
        check_end_token(folder, tokenizers[0].end_token_id)
    return tokenizers


def _architecture(folder: Folder, config: Mapping[str, Any]) -> str:
    """Returns the class that wrote the weights; "" if unknown.

    The class in the weights takes precedence: TensorFlow's classes in transformers 2 and 3 kept the
    `architectures` of the folder that they were fine-tuned from, if it had any.
    """
    file = folder / "config.json"
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{file}: architectures={names!r}; expected a list with the model's class")
    if len(names) > 1:
        raise ValueError(f"{file}: architectures names {', '.join(names)}; expected one class")
    said, wrote = names[0] if names else "", folder.arrays.architecture
    return said if said.lower() == wrote.lower() or not wrote else wrote


def _labels(folder: Folder, config: Mapping[str, Any]) -> list[str]:
    """Returns the names of a head's classes, in the order of the logits.

    The weights determine how many there are; `id2label` names them, as in transformers, or else
    `label2id`.
    """
    file = folder / "config.json"
    names, said = _names(file, config), config.get("num_labels")
    count = _width(folder.arrays.shapes) or len(names) or (2 if said is None else said)
    if type(count) is not int or not 1 <= count <= MOST_LABELS:
        raise ValueError(f"{file}: num_labels={count!r}; expected 1 to {MOST_LABELS:,}")
    if (names and names.keys() != set(range(count))) or said not in (None, count):
        _logger.warning(
            "%s: id2label names %s and num_labels is %s, but the head has %d classes: those "
            "without a name are LABEL_0, LABEL_1 and so on",
            file, ", ".join(map(str, sorted(names))) or "nothing", said, count,
        )  # fmt: skip
    labels = [names.get(number, f"LABEL_{number}") for number in range(count)]
    if len(set(labels)) != count:
        raise ValueError(f"{file}: id2label has {labels!r:.300}; expected different names")
    return labels


def _names(file: Path, config: Mapping[str, Any]) -> dict[int, str]:
    """Returns index -> name of the classes that a configuration names."""
    labels, ids = config.get("id2label"), config.get("label2id")
    numbers = ids if isinstance(ids, dict) else {}
    try:
        if labels is None:
            labels = {number: name for name, number in numbers.items()}
        elif isinstance(labels, list):
            labels = dict(enumerate(labels))
        names = {int(number): _name(name) for number, name in labels.items()}
    except (AttributeError, OverflowError, TypeError, ValueError):
        names = {-1: ""}
    named = numbers if labels is None else labels
    if any(number < 0 or not name for number, name in names.items()) or len(names) != len(named):
        raise ValueError(
            f"{file}: id2label={named!r:.300}; expected names for the numbers 0, 1, 2 and so on"
        )
    others = {
        name: numbers[name]
        for number, name in names.items()
        if numbers.get(name, number) not in (number, str(number))
    }
    if others:
        _logger.warning(
            "%s: label2id differs from id2label, which takes precedence: %r", file, others
        )
    return names


def _name(value: Any) -> str:
    """Returns a label's name, which is a number in some files; ValueError for other types."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a name")
    return value


def _width(shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Returns the number of classes of the head in the weights; None if none is found."""
    return next((shapes[name][0] for name in _HEAD_BIASES if len(shapes.get(name, ())) == 1), None)


def _written(folder: Folder) -> tuple[str, Mapping[str, Any]]:
    """Returns the task and options that `save_huggingface` wrote, if it wrote the folder."""
    written = folder.json(_OPTIONS, missing_ok=True)
    options = written.get("options", {})
    if not isinstance(options, dict):
        raise ValueError(f"{folder / _OPTIONS}: options={options!r:.100}; expected an object")
    return str(written.get("task")), options


def _recognises(folder: Folder) -> bool:
    if not (folder / "config.json").is_file() or (folder / "modules.json").is_file():
        return False
    return "registered_name" not in folder.json("config.json")  # Keras' own format


FORMAT = Format(
    "Hugging Face's config.json with model.safetensors, tf_model.h5 or pytorch_model.bin",
    _recognises,
    open_huggingface,
)
