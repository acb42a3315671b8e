"""Opens keras-bert's and bert4keras' models: a Keras 2 HDF5 file with vocab.txt beside it."""

import glob
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.containers.hdf5 import hdf5_shapes
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.keras_h5 import (
    keras_layers,
    other_layers,
    report_other_layers,
)
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.families.bert.files import FAMILY
from keras_transformers.families.bert.google import (
    head_labels,
    read_google_bert_config,
    wordpiece_beside,
)
from keras_transformers.families.bert.keras_bert_h5 import CONTAINER
from keras_transformers.families.bert.model import bert

__all__: list[str] = []

_CONFIG = "bert_config.json"
_EMBEDDINGS = "bert.embeddings"
_SHAPED = (
    f"{_EMBEDDINGS}.word_embeddings.weight",
    f"{_EMBEDDINGS}.token_type_embeddings.weight",
    f"{_EMBEDDINGS}.position_embeddings.weight",
    "bert.encoder.layer.0.intermediate.dense.weight",
)
_BLOCK = re.compile(r"(?:^|/)(Embedding|(Encoder|Transformer)-\d+)-")
_ATTENTION, _FEED_FORWARD, _NORM = "-MultiHeadSelfAttention", "-FeedForward", "-Norm"
# The suffix of a layer's name -> option of its class there -> our argument.
_READ = {
    _ATTENTION: {"head_num": "num_heads", "heads": "num_heads"},
    _FEED_FORWARD: {"activation": "activation"},
    _NORM: {"epsilon": "norm_epsilon"},
}
# Options that must have BERT's values; files may lack them.
_FIXED: dict[str, dict[str, tuple[Any, ...]]] = {
    _ATTENTION: {
        "activation": (None, "linear"),
        "history_only": (False,),
        "normalization": ("softmax",),
        "attention_scale": (True,),
    },
    _NORM: {"conditional": (False,), "zero_mean": (True,), "unit_variance": (True,)},
}
# keras-bert's gelu is the tanh form. bert4keras writes which form it used, as a list.
_ACTIVATIONS = {
    "gelu": "gelu_approximate",
    "gelu_tanh": "gelu_approximate",
    "gelu_erf": "gelu",
    "relu": "relu",
}
_POOLERS = ("NSP-Dense", "Pooler-Dense")


def open_keras_bert(folder: Folder) -> FoundWeights:
    """Opens a model that keras-bert or bert4keras made and Keras 2 saved as HDF5.

    The shapes of its arrays determine the model's; the number of heads comes from its
    `model_config`, which is only read. A file from `save_weights` has none, and needs the
    pretrained model's bert_config.json beside it. A dense layer with softmax on the pooler is
    loaded as a classifier, one on the last encoder layer as a tagger; their labels are LABEL_0 and
    so on. Other layers are named in a warning. If vocab.txt has words with capitals, texts keep
    their case.

    Raises:
        FileNotFoundError: there is no vocab.txt beside the file, or no bert_config.json if it needs
            one.
        ValueError: the file is damaged, or holds a model other than a BERT.
    """
    file = folder.path
    arrays = folder.arrays
    missing = [name for name in _SHAPED if len(arrays.shapes.get(name, ())) != 2]
    if missing:
        raise ValueError(f"{file}: not a keras-bert model: it lacks {', '.join(missing)}")
    layers = keras_layers(file)
    arguments = _arguments(file, arrays, layers)
    head, task = _head(other_layers(arrays), layers, arguments["num_layers"])
    arrays = _with_head(arrays, head)
    # Weights of their encoder that ours lacks must not be left out.
    rest = {path: shape for path, shape in other_layers(arrays).items() if not _BLOCK.search(path)}
    labels = head_labels(arrays.shapes) if head else []

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        left_out = FAMILY.fill(model, arrays, ignore=ignore)
        report_other_layers(file, rest)
        return [name for name in left_out if name not in rest]

    return FoundWeights(
        source=file,
        base="embedding",
        trained=(task,) if task else ("embedding",) if rest else _pretrained(arrays),
        build=lambda **changes: bert(**(arguments | changes)),
        fill=fill,
        tokenizers=lambda lowercase=None: (wordpiece_beside(file, lowercase=lowercase),),
        parts=(*FAMILY.parts, *map(glob.escape, rest)),
        has_pooler="bert.pooler.dense.weight" in arrays,
        options={"labels": labels} if labels else {},
        masked_lm={name: arguments[name] for name in ("activation", "norm_epsilon")},
    )


