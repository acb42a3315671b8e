"""Maps a family's `config.json` in Hugging Face's layout to our builder's arguments, and back."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.folder import Folder
from keras_transformers.files import read_json, write_json
from keras_transformers.layers import RelativePositionBias
from keras_transformers.models.anatomy import anatomy, block_shape

__all__ = ["ConfigMap"]

_CONFIG = "config.json"
_LARGEST = 2**24  # no real size is larger; a mistaken one would take all memory
_RATES = ("dropout", "attention_dropout", "feed_forward_dropout")
_NUMBERS = (*_RATES, "norm_epsilon", "initializer_range")
# Hugging Face's name of an activation -> ours. Of several names, saving writes the first. These
# are all of transformers' ACT2FN except those with weights of their own (prelu, xielu).
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "gelu_10": "gelu_clipped",
    "gelu_accurate": "gelu_approximate",
    "gelu_fast": "gelu_approximate",
    "gelu_python": "gelu",
    "gelu_python_tanh": "gelu_approximate",
    "hardswish": "hard_silu",
    "laplace": "laplace",
    "leaky_relu": "leaky_relu",
    "linear": "linear",
    "mish": "mish",
    "quick_gelu": "quick_gelu",
    "relu2": "relu_squared",
    "relu6": "relu6",
    "sigmoid": "sigmoid",
    "sqrtsoftplus": "softplus_root",
    "tanh": "tanh",
}


@dataclass(frozen=True)
class ConfigMap:
    """Maps the fields of a family's `config.json`.

    Attributes:
        model_type: the family's name there.
        required: our argument -> field.
        optional: our argument -> field, and its default in files that lack it.
        activation: the field with the activation, and its default in files that lack it.
        activations: Hugging Face's name of an activation -> ours.
        fixed: field -> the only value that our layers support, and the default if it is missing.
        pairs: arguments that may be two sizes, a height and a width.
        offsets: our argument -> how much larger the field is.
        written: more fields to write, always with these values.
        after_read: takes the file, its contents and our arguments; returns the builder's arguments,
            if they differ. ValueError if the contents need something that our layers lack.
        before_write: takes a model and its shape as our arguments; returns the arguments to write
            and more fields.
    """

    model_type: str
    required: Mapping[str, str]
    optional: Mapping[str, tuple[str, Any]]
    activation: tuple[str, str] = ("hidden_act", "gelu")
    activations: Mapping[str, str] = field(default_factory=lambda: ACTIVATIONS)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    pairs: Collection[str] = ()
    offsets: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)
    after_read: Callable[[Path, Mapping[str, Any], dict[str, Any]], dict[str, Any]] | None = None
    before_write: (
        Callable[[keras.Model, dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]] | None
    ) = None

    def read(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Reads a `config.json`, given as the file or its folder, as our arguments.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: it is not JSON, describes another family, lacks a field, has a value of the
                wrong type or out of range, or needs something that our layers lack.
        """
        return self.arguments(*read_config(path, self.model_type))

    def arguments(self, file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the contents of a file as our arguments; see `read`."""
        for name, value in self.fixed.items():
            if config.get(name, value) != value:
                raise ValueError(f"{file}: {name}={config[name]!r}; only {value!r} is supported")
        missing = [name for name in self.required.values() if name not in config]
        if missing:
            raise ValueError(f"{file}: has no field {missing[0]!r}")
        name, default = self.activation
        activation = config.get(name, default)
        if not isinstance(activation, str) or activation not in self.activations:
            choices = ", ".join(sorted(self.activations))
            raise ValueError(f"{file}: {name}={activation!r}; expected one of {choices}")
        arguments = {
            ours: self._value(file, ours, theirs, config[theirs])
            for ours, theirs in self.required.items()
        }
        for ours, (theirs, default) in self.optional.items():
            value = config.get(theirs, default)
            is_default = value is None and default is None
            arguments[ours] = None if is_default else self._value(file, ours, theirs, value)
        shares = arguments.get("head_dim") is None  # heads share the width
        if shares and arguments["hidden_dim"] % arguments["num_heads"]:
            width, count = self.required["hidden_dim"], self.required["num_heads"]
            raise ValueError(
                f"{file}: {width}={config[width]} is not a multiple of {count}={config[count]}"
            )
        arguments["activation"] = self.activations[activation]
        return arguments if self.after_read is None else self.after_read(file, config, arguments)

    def _value(self, file: Path, ours: str, theirs: str, value: Any) -> Any:
        """Returns a field's value; ValueError if no model can have it."""
        if ours in _NUMBERS:
            return check_number(file, theirs, value, below=1.0 if ours in _RATES else 1e9)
        if ours in self.pairs and isinstance(value, list) and len(value) == 2:
            return tuple(check_size(file, theirs, side) for side in value)
        offset = self.offsets.get(ours, 0)
        least = offset if ours == "pad_token_id" else offset + 1
        return check_size(file, theirs, value, least=least) - offset

    def write(self, model: keras.Model, path: str | os.PathLike[str], **fields: Any) -> None:
        """Writes a model's shape as a `config.json`.

        Args:
            model: a model of the family, with any head.
            path: the file to write.
            **fields: fields to add.

        Raises:
            FileNotFoundError: the folder does not exist.
            ValueError: Hugging Face has no name for the activation, or lacks a field.
        """
        arguments = arguments_of(model)
        if self.before_write is not None:
            arguments, more = self.before_write(model, arguments)
            fields = {**more, **fields}
        foreign = {ours: theirs for theirs, ours in reversed(list(self.activations.items()))}
        if arguments["activation"] not in foreign:
            raise ValueError(
                f"activation={arguments['activation']!r} has no Hugging Face name; expected one of "
                f"{', '.join(foreign)}"
            )
        required = {ours: (theirs, None) for ours, theirs in self.required.items()}
        names: dict[str, tuple[str, Any]] = {**required, **self.optional}
        shape = {}
        for ours, (theirs, default) in names.items():
            value = arguments[ours]
            shape[theirs] = default if value is None else value
            if ours in self.offsets:
                shape[theirs] += self.offsets[ours]
        config = {
            "model_type": self.model_type,
            **shape,
            self.activation[0]: foreign[arguments["activation"]],
        }
        write_json(path, {**config, **self.fixed, **self.written, **fields})


def check_size(file: Path, field: str, value: Any, *, least: int = 1) -> int:
    """Returns a field's value if it is a valid size or number.

    Raises:
        ValueError: it is not an integer, is below `least`, or is too large for any model.
    """
    if type(value) is not int or not least <= value <= _LARGEST:
        raise ValueError(
            f"{file}: {field}={value!r:.100}; expected an integer from {least} to {_LARGEST}"
        )
    return value


def check_flag(file: Path, config: Mapping[str, Any], field: str, *, default: bool = False) -> bool:
    """Returns a field that is true or false; ValueError for other values."""
    value = config.get(field, default)
    if not isinstance(value, bool):
        raise ValueError(f"{file}: {field}={value!r:.100}; expected true or false")
    return value


def check_number(
    file: Path, field: str, value: Any, *, least: float = 0.0, below: float = 1e9
) -> float:
    """Returns a field's value if it is a number in this range; ValueError otherwise."""
    if type(value) not in (int, float) or not least <= value < below:
        raise ValueError(
            f"{file}: {field}={value!r:.100}; expected a number, at least {least:g} and below "
            f"{below:g}"
        )
    return value


def arguments_of(model: keras.Model) -> dict[str, Any]:
    """Returns a model's shape as arguments of its builder, as far as its layers tell.

    Raises:
        ValueError: the model has no blocks.
    """
    parts = anatomy(model, "blocks")
    arguments = {**block_shape(parts.blocks[0]), "num_layers": len(parts.blocks)}
    if parts.encoder is not None:
        arguments |= {
            "num_encoder_layers": len(parts.encoder.blocks),
            "num_decoder_layers": len(parts.blocks),
        }
    if (tokens := parts.token_embedding) is not None:
        initializer = tokens.embeddings_initializer
        segments = [
            layer
            for layer in model.layers
            if isinstance(layer, keras.layers.Embedding) and layer is not tokens
        ]
        arguments |= {
            "vocabulary_size": tokens.input_dim,
            "embedding_dim": tokens.output_dim,
            "initializer_range": getattr(initializer, "stddev", None),
            "num_segments": segments[0].input_dim if segments else None,
        }
    for layer in parts.positions:
        if isinstance(layer, RelativePositionBias):
            arguments |= {"num_buckets": layer.num_buckets, "max_distance": layer.max_distance}
    padding = parts.padding if parts.encoder is None else parts.encoder.padding
    if padding is not None:
        arguments["pad_token_id"] = padding.pad_token_id
    return {**arguments, "max_sequence_length": parts.max_sequence_length}


def num_labels(model: keras.Model) -> int | None:
    """Returns how many labels a model's head has, 1 for a regressor; None without such a head."""
    outputs = model.output if isinstance(model.output, dict) else {}
    if "score" in outputs:
        return 1
    return outputs["logits"].shape[-1] if "logits" in outputs else None  # None for multiple choice


def label_fields(model: keras.Model, labels: Sequence[str] | None) -> dict[str, Any]:
    """Returns the fields for the labels of a model's head; empty for a model without a head.

    Args:
        model: a model with any head, or none.
        labels: the name of each class, in the order of the logits; "LABEL_0" and so on by default.

    Raises:
        ValueError: the model's head has another number of classes, or there is none; or a label is
            repeated.
    """
    count = num_labels(model)
    if labels is not None and len(labels) != count:
        head = f"{count} classes" if count else "no head with labels"
        raise ValueError(f"{len(labels)} labels, but model {model.name!r} has {head}")
    if count is None:
        return {}
    if labels is not None and len(set(labels)) < len(labels):
        raise ValueError(f"labels={list(labels)}: one occurs twice, but each class needs its own")
    names = [f"LABEL_{index}" for index in range(count)] if labels is None else list(labels)
    return {
        "num_labels": count,
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }


def read_config(path: str | os.PathLike[str], *model_types: str) -> tuple[Path, dict[str, Any]]:
    """Reads Hugging Face's `config.json`.

    Args:
        path: the file or its folder.
        *model_types: accepted values of `model_type`; by default all. If there is only one, a file
            without `model_type` is accepted too.

    Returns:
        The file's path, for error messages, and its contents.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a JSON object, or describes another family.
    """
    folder = Folder.at(path)
    if folder.path.is_dir():
        file, config = folder / _CONFIG, folder.json(_CONFIG)
    else:
        file, config = folder.path, read_json(folder.path)
    model_type = config.get("model_type", model_types[0] if len(model_types) == 1 else None)
    if model_types and model_type not in model_types:
        choices = " or ".join(map(repr, model_types))
        raise ValueError(f"{file}: model_type is {model_type!r}; expected {choices}")
    return file, config
