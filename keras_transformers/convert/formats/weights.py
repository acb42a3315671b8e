"""Finds out what a folder or file of weights holds, before any weight is read.

A module in this folder registers its format by defining `FORMAT`; no list names it.
"""

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from keras_transformers import registry
from keras_transformers.convert.containers.not_read import NotRead, not_read_in
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats import hub
from keras_transformers.models.anatomy import anatomy
from keras_transformers.models.entry import skeleton

__all__ = ["Contents", "Format", "FoundWeights", "TrainedModel", "find_weights", "look"]

_logger = logging.getLogger(__name__)


MOST_LABELS = 1_000_000  # a damaged count must not exhaust memory with names
_MOST_FILES = 100  # in a folder around a file of weights; one of data may have millions


@dataclass(frozen=True)
class Head:
    """Describes the head of a model in a folder in Hugging Face's layout.

    The tasks decide which of them it serves; see `tasks.Task`.

    Attributes:
        folder: the folder.
        file: the path of config.json.
        config: its contents.
        name: the class that wrote the weights, such as "BertForMultipleChoice"; "" if unknown.
        tasks: the family's own classes: suffix of a name -> the tasks that it serves.
        shapes: name -> shape of all tensors.
        labels: returns the names of the head's classes, in the order of the logits.
        written: the task and the pipeline's options, if this package wrote the folder.
    """

    folder: Folder
    file: Path
    config: Mapping[str, Any]
    name: str
    tasks: Mapping[str, tuple[str, ...]]
    shapes: Mapping[str, tuple[int, ...]]
    labels: Callable[[], list[str]]
    written: tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class FoundWeights:
    """The contents of a folder or file of weights in another library's format.

    Attributes:
        source: the folder or file, for error messages.
        base: the task that the model serves without a head: "embedding" for encoders of texts.
        trained: the pipelines' tasks that its heads were trained for, the main one first. Empty if
            it has no head, if no pipeline uses its head, or if `head` determines the tasks.
        head: what the files say about the head, if that determines the tasks.
        undecided: why `pipeline=` is required, and its possible values, for the error message; ""
            if the first of `trained` is the main task.
        build: makes the model without heads, with random weights; takes changes to its builder's
            arguments, such as `dropout`.
        with_head: adds the trained head to that model, if it is not the task's usual one.
        fill: takes a model with any head, and `ignore`, wildcards of tensors to leave out; fills
            the model, or fails and lists what does not fit. Returns the names left out.
        tokenizers: makes the pipeline's tokenizers, for the texts and, if it differs, for the
            answers; none for images. Takes whether to lower-case if no file decides; by default,
            the words of the vocabulary decide.
        heads: the heads in words, for error messages, such as "BertForMultipleChoice".
        parts: wildcards of the tensors outside the encoder's layers: its pooler and all heads.
        has_pooler: whether there are weights for the encoder's pooler.
        options: keyword arguments of the pipeline of each trained task, such as the labels.
        max_sequence_length: maximum tokens in a text, if the files set a limit.
        masked_lm: the options of `heads.masked_lm`.
        serves: the tasks that the model can serve, if not all those of `base`.
        as_encoder: opens weights of a model that writes texts as those of an encoder for heads on
            whole texts; None if its family has no such heads.
    """

    source: Path
    base: str
    trained: tuple[str, ...]
    build: Callable[..., keras.Model]
    fill: Callable[[keras.Model, Iterable[str]], list[str]]
    tokenizers: Callable[..., tuple[Any, ...]]
    head: Head | None = None
    with_head: Callable[[keras.Model], keras.Model] | None = None
    undecided: str = ""
    heads: str = ""
    parts: tuple[str, ...] = ()
    has_pooler: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    max_sequence_length: int | None = None
    masked_lm: Mapping[str, Any] = field(default_factory=dict)
    serves: tuple[str, ...] | None = None
    as_encoder: "Callable[[], FoundWeights] | None" = None


