"""Opens GGUF files, llama.cpp's, of the families that say how."""

from pathlib import Path

from keras_transformers.convert.containers.arrays import Arrays, Container
from keras_transformers.convert.containers.gguf import Gguf, GgufMap, find_gguf
from keras_transformers.convert.families import families
from keras_transformers.convert.family import Family
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import Format, FoundWeights

__all__: list[str] = []


def open_gguf(folder: Folder) -> FoundWeights:
    """Opens a model that llama.cpp converted, at any precision.

    Quantized weights are converted to float32.

    Args:
        folder: the file, or a folder with only this GGUF file.

    Raises:
        ValueError: the file is damaged, or has an unsupported family or tokenizer.
    """
    file = find_gguf(folder.path)
    assert file is not None
    opened = Gguf.open(file)
    family, gguf = _family_of(opened)
    weights: FoundWeights = gguf.open(opened, opened.arrays(gguf), family)
    return weights


def _open_arrays(file: Path) -> Arrays:
    opened = Gguf.open(file)
    _, gguf = _family_of(opened)
    return opened.arrays(gguf)


def _family_of(opened: Gguf) -> tuple[Family, GgufMap]:
    """Returns the family of a file; ValueError if none reads it."""
    readers = {
        family.gguf.architecture or family.model_type: (family, family.gguf)
        for family in families()
        if family.gguf is not None
    }
    if opened.architecture not in readers:
        raise ValueError(
            f"{opened.file}: architecture {opened.architecture!r:.100} is not supported in GGUF; "
            f"expected one of {', '.join(sorted(readers))}: get the model.safetensors that it was "
            "made from, or run it with llama.cpp"
        )
    return readers[opened.architecture]


def _recognises(folder: Folder) -> bool:
    alone = folder.path.is_file() or not (folder.directory / "config.json").is_file()
    return alone and find_gguf(folder.path) is not None


CONTAINER = Container("GGUF", 9, find_gguf, _open_arrays)
FORMAT = Format("GGUF, llama.cpp's files", _recognises, open_gguf)
