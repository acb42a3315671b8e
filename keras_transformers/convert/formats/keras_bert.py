"""keras-bert's saved models: one HDF5 file that `model.save` wrote, with vocab.txt beside it."""

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.bert import FAMILY, fill_bert
from keras_transformers.convert.formats.checkpoints import Checkpoint, Format
from keras_transformers.convert.formats.tokenizer_files import has_capitals
from keras_transformers.models.encoders.bert import bert

__all__ = ["open_keras_bert"]

# keras-bert's layer -> Hugging Face's module, outside the encoder's layers and in them.
_MODULES = {
    "Embedding-Token": "bert.embeddings.word_embeddings",
    "Embedding-Segment": "bert.embeddings.token_type_embeddings",
    "Embedding-Position": "bert.embeddings.position_embeddings",
    "Embedding-Norm": "bert.embeddings.LayerNorm",
    "MLM-Dense": "cls.predictions.transform.dense",
    "MLM-Norm": "cls.predictions.transform.LayerNorm",
    "MLM-Sim": "cls.predictions",
    "NSP-Dense": "bert.pooler.dense",
    "NSP": "cls.seq_relationship",
}
_NORMS = {
    "MultiHeadSelfAttention-Norm": "attention.output.LayerNorm",
    "FeedForward-Norm": "output.LayerNorm",
}
# The end of a matrix's or bias's name -> Hugging Face's module in a layer.
_DENSES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "1": "intermediate.dense",
    "2": "output.dense",
}
_WEIGHTS = {"kernel": "weight", "gamma": "weight", "embeddings": "weight", "beta": "bias"}
_ACTIVATIONS = {"gelu": "gelu_approximate", "relu": "relu"}  # keras-bert's gelu is the tanh form
_SHAPED = (
    "Embedding-Token/embeddings",
    "Embedding-Segment/embeddings",
    "Embedding-Position/embeddings",
    "Encoder-1-FeedForward/W1",
)
_ENCODER = ("Embedding-", "Encoder-")


def open_keras_bert(file: Path) -> Checkpoint:
    """Opens a model that keras-bert made and Keras 2 saved as HDF5, fine-tuned or not.

    The shapes of its arrays tell the model's, and its `model_config`, which is only read, the
    number of heads. A dense layer with softmax on `NSP-Dense` is taken for a classifier, one on the
    last encoder layer for a tagger; their labels are LABEL_0 and so on. If vocab.txt has words
    with capitals, texts keep their case.

    Raises:
        FileNotFoundError: there is no vocab.txt beside the file.
        ValueError: the file is damaged, holds weights alone, or another model than keras-bert's.
    """
    shapes = _shapes(file)
    layers = _layers(file)
    arguments = _arguments(file, shapes, layers)
    new = sorted({name.partition("/")[0] for name in shapes if _name(name) == name})
    tasks = {name: task for name in new if (task := _task(name, layers, arguments))}
    head = next(iter(tasks), "")
    labels = [f"LABEL_{index}" for index in range(*shapes.get(f"{head}/bias", (0,)))]
    trained = (tasks[head],) if tasks else () if new else _pretrained(shapes)

    def name_of(name: str) -> str:
        return _name(name, {head: "classifier"} if head else {})

    @functools.cache
    def tensors() -> dict[str, np.ndarray]:
        arrays = _visited(file, lambda dataset: dataset[...])
        return {
            name_of(name): array if name.endswith("/embeddings") else array.T
            for name, array in arrays.items()
        }

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        return fill_bert(model, tensors(), source=str(file), ignore=ignore)

    def tokenizers() -> tuple[Any, ...]:
        vocabulary = file.with_name("vocab.txt")
        if not vocabulary.is_file():
            raise FileNotFoundError(
                f"{vocabulary} is missing: put the vocabulary of {file.name} there"
            )
        return (FAMILY.tokenizer(file.parent, not has_capitals(vocabulary)),)

    return Checkpoint(
        source=file,
        base="embedding",
        trained=trained,
        build=lambda: bert(**arguments),
        fill=fill,
        tokenizers=tokenizers,
        heads=", ".join(new),
        parts=(*FAMILY.parts, *(f"{name}/*" for name in new if not name.startswith(_ENCODER))),
        has_pooler="NSP-Dense/kernel" in shapes,
        options={"labels": labels} if labels else {},
        masked_lm={name: arguments[name] for name in ("activation", "norm_epsilon")},
    )


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Returns layer/weight -> shape, and reads no values; ValueError for other models."""
    shapes = _visited(file, lambda dataset: dataset.shape)
    missing = [name for name in _SHAPED if len(shapes.get(name, ())) != 2]
    if missing:
        raise ValueError(
            f"{file}: no model of keras-bert, as it lacks {', '.join(missing)}; if the file is "
            "part of a folder, such as a preset, give that"
        )
    return shapes


def _visited(file: Path, read: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns layer/weight -> what `read` makes of the dataset, without an optimizer's arrays.

    Raises:
        ValueError: the file is damaged, or has arrays that cannot be weights of its own.
    """
    import h5py

    found: dict[str, Any] = {}
    most = file.stat().st_size

    def visit(path: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset) or path.startswith("optimizer_weights/"):
            return
        # A few bytes can describe an array of any size, or one whose values are in other files.
        if item.dtype.kind != "f" or item.nbytes > most or item.external or item.is_virtual:
            raise ValueError(f"{path} of shape {item.shape} holds no weights of this file")
        module, _, weight = path.rpartition("/")
        layer = module.rpartition("/")[2]
        name = f"{layer}/{weight.removesuffix(':0').removeprefix(f'{layer}_')}"
        if name in found:
            raise ValueError(f"several layers are named {layer}")
        found[name] = read(item)

    try:
        with h5py.File(file, "r") as opened:
            opened.visititems(visit)  # follows no links
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:  # h5py raises all
        raise ValueError(
            f"{file}: cannot be read as a model of keras-bert ({error}): save it again with "
            "model.save, or download it again"
        ) from error
    return found


