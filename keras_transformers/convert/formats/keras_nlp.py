"""Opens presets of keras-nlp, now keras-hub: config.json and model.weights.h5."""

import contextlib
import functools
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.family import Family
from keras_transformers.convert.formats.weights import MOST_LABELS, Format, FoundWeights
from keras_transformers.convert.tensors import NamedTensor, assign
from keras_transformers.families.albert import files as albert
from keras_transformers.families.bert import files as bert
from keras_transformers.families.distilbert import files as distilbert
from keras_transformers.families.gpt import files as gpt
from keras_transformers.families.roberta import files as roberta
from keras_transformers.families.roberta.model import FIRST_POSITION
from keras_transformers.families.t5 import files as t5
from keras_transformers.families.t5.keras_nlp import (
    t5_arguments,
    t5_tensors,
    t5_tokenizers,
)
from keras_transformers.families.vit import files as vit
from keras_transformers.families.xlm_roberta import files as xlm_roberta
from keras_transformers.files import naming, read_json

__all__: list[str] = []

_SIZES = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim")
_TEXTS = (*_SIZES, "dropout", "max_sequence_length")


@dataclass(frozen=True)
class _Backbone:
    """How to build the counterpart of a class of keras-nlp.

    Attributes:
        family: our family.
        fields: the fields of its configuration that our builder takes under the same names.
        fixed: our builder's arguments that the class fixes.
    """

    family: Family
    fields: tuple[str, ...]
    fixed: Mapping[str, Any]


_BACKBONES = {
    "BertBackbone": _Backbone(
        bert.FAMILY,
        (*_TEXTS, "num_segments"),
        {"activation": "gelu_approximate", "norm_epsilon": 1e-12},
    ),
    "AlbertBackbone": _Backbone(
        albert.FAMILY,
        (*_TEXTS, "num_segments", "embedding_dim"),
        {"activation": "gelu_approximate", "norm_epsilon": 1e-12},
    ),
    "RobertaBackbone": _Backbone(roberta.FAMILY, _TEXTS, {"norm_epsilon": 1e-5}),
    "XLMRobertaBackbone": _Backbone(xlm_roberta.FAMILY, _TEXTS, {"norm_epsilon": 1e-5}),
    "DistilBertBackbone": _Backbone(distilbert.FAMILY, _TEXTS, {}),
    "GPT2Backbone": _Backbone(
        gpt.FAMILY,
        _TEXTS,
        {"activation": "gelu_approximate", "norm_epsilon": 1e-5, "norm_position": "pre"},
    ),
    "T5Backbone": _Backbone(t5.FAMILY, (*_SIZES, "dropout"), {}),
    "ViTBackbone": _Backbone(vit.FAMILY, ("num_layers", "num_heads", "hidden_dim"), {}),
}
# The suffix of a task's class -> keras-nlp's class for it today, and our task for its head.
_TASKS = {
    "TextClassifier": ("TextClassifier", "classification"),
    "MaskedLM": ("MaskedLM", "fill_mask"),
    "CausalLM": ("CausalLM", "generation"),
    "Seq2SeqLM": ("Seq2SeqLM", "translation"),
    "ImageClassifier": ("ImageClassifier", "image_classification"),
    "Classifier": ("TextClassifier", "classification"),  # until keras-nlp 0.14
}
# keras-nlp's variables -> ours: patterns for the start of a path, then for the rest.
_MODULES = (
    (r"(?:embeddings|token_and_position_embedding)/(?=\w+/embeddings)", ""),
    (r"embeddings_layer_norm/", "embeddings_norm/"),
    (r"embedding_projection/", "embeddings_project/"),
    (r"pooled_dense/", "pooler/"),
    (r"layer_norm/", "final_norm/"),
    (r"mlm_head/output_bias", "mask_logits/bias"),
    (r"mlm_head/intermediate_dense/", "masked_lm_dense/"),
    (r"mlm_head/intermediate_layer_norm/", "masked_lm_norm/"),
    (r"vit_patching_and_embedding/class_token", "class_token/class_token"),
    (r"vit_patching_and_embedding/", ""),
    (r"vit_encoder/ln/", "encoder_norm/"),
    (r"predictions/", "logits/"),
)
_PARTS = (
    (r"(self_attention_layer|self_attention|mha)/(?=query|key|value)", "self_attention/"),
    (r"(self_attention_layer|self_attention|mha)/attention_output", "self_attention/output"),
    (r"(self_attention_layer_norm|ln_1)/", "self_attention_norm/"),
    (r"(feedforward_layer_norm|ln_2)/", "feed_forward_norm/"),
    (r"(feedforward_intermediate_dense|mlp/dense_1)/", "feed_forward/intermediate/"),
    (r"(feedforward_output_dense|mlp/dense_2)/", "feed_forward/output/"),
)
# Tasks without their own head.
_HEADLESS = ("CausalLM", "Seq2SeqLM")
_PREFIX = {"GPT2Backbone": "decoder_layer_"}


