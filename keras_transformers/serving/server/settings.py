"""Reads which models to serve from the command line or TF Serving's model config file."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keras_transformers.saved_model.models_config import ModelsConfig, VersionPolicy, check_names

__all__ = ["ModelSettings"]


@dataclass(frozen=True)
class ModelSettings:
    """One model to serve.

    Attributes:
        name: the name that requests give.
        base_path: the folder of its version folders.
        version_policy: which versions are served; the latest by default.
        version_labels: label -> version.
    """

    name: str
    base_path: Path
    version_policy: VersionPolicy = field(default_factory=VersionPolicy)
    version_labels: Mapping[str, int] = field(default_factory=dict)


def model_settings(text: str) -> ModelSettings:
    """Returns the model named by a command-line argument.

    Args:
        text: BASE_PATH or NAME=BASE_PATH; the name defaults to the folder's.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: the folder is itself a version, or a request could not use the name.
    """
    name, equals, path = text.partition("=")
    base = Path(path if equals and "/" not in name else text)
    if not base.is_dir():
        raise FileNotFoundError(f"{base}: no such folder; pass BASE_PATH or NAME=BASE_PATH")
    if (base / "saved_model.pb").exists():
        raise ValueError(
            f"{base} is itself an export: pass {base.absolute().parent}, the folder of its versions"
        )
    model = ModelSettings(name if base != Path(text) else base.absolute().name, base)
    check_names(model.name, (), text)
    return model


def read_model_config(path: str | os.PathLike[str]) -> list[ModelSettings]:
    """Reads a model config file.

    Relative base paths start at the file's folder.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a ModelServerConfig, or a model in it is invalid.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file; check the path")
    models = [_from_entry(entry, file) for entry in ModelsConfig(file).entries]
    return check_models(models, str(file))


def check_models(models: Sequence[ModelSettings], place: str) -> list[ModelSettings]:
    """Returns the models, after checking that there is at least one and that names are unique.

    Raises:
        ValueError: the check fails; the message starts with `place`, where the models come from.
    """
    names = [model.name for model in models]
    if not names:
        raise ValueError(f"{place}: no model to serve: name at least one")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"{place}: more than one model has the name {', '.join(twice)}: give them different "
            "names, NAME=BASE_PATH"
        )
    return list(models)


def _from_entry(entry: Any, file: Path) -> ModelSettings:
    place = f"{file}: model {entry.name!r}"
    if entry.model_platform not in ("", "tensorflow"):
        raise ValueError(
            f"{place}: model_platform is {entry.model_platform!r}, must be 'tensorflow'"
        )
    policy = VersionPolicy.of(entry)
    if policy == VersionPolicy("specific"):
        raise ValueError(f"{place}: a specific policy without versions: list at least one")
    base = file.parent / entry.base_path
    return ModelSettings(entry.name, base, policy, dict(entry.version_labels))