def _layers(file: Path) -> dict[str, dict[str, Any]]:
    """Returns name -> description of the layers, also of those in models inside the model."""
    import h5py

    try:
        with h5py.File(file, "r") as opened:
            text = opened.attrs.get("model_config")
        if text is None:
            raise ValueError(
                f"{file} has weights alone, which do not tell the number of heads: save the model "
                "with model.save, not with save_weights"
            )
        left = [json.loads(text)]
    except (OSError, RuntimeError, TypeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"{file}: its model_config is damaged ({error}); save it again") from error
    found: dict[str, dict[str, Any]] = {}
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            config = value.get("config")
            if "class_name" in value and isinstance(config, dict) and "name" in config:
                found[str(config["name"])] = value
            left += value.values()
    return found


def _arguments(
    file: Path, shapes: Mapping[str, tuple[int, ...]], layers: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the arguments that build the encoder; ValueError if `bert` cannot."""
    (size, width), (segments, _), (positions, _), (_, inner) = (shapes[name] for name in _SHAPED)
    numbers = {int(m[1]) for name in shapes if (m := re.match(r"Encoder-(\d+)-", name))}

    def same(end: str, option: str) -> Any:
        values = [
            description["config"].get(option)
            for name, description in layers.items()
            if name.startswith(_ENCODER) and name.endswith(end)
        ]
        if not values or any(value != values[0] for value in values):
            raise ValueError(f"{file}: {option} of its layers {end} is {values!r:.200}, not one")
        return values[0]

    num_heads, epsilon = same("-MultiHeadSelfAttention", "head_num"), same("-Norm", "epsilon")
    activation, attention = same("-FeedForward", "activation"), same("Attention", "activation")
    troubles = {
        "head_num": type(num_heads) is int and num_heads > 0 and width % num_heads == 0,
        "epsilon": isinstance(epsilon, float) and 0 < epsilon < 1,
        "activation": isinstance(activation, str) and activation in _ACTIVATIONS,
        "attention's activation": attention in (None, "linear"),
        "layers": numbers == set(range(1, len(numbers) + 1)),
    }
    if wrong := [name for name, fits in troubles.items() if not fits]:
        raise ValueError(
            f"{file}: its {', '.join(wrong)} are not those of a BERT: head_num={num_heads!r:.50}, "
            f"epsilon={epsilon!r:.50}, activation={activation!r:.50}, {attention!r:.50} in "
            f"attention, layers {sorted(numbers)!r:.100}"
        )
    return {
        "vocabulary_size": size,
        "num_layers": len(numbers),
        "num_heads": num_heads,
        "hidden_dim": width,
        "intermediate_dim": inner,
        "max_sequence_length": positions,
        "num_segments": segments,
        "activation": _ACTIVATIONS[activation],
        "norm_epsilon": epsilon,
    }


def _name(name: str, heads: Mapping[str, str] = MappingProxyType({})) -> str:
    """Returns Hugging Face's name of layer/weight; the name itself if it has none."""
    layer, _, weight = name.partition("/")
    module = heads.get(layer) or _MODULES.get(layer)
    if module is None and (match := re.fullmatch(r"Encoder-(\d+)-(.+)", layer)):
        part = _NORMS.get(match[2])
        if match[2] in ("MultiHeadSelfAttention", "FeedForward") and weight[:1] in ("W", "b"):
            part = _DENSES.get(weight[1:])
            weight = "weight" if weight[0] == "W" else "bias"
        if part:
            module = f"bert.encoder.layer.{int(match[1]) - 1}.{part}"
    return name if module is None else f"{module}.{_WEIGHTS.get(weight, weight)}"


def _pretrained(shapes: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the tasks of keras-bert's own heads."""
    if "MLM-Sim/bias" not in shapes:
        return ("embedding",)
    return ("fill_mask", "next_sentence") if "NSP/kernel" in shapes else ("fill_mask",)


def _task(
    name: str, layers: Mapping[str, Mapping[str, Any]], arguments: Mapping[str, Any]
) -> str | None:
    """Returns what a layer after the encoder was trained for; None if no pipeline does it."""
    layer = layers.get(name, {})
    config = layer.get("config", {})
    if layer.get("class_name") != "Dense" or config.get("activation") not in ("softmax", "linear"):
        return None
    source = _source(layer)
    while layers.get(source, {}).get("class_name") == "Dropout":
        source = _source(layers[source])
    last = f"Encoder-{arguments['num_layers']}-FeedForward-Norm"
    return {"NSP-Dense": "classification", last: "tagging"}.get(source)


def _source(layer: Mapping[str, Any]) -> str:
    """Returns the name of the one layer whose output a layer reads; "" if that is not so."""
    match layer.get("inbound_nodes"):
        case [[[str(name), *_]]]:
            return name
    return ""


FORMAT = Format(
    "keras-bert's .h5 with vocab.txt",
    lambda path: path.is_file() and path.suffix in (".h5", ".hdf5"),
    open_keras_bert,
)
