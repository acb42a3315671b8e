"""Which models to serve: from the command line, or TF Serving's own model config file.

https://www.tensorflow.org/tfx/serving/serving_config describes the file, a ModelServerConfig in
protocol buffers' text format.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["ModelSettings"]

_LARGEST_VERSION = 2**63 - 1


@dataclass(frozen=True)
class VersionPolicy:
    """Which of a model's versions are served.

    Attributes:
        kind: "latest" the highest `num_versions`, "all", or "specific" those of `versions`.
        num_versions: for "latest".
        versions: for "specific".
    """

    kind: Literal["latest", "all", "specific"] = "latest"
    num_versions: int = 1
    versions: tuple[int, ...] = ()

    def choose(self, found: Sequence[int]) -> list[int]:
        """Those of the versions found that are to be served, ascending.

        >>> VersionPolicy().choose([3, 1, 2])
        [3]
        >>> VersionPolicy(kind="specific", versions=(1, 9)).choose([1, 2])
        [1]
        """
        ascending = sorted(found)
        if self.kind == "latest":
            return ascending[-self.num_versions :]
        if self.kind == "specific":
            return [version for version in ascending if version in self.versions]
        return ascending


@dataclass(frozen=True)
class ModelSettings:
    """One model to serve.

    Attributes:
        name: by which requests call it.
        base_path: the folder of its version folders.
        version_policy: which versions are served; the latest by default.
        version_labels: label -> version.
    """

    name: str
    base_path: Path
    version_policy: VersionPolicy = field(default_factory=VersionPolicy)
    version_labels: Mapping[str, int] = field(default_factory=dict)


def model_settings(text: str) -> ModelSettings:
    """The model of one argument of the command line: BASE_PATH, or NAME=BASE_PATH.

    Args:
        text: the name is the folder's where it is not given.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it is itself a version, or the name cannot stand in a request.
    """
    name, equals, path = text.partition("=")
    base = Path(path if equals and "/" not in name else text)
    if not base.is_dir():
        raise FileNotFoundError(f"{base}: no such folder; give BASE_PATH or NAME=BASE_PATH")
    if (base / "saved_model.pb").exists():
        raise ValueError(
            f"{base} is itself an export: give {base.absolute().parent}, the folder of its versions"
        )
    return _checked(ModelSettings(name if base != Path(text) else base.absolute().name, base), text)


def read_model_config(path: str | os.PathLike[str]) -> list[ModelSettings]:
    """Reads a model config file.

    Relative base paths start from the file's folder.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no ModelServerConfig, or its models do not fit.
    """
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file; check the path")
    try:
        config = text_format.Parse(
            file.read_text("utf-8"), model_server_config_pb2.ModelServerConfig()
        )
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{file}: not a ModelServerConfig in text format ({error}); see docs/serving.md"
        ) from error
    if config.WhichOneof("config") == "custom_model_config":
        raise ValueError(f"{file}: custom_model_config is not supported: use model_config_list")
    models = [_from_message(entry, file) for entry in config.model_config_list.config]
    return check_models(models, str(file))


def check_models(models: Sequence[ModelSettings], place: str) -> list[ModelSettings]:
    """The models, when there is one at least and no name stands twice.

    Raises:
        ValueError: otherwise; `place` says where they come from.
    """
    names = [model.name for model in models]
    if not names:
        raise ValueError(f"{place}: no model to serve: name one at least")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"{place}: more than one model is called {', '.join(twice)}: give them names of their "
            "own, NAME=BASE_PATH"
        )
    return list(models)


def _from_message(entry: Any, file: Path) -> ModelSettings:
    place = f"{file}: model {entry.name!r}"
    if entry.model_platform not in ("", "tensorflow"):
        raise ValueError(f"{place}: model_platform {entry.model_platform!r}: only 'tensorflow'")
    labels = dict(entry.version_labels)
    return _checked(
        ModelSettings(
            entry.name,
            file.parent / entry.base_path,
            _policy(entry.model_version_policy, place),
            labels,
        ),
        place,
    )


def _policy(message: Any, place: str) -> VersionPolicy:
    kind = message.WhichOneof("policy_choice")
    if kind is None:
        return VersionPolicy()
    if kind == "all":
        return VersionPolicy("all")
    if kind == "latest":
        number = message.latest.num_versions
        if number < 1:
            raise ValueError(f"{place}: latest num_versions {number}: give 1 or more")
        return VersionPolicy("latest", number)
    versions = tuple(message.specific.versions)
    if not versions:
        raise ValueError(f"{place}: a specific policy without versions: list one at least")
    return VersionPolicy("specific", versions=versions)


def _checked(model: ModelSettings, place: str) -> ModelSettings:
    if not model.name or set(model.name) & set("/:"):
        raise ValueError(
            f"{place}: the name {model.name!r} must have a character, and no slash or colon"
        )
    for label in model.version_labels:
        if not label or set(label) & set("/:"):
            raise ValueError(
                f"{place}: the label {label!r} must have a character, and no slash or colon"
            )
    return model


def find_versions(base_path: Path) -> dict[int, Path]:
    """The version folders under a base path: number -> folder.

    As TF Serving, a name with leading zeros counts.
    """
    if not base_path.is_dir():
        return {}
    found: dict[int, Path] = {}
    for child in sorted(base_path.iterdir()):
        if child.name.isascii() and child.name.isdecimal() and len(child.name) < 20:
            number = int(child.name)
            if number <= _LARGEST_VERSION and child.is_dir():
                found.setdefault(number, child)
    return found
