"""Opens Google's ViT weights: one `.npz` file from the paper's code (vision_transformer)."""

import functools
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.convert.tensors import NamedTensor, assign
from keras_transformers.families.vit.model import vit
from keras_transformers.files.compression import check_members

__all__: list[str] = []

# A header may be too deeply nested to parse, or of an array that no memory holds.
_DAMAGE = (
    *(OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error),
    *(MemoryError, RecursionError, SyntaxError, tokenize.TokenError),
)
_OPTIMIZER = "opt/target/"  # the start of names saved during training
_NEEDED = ("embedding/kernel", "cls", "Transformer/posembed_input/pos_embedding")
_FIRST = "Transformer/encoderblock_0/"
# Google's module -> ours, outside the encoder's layers and inside them.
_MODULES = {
    "embedding": "patch_embedding",
    "Transformer/encoder_norm": "encoder_norm",
    "pre_logits": "pooler",
    "head": "logits",
}
_PARTS = {
    "LayerNorm_0": "self_attention_norm",
    "MultiHeadDotProductAttention_1/query": "self_attention/query",
    "MultiHeadDotProductAttention_1/key": "self_attention/key",
    "MultiHeadDotProductAttention_1/value": "self_attention/value",
    "MultiHeadDotProductAttention_1/out": "self_attention/output",
    "LayerNorm_2": "feed_forward_norm",
    "MlpBlock_3/Dense_0": "feed_forward/intermediate",
    "MlpBlock_3/Dense_1": "feed_forward/output",
}


def open_google_vit(folder: Folder) -> FoundWeights:
    """Opens a `.npz` file with a ViT's weights.

    The shapes of its arrays determine the model's; images are assumed to be square. As in the
    paper's code, gelu is the tanh form, and pixels are scaled to -1 to 1.

    Raises:
        ValueError: the file is damaged, or holds another model, such as a hybrid with a ResNet.
    """
    file = folder.path
    arrays = functools.cache(lambda: _read(file))
    shapes = {name: array.shape for name, array in arrays().items()}
    arguments = _arguments(file, shapes)
    count = shapes.get("head/bias", (0,))[0]
    labels = {"labels": [f"LABEL_{number}" for number in range(count)]} if count else {}

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        tensors = {_path(name): _flat(name, array) for name, array in arrays().items()}
        ours = [NamedTensor(variable.path, (variable,)) for variable in model.weights]
        return assign(ours, Arrays.of(file, tensors), ignore=ignore)

    return FoundWeights(
        source=file,
        base="image_classification",
        trained=("image_classification",) if count else (),
        build=lambda **changes: vit(**(arguments | changes)),
        fill=fill,
        tokenizers=lambda lowercase=None: (),
        parts=("logits/*",),
        options=labels,
    )


def _read(file: Path) -> dict[str, np.ndarray]:
    """Reads all arrays except those of an optimizer; rejects pickled objects."""
    try:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not a zip archive of arrays")
        with np.load(file, allow_pickle=False) as opened:
            check_members(file, opened.zip)
            names = list(opened)
            start = _OPTIMIZER if any(name.startswith(_OPTIMIZER) for name in names) else ""
            names = [name for name in names if name.startswith(start)]
            return {name.removeprefix(start): np.asarray(opened[name]) for name in names}
    except _DAMAGE as error:
        raise ValueError(
            f"{file}: not a readable .npz file ({error}); it may be truncated: download it again"
        ) from error


def _arguments(file: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    missing = [name for name in _NEEDED if name not in shapes]
    query, inner = (
        shapes.get(f"{_FIRST}{module}/kernel", ())
        for module in ("MultiHeadDotProductAttention_1/query", "MlpBlock_3/Dense_0")
    )
    if missing or any(name.startswith("conv_root") for name in shapes):
        what = f"it lacks {', '.join(missing)}" if missing else "it starts with a ResNet"
        raise ValueError(f"{file}: not the weights of one of Google's ViTs: {what}")
    patch, positions = shapes["embedding/kernel"], shapes[_NEEDED[2]]
    side = round((positions[1] - 1) ** 0.5) if len(positions) == 3 else 0
    fits = len(patch) == 4 and len(query) == 3 and len(inner) == 2 and patch[0] == patch[1]
    if not fits or positions[1] != 1 + side * side:
        raise ValueError(
            f"{file}: embedding/kernel is {patch}, the positions {positions}, a layer's query "
            f"{query} and first dense layer {inner}: expected square patches of a square image"
        )
    layers = {match[1] for name in shapes if (match := re.match(r".*/encoderblock_(\d+)/", name))}
    return {
        "patch_size": patch[0],
        "num_channels": patch[2],
        "hidden_dim": patch[3],
        "image_size": side * patch[0],
        "num_layers": len(layers),
        "num_heads": query[1],
        "intermediate_dim": inner[1],
        "use_representation_layer": "pre_logits/kernel" in shapes,
        "activation": "gelu_approximate",
        "norm_epsilon": 1e-6,
    }


def _path(name: str) -> str:
    """Returns our path for an array's variable, or the name itself if there is none."""
    if name == "cls":
        return "class_token/class_token"
    if name == "Transformer/posembed_input/pos_embedding":
        return "position_embedding/embeddings"
    module, _, last = name.rpartition("/")
    last = {"scale": "gamma", "bias": "beta"}.get(last, last) if _is_norm(module) else last
    if module in _MODULES:
        return f"{_MODULES[module]}/{last}"
    match = re.fullmatch(r"Transformer/encoderblock_(\d+)/(.+)", module)
    if match and match[2] in _PARTS:
        return f"encoder_layer_{match[1]}/{_PARTS[match[2]]}/{last}"
    return name


def _is_norm(module: str) -> bool:
    return module.rpartition("/")[2] in ("LayerNorm_0", "LayerNorm_2", "encoder_norm")


def _flat(name: str, array: np.ndarray) -> np.ndarray:
    """Returns an array in our shape, without an axis for the heads or for the batch."""
    if name == "cls":
        return array.reshape(-1)
    if name == "Transformer/posembed_input/pos_embedding":
        return array[0]
    if re.search(r"/(query|key|value)/", name):
        return array.reshape(*array.shape[:-2], -1)
    return array.reshape(-1, array.shape[-1]) if name.endswith("/out/kernel") else array


FORMAT = Format(
    "a .npz file of Google's ViT",
    lambda folder: folder.path.is_file() and folder.path.suffix == ".npz",
    open_google_vit,
)