@dataclass(frozen=True)
class TrainedModel:
    """A model with its tokenizers and options: the parts of a pipeline that formats save.

    Attributes:
        task: the pipelines' task that it is trained for.
        model: the model with its head.
        tokenizers: the tokenizers, by the names of the pipeline's arguments; empty for images.
        options: the pipeline's keyword arguments, as JSON values, including the labels.
        max_sequence_length: maximum tokens in a text; None for images.
        class_end: the suffix of transformers' classes for the task; "" if a family has one class
            for it.
        fields: the fields of config.json that the task's options need.
    """

    task: str
    model: keras.Model
    tokenizers: Mapping[str, Any]
    options: Mapping[str, Any]
    max_sequence_length: int | None = None
    class_end: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Format:
    """A format of weights.

    Attributes:
        contents: the contents of such a folder or file, for error messages.
        recognises: returns whether a folder is in this format; it may look at names and small
            files. The folder may be a single file, or a checkpoint's prefix, which is not a file.
        open: reads the configuration in a folder. FileNotFoundError if a file is missing,
            ValueError if one is damaged or needs something that the models lack.
        save: writes an embedder's encoder that is saved in this format instead of Hugging Face's
            layout, and returns True; writes nothing and returns False for others. The options are
            those of `heads.embedder` and the pipeline's. None if there are no such encoders.
    """

    contents: str
    recognises: Callable[[Folder], bool]
    open: Callable[[Folder], FoundWeights]
    save: Callable[[TrainedModel, Path], bool] | None = None

    def registered_as(self) -> Iterator[tuple[str, Any]]:
        """Yields (constant, value) for all that registering it registers."""
        yield "FORMAT", self


@dataclass(frozen=True)
class Contents:
    """The contents of a folder or file of weights; as a string, in words.

    Attributes:
        folder: the folder or file, opened.
        format: its format; None if unknown.
        weights: the files of weights that can be read, starting with the one to use. Empty if the
            format has its own.
        not_read: files that cannot be read.
    """

    folder: Folder
    format: Format | None
    weights: tuple[Path, ...]
    not_read: tuple[NotRead, ...]

    @property
    def source(self) -> Path:
        """The path of the folder or file."""
        return self.folder.path

    def __str__(self) -> str:
        contents = self.format.contents if self.format else "no known format"
        said = [f"{self.source}: {contents}"]
        if self.weights:
            taken, *others = map(_file_name, self.weights)
            why = f", which comes before {' and '.join(others)}" if others else ""
            said.append(f"the weights are {taken}{why}")
        said += [f"not read: {files}" for files in self.not_read]
        return "; ".join(said)


def look(path: str | os.PathLike[str]) -> Contents:
    """Finds out what a folder or file holds, and what `load` uses of it; reads no weights.

    Args:
        path: the folder, file, or prefix of a checkpoint. A folder without weights in a format of
            its own stands for the only file in it that is in one.

    Raises:
        FileNotFoundError: the path does not exist.

    Example:
        print(kt.convert.look("bert-base-uncased/"))
    """
    folder, of_folder = _resolved(Folder.at(path))
    if of_folder is None and not folder.path.exists():
        raise FileNotFoundError(
            f"{folder} does not exist: pass a folder of weights, or "
            f"{hub.PREFIX}organization/name for a model of the Hugging Face Hub"
        )
    weights = dict.fromkeys(file for _, file in folder.containers)
    taken = {file.name for file in weights}
    others = [other for other in not_read_in(folder.path) if not taken & set(other.files)]
    return Contents(folder, of_folder, tuple(weights), tuple(others))


def _file_name(file: Path) -> str:
    return file.name if file.is_file() else "a checkpoint"


def find_weights(path: str | os.PathLike[str]) -> FoundWeights:
    """Finds out what a folder or file of weights holds; reads no weights yet.

    Args:
        path: the folder, a file or a checkpoint's prefix; or "hf://organization/name@commit", see
            `convert.fetch`.

    Raises:
        FileNotFoundError: the path, or a file of the format, does not exist.
        ValueError: the format is unknown, or a file is damaged.
    """
    contents = look(local(path))
    if contents.format is not None:
        _logger.info("%s", contents)
    return _open(contents)


def _open(contents: Contents) -> FoundWeights:
    if contents.format is None:
        raise ValueError(why_not_weights(contents.folder))
    return contents.folder.once(contents.format.open, contents.folder)


def num_positions(path: str | os.PathLike[str]) -> int | None:
    """Returns the most tokens that a model of weights takes; None if nothing limits them.

    Raises:
        FileNotFoundError: the path, or a file of the format, does not exist.
        ValueError: the format is unknown, or a file is damaged.
    """
    folder = local(path)
    return anatomy(skeleton(lambda: _open(look(folder)).build())).max_sequence_length