def open_keras_nlp(folder: Path) -> FoundWeights:
    """Opens a folder written by `save_to_preset` of keras-nlp or keras-hub.

    keras-hub itself reads the weights. Uncased texts lose their accents here, as in BERT, even
    where keras-hub's own tokenizer keeps them.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the class of the preset is not supported.
    """
    name, config = _described(folder / "config.json")
    if name not in _BACKBONES:
        raise ValueError(
            f"{folder / 'config.json'}: a preset of {name!r}; expected one of "
            f"{', '.join(_BACKBONES)}"
        )
    known = _BACKBONES[name]
    arguments = _arguments(folder, name, config)
    trained, options, task = _trained(folder, known.family)

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        tensors = _tensors(folder, name, task, arguments)
        ours = [NamedTensor(variable.path, (variable,)) for variable in model.weights]
        return assign(ours, Arrays.of(folder, tensors), ignore=ignore)

    preprocessor = folder / "preprocessor.json"
    length = _described(preprocessor)[1].get("sequence_length") if preprocessor.is_file() else None
    if name == "T5Backbone":
        size, assets = config["vocabulary_size"], folder / "assets" / "tokenizer"
        make_tokenizers = functools.partial(t5_tokenizers, assets, size)
    else:
        make_tokenizers = functools.partial(_tokenizers, folder, known.family)
    return FoundWeights(
        source=folder,
        base=known.family.task,
        trained=trained,
        build=lambda **changes: known.family.build(**(arguments | changes)),
        fill=fill,
        tokenizers=lambda lowercase=None: make_tokenizers(),  # the files decide
        heads=task or name,
        parts=("pooler/*", "logits/*", "masked_lm_*", "mask_logits/*"),
        has_pooler=name in ("AlbertBackbone", "BertBackbone"),
        options=options,
        max_sequence_length=length if isinstance(length, int) else known.family.longest_text,
        masked_lm={"activation": "gelu", "norm_epsilon": 1e-5},
    )


def _described(file: Path) -> tuple[str, dict[str, Any]]:
    """Reads a Keras object's class, without its package, and configuration."""
    found = read_json(file)
    name, config = found.get("registered_name"), found.get("config")
    package, _, name = str(name).rpartition(">")
    if package not in ("keras_hub", "keras_nlp") or not isinstance(config, dict):
        raise ValueError(f"{file}: not the configuration of a keras-nlp class")
    return name, config


