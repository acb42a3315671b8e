"""Opens presets of keras-nlp, now keras-hub: config.json and model.weights.h5."""

import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.families import families
from keras_transformers.convert.family import Family
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import MOST_LABELS, Format, FoundWeights
from keras_transformers.convert.keras_backbones import (
    CONVERTER,
    Backbone,
    checked,
    read_described,
)
from keras_transformers.convert.tensors import NamedTensor, assign
from keras_transformers.files import naming

__all__: list[str] = []

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


def open_keras_nlp(folder: Folder) -> FoundWeights:
    """Opens a folder written by `save_to_preset` of keras-nlp or keras-hub.

    keras-hub itself reads the weights. Uncased texts lose their accents here, as in BERT, even
    where keras-hub's own tokenizer keeps them.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the class of the preset is not supported.
    """
    backbones = {
        backbone.name: (backbone, family)
        for family in families()
        if (backbone := family.keras_nlp) is not None
    }
    file = folder / "config.json"
    name, config = read_described(folder, file.name)
    if name not in backbones:
        raise ValueError(
            f"{file}: a preset of {name!r}; expected one of {', '.join(sorted(backbones))}"
        )
    backbone, family = backbones[name]
    arguments = _arguments(folder, backbone, config)
    trained, options, task = _trained(folder, family)

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        arrays = _arrays(folder.path, backbone, task)
        ours = [NamedTensor(variable.path, (variable,)) for variable in model.weights]
        return assign(ours, Arrays.of(folder.path, arrays), ignore=ignore)

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:  # the files decide
        assets = folder / "assets" / "tokenizer"
        if backbone.tokenizers is not None:
            return backbone.tokenizers(assets, config)
        lowercases = read_described(folder, "tokenizer.json")[1].get("lowercase", True)
        with _vocabulary(assets, family) as place:
            # SentencePiece models do not set the case; ALBERT was trained only on lower case.
            return (family.tokenizer(Folder(place), bool(lowercases)),)

    _, preprocessor = read_described(folder, "preprocessor.json", missing_ok=True)
    length = preprocessor.get("sequence_length")
    return FoundWeights(
        source=folder.path,
        base=family.task,
        trained=trained,
        build=lambda **changes: family.build(**(arguments | changes)),
        fill=fill,
        tokenizers=tokenizers,
        heads=task or name,
        parts=("pooler/*", "logits/*", "masked_lm_*", "mask_logits/*"),
        has_pooler=backbone.has_pooler,
        options=options,
        max_sequence_length=length if isinstance(length, int) else family.longest_text,
        masked_lm={"activation": "gelu", "norm_epsilon": 1e-5},
    )


def _arguments(folder: Folder, backbone: Backbone, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of our builder."""
    file = folder / "config.json"
    arguments = {name: checked(file, config, name) for name in backbone.fields}
    for name, value in backbone.only.items():
        if config.get(name, value) != value:
            raise ValueError(
                f"{file}: {name}={config[name]!r}; only {json.dumps(value)} is supported"
            )
    return backbone.arguments(folder, {**arguments, **backbone.fixed}, config)


def _resizing(folder: Folder) -> dict[str, bool]:
    """Reads how the preset resizes images, as options of `ImageDecoder`."""
    name, config = read_described(folder, CONVERTER, missing_ok=True)
    if not name:
        return {}
    defaults = {"crop_to_aspect_ratio": True, "antialias": False}
    for field, default in defaults.items():
        if type(config.get(field, default)) is not bool:
            file = folder / CONVERTER
            raise ValueError(f"{file}: {field}={config[field]!r}; expected true or false")
    return {field: config.get(field, default) for field, default in defaults.items()}


def _trained(folder: Folder, family: Family) -> tuple[tuple[str, ...], dict[str, Any], str]:
    """Returns the task that a head was trained for, its pipeline's options, and its class."""
    file = folder / "task.json"
    if not file.is_file():
        return ((family.task,) if family.reads_texts else ()), {}, ""  # images need a head
    name, config = read_described(folder, file.name)
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
    return (_TASKS[end][1],), {**labels, **_resizing(folder)}, name


def _arrays(folder: Path, backbone: Backbone, task: str) -> dict[str, np.ndarray]:
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
    if backbone.arrays is not None:
        return backbone.arrays(model.backbone if kind else model)
    arrays = {
        _path(variable.path, backbone): _flat(variable.path, keras.ops.convert_to_numpy(variable))
        for variable in model.weights
    }
    return backbone.adapt(arrays)


def _path(theirs: str, backbone: Backbone) -> str:
    """Returns our path for a variable."""
    match = re.fullmatch(backbone.blocks, theirs)
    if match is None:
        return _renamed(theirs, (*backbone.modules, *_MODULES))
    block = backbone.our_blocks.format(int(match[1]) - backbone.first_block)
    return f"{block}/{_renamed(match[2], _PARTS)}"


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


@contextlib.contextmanager
def _vocabulary(assets: Path, family: Family) -> Iterator[Path]:
    """Yields a folder with the vocabulary under the names that our tokenizers expect."""
    names = {
        "vocabulary.txt": "vocab.txt",
        "vocabulary.json": "vocab.json",
        **({"vocabulary.spm": family.pieces_file} if family.pieces_file else {}),
    }
    with tempfile.TemporaryDirectory() as scratch:
        files = [file for file in sorted(assets.glob("*")) if file.is_file()]
        copies = {Path(scratch, names.get(file.name, file.name)): file for file in files}
        for copy, file in copies.items():
            shutil.copyfile(file, copy)
        if not files:
            raise FileNotFoundError(f"{assets} has no vocabulary: download the preset again")
        with naming({**copies, Path(scratch): assets}):
            yield Path(scratch)


def _recognises(folder: Folder) -> bool:
    return "registered_name" in folder.json("config.json", missing_ok=True)


FORMAT = Format("presets of keras-nlp or keras-hub", _recognises, open_keras_nlp)