def why_not_weights(path: str | os.PathLike[str]) -> str:
    """Returns why a file or folder holds no weights in a known format, and the remedy.

    Raises:
        FileNotFoundError: the path does not exist.
        ValueError: a file is damaged.
    """
    folder = Folder.at(path)
    contents, path = look(folder), folder.path
    has = "; ".join(map(str, contents.not_read))
    if path.is_file():
        kinds = not_read_in(path)
        has = "; ".join(map(str, kinds))
        if contents.weights and all("of another name" in kind.contents for kind in kinds):
            has = f"part of a folder, with a config.json: pass {path.parent}"
        return f"{path} is {has or 'a file of unknown format'}"
    if contents.weights and not has:
        _ = folder.arrays  # raises an error for a damaged file
        names = ", ".join(map(_file_name, contents.weights))
        has = (
            f"{names}, but no config.json, which says what the weights are: copy the model's own "
            "into the folder"
        )
    if several := [file.path.name for file in _files_alone(path)]:
        names = " and ".join(several[:5])
        has += f"{'; ' if has else ''}several files of weights: pass one of {names}"
    inside = [
        child.name
        for child in sorted(path.iterdir())
        if child.is_dir() and has_weights(child) and not (path / "saved_model.pb").is_file()
    ]
    if inside:
        has += f"{'; ' if has else ''}folders with weights: pass {' or '.join(inside[:5])}"
    if has:  # with its own remedy
        return f"{path} has {has}. It holds no weights in a known format"
    wanted = "; ".join(format.contents for format in all_formats())
    return f"{path} holds no weights in a known format; expected one of {wanted}"


def local(path: str | os.PathLike[str]) -> Folder:
    """Returns the folder at a path, fetched if it is a model of the Hub."""
    address = _on_hub(path)
    return Folder.at(hub.fetch(address) if address else path)


def has_weights(path: str | os.PathLike[str]) -> bool:
    """Returns whether a folder or file holds weights in a known format, or is on the Hub."""
    return bool(_on_hub(path)) or _resolved(Folder.at(path))[1] is not None


def _resolved(folder: Folder) -> tuple[Folder, Format | None]:
    """Returns what to open, a folder or the only file in it, and its format."""
    of_folder = _format_of(folder)
    if not folder.path.is_dir() or (of_folder is not None and folder.containers):
        return folder, of_folder
    files = _files_alone(folder.path)
    if len(files) != 1 or (of_file := _format_of(files[0])) is None:
        return folder, of_folder
    # A file may be only a part of a folder with a configuration.
    is_whole = of_folder is None or _opens(of_file, files[0])
    return (files[0], of_file) if is_whole else (folder, of_folder)


def _format_of(folder: Folder) -> Format | None:
    return next((kind for kind in all_formats() if kind.recognises(folder)), None)


def _files_alone(path: Path) -> list[Folder]:
    """Returns the files in a folder that a format recognises by themselves.

    Of several, only those that it can open, if there are any: any HDF5 file may be one.
    """
    if not path.is_dir():
        return []
    paths = list(itertools.islice(path.iterdir(), _MOST_FILES + 1))
    if len(paths) > _MOST_FILES:
        return []
    files = [Folder(file) for file in sorted(paths) if file.is_file()]
    formats = {file: of_file for file in files if (of_file := _format_of(file)) is not None}
    if len(formats) < 2:
        return list(formats)
    return [file for file, of_file in formats.items() if _opens(of_file, file)] or list(formats)


def _opens(format: Format, file: Folder) -> bool:
    try:
        file.once(format.open, file)
    except (ImportError, OSError, ValueError):
        return False
    return True


def _on_hub(path: str | os.PathLike[str]) -> str:
    """Returns a model's address on the Hub, even if `Path` removed one of its slashes; or ""."""
    start, _, rest = os.fspath(path).partition(":/")
    return f"{hub.PREFIX}{rest.lstrip('/')}" if f"{start}://" == hub.PREFIX else ""


def all_formats() -> tuple[Format, ...]:
    """Returns every registered format, ours last: some take any file of a kind, such as `.npz`."""
    return (*registry.additions("FORMAT"), *registry.own("FORMAT"))
