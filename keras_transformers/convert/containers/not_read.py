"""Recognizes files of weights that cannot be read here, and says what to do about each."""

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NotRead"]

POINTER = "a pointer of Git LFS instead of weights"
_SOURCE = "get the model.safetensors or pytorch_model.bin that it was made from"
_TRAINING = ("training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth")


@dataclass(frozen=True)
class NotRead:
    """Files of a kind that cannot be read.

    Attributes:
        contents: the kind of file, such as "ONNX".
        files: their names, relative to the folder.
        remedy: what to do instead.
    """

    contents: str
    files: tuple[str, ...]
    remedy: str

    def __str__(self) -> str:
        names = ", ".join(self.files[:3]) + (" and others" if len(self.files) > 3 else "")
        return f"{self.contents} ({names}): {self.remedy}"


@dataclass(frozen=True)
class _Kind:
    contents: str
    names: tuple[str, ...]  # wildcards, in a folder
    remedy: str
    starts: tuple[bytes, ...] = (b"",)


# A file has the first kind that matches.
_KINDS = (
    _Kind(
        POINTER,
        ("*.safetensors", "*.bin", "*.h5", "*.onnx", "*.gguf", "*.msgpack"),
        "fetch the file itself, with `git lfs pull`",
        (b"version https://git-lfs",),
    ),
    _Kind("ONNX", ("*.onnx", "onnx/*.onnx"), f"the package onnxruntime runs it; here, {_SOURCE}"),
    _Kind(
        "several files of GGUF",
        ("*.gguf",),
        "pass the path of the one to load",
        (b"GGUF",),
    ),
    _Kind(
        "Flax",
        ("*.msgpack",),
        "get the model.safetensors or pytorch_model.bin of the same model; if there is none, "
        "make it with transformers 4: from_pretrained(folder, from_flax=True), save_pretrained",
    ),
    _Kind("Rust's tch", ("rust_model.ot",), _SOURCE),
    _Kind("Core ML", ("*.mlmodel", "*.mlpackage", "coreml/*"), _SOURCE),
    _Kind("OpenVINO", ("openvino_model*.xml", "openvino/*.xml"), _SOURCE),
    _Kind("TensorFlow Lite", ("*.tflite",), _SOURCE),
    _Kind("TensorFlow.js", ("group*-shard*.bin",), _SOURCE),
    _Kind(
        "an adapter of peft",
        ("adapter_model.safetensors", "adapter_model.bin"),
        "load its model and pass this folder as adapter=..., or merge it into its model with "
        "peft's merge_and_unload, and save that",
    ),
    _Kind(
        "the state of a training run",
        _TRAINING,
        "it has no weights: pass the folder with model.safetensors",
    ),
    _Kind(
        "a file of fastText",
        ("*.bin", "*.ftz"),
        "pass the file itself",
        ((793712314).to_bytes(4, "little"),),
    ),
    _Kind(
        "word vectors as text",
        ("*.vec",),
        "they are not a model: read them with gensim, or the .bin beside them with fasttext",
    ),
    _Kind(
        "a PyTorch file of another name",
        ("*.bin", "*.pt", "*.pth", "*.ckpt"),
        "if it is a state_dict, rename it to pytorch_model.bin and add the model's config.json",
        (b"PK\x03\x04", b"\x80"),
    ),
    _Kind(
        "safetensors of another name",
        ("*.safetensors",),
        "rename it to model.safetensors and add the model's config.json",
    ),
    _Kind(
        "a Keras model",
        ("*.keras",),
        "read it with keras.models.load_model, after `import keras_transformers.models`",
    ),
    _Kind(
        "a pickle",
        ("*.pkl", "*.pickle", "*.joblib"),
        "pickles can run code, so they are not opened",
    ),
    _Kind(
        "a SavedModel",
        ("saved_model.pb",),
        "it cannot be trained further: query it with keras_transformers.saved_model.Predictor, "
        "or load the pipeline that it came from",
    ),
)


def not_read_in(path: Path) -> list[NotRead]:
    """Returns the files in a folder, or the file, of a known kind that cannot be read."""
    if path.is_file():
        kind = next((kind for kind in _KINDS if _fits(path, kind)), None)
        return [] if kind is None else [NotRead(kind.contents, (path.name,), kind.remedy)]
    entries: list[NotRead] = []
    seen: set[Path] = set()
    for kind in _KINDS:
        files = [file for file in _named(path, kind) if file not in seen and _starts(file, kind)]
        seen.update(files)
        if files:
            names = tuple(file.relative_to(path).as_posix() for file in files)
            entries.append(NotRead(kind.contents, names, kind.remedy))
    return entries


def _named(folder: Path, kind: _Kind) -> Iterator[Path]:
    for name in kind.names:
        yield from sorted(folder.glob(name))


def _fits(file: Path, kind: _Kind) -> bool:
    named = any(fnmatch.fnmatchcase(file.name, name) for name in kind.names)
    return named and _starts(file, kind)


def _starts(path: Path, kind: _Kind) -> bool:
    if kind.starts == (b"",):
        return True
    if not path.is_file():
        return False
    with path.open("rb") as opened:
        return opened.read(max(map(len, kind.starts))).startswith(kind.starts)