def _arguments(folder: Path, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of our builder."""
    file, known = folder / "config.json", _BACKBONES[name]
    images = ("image_shape", "patch_size", "mlp_dim") if name == "ViTBackbone" else ()
    for field in (*known.fields, *images):
        if field not in config:
            raise ValueError(f"{file}: has no field {field!r}")
        value, shape = config[field], {"image_shape": 3, "patch_size": 2}.get(field)
        if field == "dropout":
            fits = type(value) in (int, float) and 0 <= value < 1
        elif shape is None or isinstance(value, int):
            fits = _is_size(value) and field != "image_shape"
        else:
            fits = isinstance(value, list) and len(value) == shape and all(map(_is_size, value))
        if not fits:
            raise ValueError(f"{file}: {field}={value!r} is out of range")
    arguments = {field: config[field] for field in known.fields} | dict(known.fixed)
    if name == "T5Backbone":
        return t5_arguments(file, arguments, config)
    for field in ("num_groups", "num_inner_repetitions"):
        if config.get(field, 1) != 1:
            raise ValueError(f"{file}: {field}={config[field]!r}; only 1 is supported")
    if name != "ViTBackbone":
        return arguments | {"attention_dropout": config["dropout"]}
    for field in ("use_mha_bias", "use_mlp_bias", "use_class_token", "use_patch_bias"):
        if config.get(field, True) is not True:
            raise ValueError(f"{file}: {field}={config[field]!r}; only true is supported")
    height, width, channels = config["image_shape"]
    sides = config["patch_size"]
    sides = [sides, sides] if isinstance(sides, int) else list(sides)
    if sides[0] != sides[1]:
        raise ValueError(f"{file}: patch_size={sides}; patches must be square")
    return {
        **arguments,
        "patch_size": sides[0],
        "image_size": (height, width),
        "num_channels": channels,
        "intermediate_dim": config["mlp_dim"],
        "dropout": config.get("dropout_rate", 0.0),
        "attention_dropout": config.get("attention_dropout", 0.0),
        "norm_epsilon": config.get("layer_norm_epsilon", 1e-6),
        **_pixels(folder / "image_converter.json"),
    }


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def _pixels(file: Path) -> dict[str, Any]:
    """Reads how the preset scales pixels: scale * pixel + offset is (pixel / 255 - mean) / std."""
    if not file.is_file():
        return {}
    config = _described(file)[1]
    if config.get("interpolation", "bilinear") != "bilinear":
        raise ValueError(
            f"{file}: interpolation={config['interpolation']!r}; only 'bilinear' is supported"
        )
    if config.get("pad_to_aspect_ratio"):
        raise ValueError(
            f"{file}: pads images to their aspect ratio; here they are cropped, or resized as a "
            "whole: save the preset with pad_to_aspect_ratio=False if that is right"
        )
    try:
        scale = np.asarray(1.0 if config.get("scale") is None else config["scale"], "float64")
        offset = np.asarray(0.0 if config.get("offset") is None else config["offset"], "float64")
        std = 1 / (255 * scale)
        if not np.isfinite(std).all() or not np.isfinite(offset * std).all():
            raise ValueError("not finite, or 0")
        if {scale.shape, offset.shape} - {(), (1,), (3,)}:
            raise ValueError("neither one number nor one per colour")
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"{file}: scale={config.get('scale')!r}, offset={config.get('offset')!r}: {error}"
        ) from error
    return {"pixel_std": std.tolist(), "pixel_mean": (-offset * std).tolist()}


def _resizing(file: Path) -> dict[str, bool]:
    """Reads how the preset resizes images, as options of `ImageDecoder`."""
    if not file.is_file():
        return {}
    config, defaults = _described(file)[1], {"crop_to_aspect_ratio": True, "antialias": False}
    for field, default in defaults.items():
        if type(config.get(field, default)) is not bool:
            raise ValueError(f"{file}: {field}={config[field]!r}; expected true or false")
    return {field: config.get(field, default) for field, default in defaults.items()}


def _trained(folder: Path, family: Family) -> tuple[tuple[str, ...], dict[str, Any], str]:
    """Returns the task that a head was trained for, its pipeline's options, and its class."""
    file = folder / "task.json"
    if not file.is_file():
        return (() if family.task == "image_classification" else (family.task,)), {}, ""
    name, config = _described(file)
    end = next((end for end in _TASKS if name.endswith(end)), None)
    if end is None:
        return (), {}, name
    if end == "MaskedLM" or end in _HEADLESS:
        return (_TASKS[end][1],), {}, name
    if config.get("activation") not in (None, "linear", "softmax"):
        raise ValueError(
            f"{file}: activation={config['activation']!r}; only linear and softmax are supported"
        )
    if config.get("pooling", "token") != "token" or config.get("intermediate_dim"):
        raise ValueError(f"{file}: only a dense layer on the class token is supported")
    count = config.get("num_classes")
    if type(count) is not int or not 2 <= count <= MOST_LABELS:
        raise ValueError(f"{file}: num_classes={count!r}; expected 2 to {MOST_LABELS:,}")
    labels = {"labels": [f"LABEL_{number}" for number in range(count)]}
    return (_TASKS[end][1],), {**labels, **_resizing(folder / "image_converter.json")}, name


def _tensors(
    folder: Path, name: str, task: str, arguments: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Reads the preset's variables, under our paths and in our shapes."""
    import keras_hub

    kind = next((end for end in _TASKS if task.endswith(end)), "")
    # Without this file, keras-nlp would silently leave the head as it was initialized.
    if kind not in ("", *_HEADLESS) and not (folder / "task.weights.h5").is_file():
        raise FileNotFoundError(
            f"{folder} has no task.weights.h5, the weights of {task}'s head: download it again"
        )
    preset = str(folder.absolute())  # a bare name could mean a preset to download
    try:
        if kind:
            of_today = getattr(keras_hub.models, _TASKS[kind][0])
            model = of_today.from_preset(preset, preprocessor=None)
        else:
            model = keras_hub.models.Backbone.from_preset(preset)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{folder}: keras-hub cannot read this preset ({reason}): download it again"
        ) from error
    if name == "T5Backbone":
        return t5_tensors(model.backbone if kind else model)
    tensors = {
        _path(variable.path, name): _flat(variable.path, keras.ops.convert_to_numpy(variable))
        for variable in model.weights
    }
    if name.endswith("RobertaBackbone"):  # it has neither segments nor the rows before position 2
        width = arguments["hidden_dim"]
        before = np.zeros((FIRST_POSITION, width), "float32")
        positions = "position_embedding/embeddings"
        tensors[positions] = np.concatenate([before, tensors[positions]])
        tensors["segment_embedding/embeddings"] = np.zeros((1, width), "float32")
    return tensors


def _path(theirs: str, name: str) -> str:
    """Returns our path for a variable."""
    if shared := re.fullmatch(r"group_0_inner_layer_0/(.+)", theirs):  # ALBERT's only layer
        return f"encoder_layer/{_renamed(shared[1], _PARTS)}"
    match = re.fullmatch(r"(?:transformer_layer_|vit_encoder/transformer_block_)(\d+)/(.+)", theirs)
    if match is None:
        return _renamed(theirs, _MODULES)
    number = int(match[1]) - theirs.startswith("vit_encoder/")  # which counts from 1
    return f"{_PREFIX.get(name, 'encoder_layer_')}{number}/{_renamed(match[2], _PARTS)}"


def _renamed(path: str, patterns: Iterable[tuple[str, str]]) -> str:
    for pattern, ours in patterns:
        if re.match(pattern, path):
            return re.sub(f"^{pattern}", ours, path, count=1)
    return path


def _flat(path: str, array: np.ndarray) -> np.ndarray:
    """Returns arrays of attention without an axis for the heads, and the class token as a row."""
    if path.endswith("class_token"):
        return array.reshape(-1)
    if re.search(r"/(query|key|value)/", path):
        return array.reshape(*array.shape[:-2], -1)
    if path.endswith("/attention_output/kernel"):
        return array.reshape(-1, array.shape[-1])
    return array


def _tokenizers(folder: Path, family: Family) -> tuple[Any, ...]:
    """Makes the tokenizer of a preset; none for images."""
    if family.task == "image_classification":
        return ()
    config = _described(folder / "tokenizer.json")[1]
    with _vocabulary(folder / "assets" / "tokenizer", family) as place:
        # SentencePiece models do not set the case; ALBERT was trained only on lower case.
        return (family.tokenizer(place, bool(config.get("lowercase", True))),)


@contextlib.contextmanager
def _vocabulary(assets: Path, family: Family) -> Iterator[Path]:
    """Yields a folder with the vocabulary under the names that our tokenizers expect."""
    names = {
        "vocabulary.txt": "vocab.txt",
        "vocabulary.json": "vocab.json",
        **({"vocabulary.spm": family.pieces_file} if family.pieces_file else {}),
    }
    with tempfile.TemporaryDirectory() as scratch:
        found = [file for file in sorted(assets.glob("*")) if file.is_file()]
        copies = {Path(scratch, names.get(file.name, file.name)): file for file in found}
        for copy, file in copies.items():
            shutil.copyfile(file, copy)
        if not found:
            raise FileNotFoundError(f"{assets} has no vocabulary: download the preset again")
        with naming({**copies, Path(scratch): assets}):
            yield Path(scratch)


def _recognises(path: Path) -> bool:
    file = path / "config.json"
    return file.is_file() and "registered_name" in read_json(file)


FORMAT = Format("presets of keras-nlp or keras-hub", _recognises, open_keras_nlp)
