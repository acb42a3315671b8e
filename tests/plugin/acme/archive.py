"""Reads Echo's weights from one file, NAME.echo.npz: arrays, and the configuration as JSON."""

import json
from collections.abc import Iterable
from pathlib import Path

import keras
import numpy as np

from acme.echo.model import echo
from keras_transformers.convert import Arrays, Folder, Format, FoundWeights, NamedTensor, assign

_CONFIG = "config"
_VOCABULARY = "vocabulary"


def write(model: keras.Model, arguments: dict, vocabulary: list[str], file: Path) -> None:
    """Writes an Echo, the arguments of its builder and its tokenizer's vocabulary."""
    arrays = {variable.path: np.asarray(variable) for variable in model.weights}
    np.savez(file, **arrays, config=json.dumps(arguments), vocabulary=np.array(vocabulary))


def _open(folder: Folder) -> FoundWeights:
    file = folder.path
    with np.load(file) as archive:
        arrays = dict(archive)
    arguments = json.loads(str(arrays.pop(_CONFIG)))
    vocabulary = arrays.pop(_VOCABULARY).tolist()

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        named = [NamedTensor(variable.path, (variable,)) for variable in model.weights]
        return assign(named, Arrays.of(file, arrays), ignore=ignore)

    def tokenizers(lowercase: bool | None = None) -> tuple:
        from acme.echo.tokenizer import EchoTokenizer

        return (EchoTokenizer(vocabulary, lowercase=lowercase is not False),)

    return FoundWeights(
        source=file,
        base="embedding",
        trained=("embedding",),
        build=lambda **changes: echo(**arguments | changes),
        fill=fill,
        tokenizers=tokenizers,
        parts=("pooler/*",),
    )


def _recognises(folder: Folder) -> bool:
    return folder.path.name.endswith(".echo.npz")


FORMAT = Format("Echo's archives (.echo.npz)", _recognises, _open)