def _arguments(
    file: Path, arrays: Arrays, layers: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the arguments that build the encoder; ValueError if `bert` cannot."""
    (size, width), (segments, _), (positions, _), (inner, _) = (
        arrays.shapes[name] for name in _SHAPED
    )
    numbers = {
        int(m[1]) for name in arrays if (m := re.match(r"bert\.encoder\.layer\.(\d+)", name))
    }
    if numbers != set(range(len(numbers))):
        raise ValueError(f"{file}: its layers are {sorted(numbers)!r:.100}; expected all from 0")
    settings = _settings(file, layers) if layers else _settings_beside(file)
    num_heads = settings["num_heads"]
    if type(num_heads) is not int or num_heads < 1 or width % num_heads:
        raise ValueError(f"{file}: {num_heads!r:.50} heads do not divide a width of {width}")
    return {
        "vocabulary_size": size,
        "num_layers": len(numbers),
        "hidden_dim": width,
        "intermediate_dim": inner,
        "max_sequence_length": positions,
        "num_segments": segments,
        **settings,
    }


def _settings(file: Path, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the arguments in the descriptions of the layers."""
    values: dict[str, list[Any]] = {}
    wrong = []
    for name, layer in layers.items():
        end = next((end for end in _READ if _BLOCK.match(name) and name.endswith(end)), None)
        if end is None:
            continue
        options = layer["config"]
        for option, argument in _READ[end].items():
            if option in options:
                values.setdefault(argument, []).append(options[option])
        fixed = _FIXED.get(end, {})
        wrong += [
            f"{name}'s {option}={options[option]!r:.50}"
            for option, allowed in fixed.items()
            if option in options and options[option] not in allowed
        ]
        if end == _ATTENTION and any(_biases(layer.get("inbound_nodes"))):
            wrong.append(f"{name}'s mask or positions")
    arguments = {}
    for argument in ("num_heads", "activation", "norm_epsilon"):
        choices = values.get(argument, [])
        if not choices or any(value != choices[0] for value in choices):
            raise ValueError(f"{file}: {argument} of its layers is {choices!r:.200}, not one")
        arguments[argument] = choices[0]
    activation, epsilon = arguments["activation"], arguments["norm_epsilon"]
    if isinstance(activation, list) and len(activation) == 1:  # two of them make a gate
        activation = activation[0]
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        wrong.append(f"activation={activation!r:.50}")
    if not isinstance(epsilon, float) or not 0 < epsilon < 1:
        wrong.append(f"epsilon={epsilon!r:.50}")
    if wrong:
        raise ValueError(f"{file}: these are not those of a BERT: {', '.join(wrong)}")
    return {**arguments, "activation": _ACTIVATIONS[activation]}


def _biases(nodes: Any) -> Iterator[Any]:
    """Yields bert4keras' additions to attention: a causal mask or relative positions."""
    match nodes:
        case [[*inputs]]:
            for input_ in inputs:
                match input_:
                    case [_, _, _, dict(options)]:
                        yield options.get("a_bias") or options.get("p_bias")


def _settings_beside(file: Path) -> dict[str, Any]:
    """Returns the arguments from the pretrained model's configuration."""
    config = file.with_name(_CONFIG)
    if not config.is_file():
        raise FileNotFoundError(
            f"{file} has only weights, which do not reveal the number of heads: copy the "
            f"{_CONFIG} of the pretrained model to {config}, or save the model with model.save"
        )
    arguments = read_google_bert_config(config)
    activation = arguments["activation"]
    if activation == "gelu_approximate" and any(
        "Transformer-0-" in path for path in hdf5_shapes(file)
    ):
        activation = "gelu"  # unless the program called set_gelu
    return {
        **{name: arguments[name] for name in ("num_heads", "norm_epsilon")},
        "activation": activation,
    }


def _pretrained(shapes: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the tasks of the libraries' own heads."""
    if "cls.predictions.bias" not in shapes:
        return ("embedding",)
    has_pairs = "cls.seq_relationship.weight" in shapes
    return ("fill_mask", "next_sentence") if has_pairs else ("fill_mask",)


def _head(
    paths: Iterable[str], layers: Mapping[str, Mapping[str, Any]], num_layers: int
) -> tuple[dict[str, str], str]:
    """Returns the head's tensors -> paths, and its task; nothing if there is no head.

    Args:
        paths: the paths of layers that are neither keras-bert's nor bert4keras'.
        layers: the descriptions of all layers.
        num_layers: the number of layers in the encoder.
    """
    last = (
        f"Encoder-{num_layers}-FeedForward-Norm",
        f"Transformer-{num_layers - 1}-FeedForward-Norm",
    )
    tasks = {**dict.fromkeys(_POOLERS, "classification"), **dict.fromkeys(last, "tagging")}
    for name, layer in layers.items():
        if layer["class_name"] != "Dense":
            continue
        tensors = {
            f"classifier.{tensor}": path
            for tensor, weight in (("weight", "kernel"), ("bias", "bias"))
            for path in paths
            if path.endswith(f"{name}/{weight}:0")
        }
        source = _source(layer)
        while layers.get(source, {}).get("class_name") == "Dropout":
            source = _source(layers[source])
        is_plain = layer["config"].get("activation") in ("softmax", "linear")
        if len(tensors) == 2 and is_plain and source in tasks:
            return tensors, tasks[source]
    return {}, ""


def _source(layer: Mapping[str, Any]) -> str:
    """Returns the name of the only layer whose output a layer reads; "" if there are several."""
    match layer.get("inbound_nodes"):
        case [[[str(name), *_]]]:
            return name
    return ""


def _with_head(arrays: Arrays, head: Mapping[str, str]) -> Arrays:
    """Returns the arrays, with those of a dense layer under the names of Hugging Face's head."""
    places = {**{name: name for name in arrays if name not in head.values()}, **head}
    shapes = {name: arrays.shapes[place] for name, place in places.items()}
    if head:
        shapes["classifier.weight"] = shapes["classifier.weight"][::-1]

    def read(name: str) -> np.ndarray:
        array = arrays[places[name]]
        return array.T if name in head else array

    return Arrays(arrays.source, shapes, read)


FORMAT = Format(
    "keras-bert's or bert4keras' .h5 with vocab.txt",
    lambda folder: CONTAINER.find(folder.path) is not None,
    open_keras_bert,
)
