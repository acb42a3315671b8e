"""Reads and writes TF Serving's model config file: the models, versions and labels to serve.

The file is a text proto, `tensorflow.serving.ModelServerConfig`, that TF Serving polls with
`--model_config_file FILE --model_config_file_poll_wait_seconds 60`. Writing keeps the entries of
other models but loses comments.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from keras_transformers.dependencies.untyped import Message
from keras_transformers.files import replaced
from keras_transformers.saved_model.versions import versions


@dataclass(frozen=True)
class VersionPolicy:
    """Which of a model's versions are served.

    Attributes:
        kind: "latest" for the highest `num_versions`, "all", or "specific" for `versions`.
        num_versions: for "latest".
        versions: for "specific".
    """

    kind: Literal["latest", "all", "specific"] = "latest"
    num_versions: int = 1
    versions: tuple[int, ...] = ()

    @classmethod
    def of(cls, entry: Message) -> "VersionPolicy":
        """Returns a ModelConfig's policy; as in TF Serving, `latest` means at least one version."""
        policy = entry.model_version_policy
        kind = policy.WhichOneof("policy_choice")
        if kind == "specific":
            return cls("specific", versions=tuple(policy.specific.versions))
        if kind == "all":
            return cls("all")
        return cls(num_versions=max(1, policy.latest.num_versions))

    def choose(self, numbers: Sequence[int]) -> list[int]:
        """Returns the versions to serve among those found, ascending.

        >>> VersionPolicy().choose([3, 1, 2])
        [3]
        >>> VersionPolicy(kind="specific", versions=(1, 9)).choose([1, 2])
        [1]
        """
        ascending = sorted(numbers)
        if self.kind == "latest":
            return ascending[-self.num_versions :]
        if self.kind == "specific":
            return [version for version in ascending if version in self.versions]
        return ascending


def check_names(name: str, labels: Iterable[str], place: str) -> None:
    """Checks that a model's name and labels can be used in requests, as parts of REST addresses.

    Raises:
        ValueError: they cannot; the message starts with `place`, where they come from.
    """
    for kind, text in [("name", name), *(("label", label) for label in labels)]:
        if not text or set(text) & set("/:"):
            raise ValueError(
                f"{place}: the {kind} {text!r} must not be empty or contain a slash or a colon"
            )
        if not _is_utf8(text):  # such as a byte of the command line that no request can hold
            raise ValueError(f"{place}: the {kind} {text!r} must be UTF-8")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class ModelsConfig:
    """Reads, changes and writes the file.

    Args:
        path: the file, which need not exist.

    Raises:
        ValueError: the file is not a model config, it has a `custom_model_config`, or a request
            could not use the name or a label of a model in it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._proto = _messages().ModelServerConfig()
        if self.path.exists() and not self.path.is_file():
            raise ValueError(f"{self.path} is not a file: name TF Serving's model config file")
        if self.path.is_file():
            from google.protobuf import text_format

            try:
                text_format.Parse(self.path.read_text("utf-8"), self._proto)
            except (text_format.ParseError, UnicodeDecodeError) as error:
                raise ValueError(
                    f"{self.path}: not a TF Serving model config ({error}); fix it or name another"
                ) from error
        if self._proto.HasField("custom_model_config"):
            raise ValueError(f"{self.path}: a custom_model_config, which only its owner can change")
        for entry in self.entries:
            check_names(entry.name, entry.version_labels, f"{self.path}: model {entry.name!r}")

    @property
    def entries(self) -> Sequence[Message]:
        """The ModelConfig of each model, in the order of the file."""
        return self._proto.model_config_list.config

    def entry(self, base: Path) -> Message | None:
        """Returns the ModelConfig of the model named after the folder `base`; None if missing."""
        return next((entry for entry in self.entries if entry.name == base.name), None)

    def add(self, base: Path, server_path: str | None = None) -> Message:
        """Returns the ModelConfig of a model, or a new one.

        Args:
            base: the model's folder of versions.
            server_path: `base` as TF Serving sees it; by default the path in the file, or `base`.

        Raises:
            ValueError: a request could not use the folder's name.
        """
        check_names(base.name, (), str(base))
        if server_path and not _is_utf8(server_path):
            raise ValueError(f"{base}: the server's path {server_path!r} must be UTF-8")
        entry = self.entry(base)
        if entry is None:
            entry = self._proto.model_config_list.config.add(name=base.name)
            entry.model_platform = "tensorflow"
            entry.base_path = str(base)
        if server_path:
            entry.base_path = server_path
        return entry

    def labels(self, base: Path) -> dict[str, int]:
        """Returns label -> version; empty for a model that is not in the file."""
        entry = self.entry(base)
        return dict(entry.version_labels) if entry is not None else {}

    def served(self, base: Path) -> set[int]:
        """Returns the versions that TF Serving serves with this file: by default the newest."""
        entry = self.entry(base)
        policy = VersionPolicy() if entry is None else VersionPolicy.of(entry)
        return set(policy.choose(versions(base)))

    def set_labels(
        self, base: Path, labels: Mapping[str, int], *, server_path: str | None = None
    ) -> None:
        """Sets the versions of a model to serve, and their labels.

        Args:
            base: the model's folder of versions.
            labels: label -> version.
            server_path: see `add`.

        Raises:
            ValueError: a request could not use the folder's name or a label.
        """
        check_names(base.name, labels, str(base))
        entry = self.add(base, server_path)
        entry.version_labels.clear()
        entry.version_labels.update(labels)
        entry.model_version_policy.Clear()
        entry.model_version_policy.specific.versions.extend(sorted(set(labels.values())))

    def text(self) -> str:
        """Returns the text that `write` writes."""
        from google.protobuf import text_format

        return text_format.MessageToString(self._proto)

    def write(self) -> None:
        """Replaces the file; readers see all of the old one or all of the new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(self.path) as scratch:
            scratch.write_text(self.text(), "utf-8")


def _messages() -> Any:
    try:
        from tensorflow_serving.config import model_server_config_pb2
    except ImportError as error:
        raise ValueError(
            "labels and model config files need the messages of TF Serving: "
            "pip install keras-transformers[serving]"
        ) from error
    return model_server_config_pb2
