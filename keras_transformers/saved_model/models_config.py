"""TF Serving's model config file: which models it serves, which versions, under which labels.

The file is a text proto, `tensorflow.serving.ModelServerConfig`, that TF Serving polls with
`--model_config_file FILE --model_config_file_poll_wait_seconds 60`. Entries that are not ours to
change are kept; comments are lost.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_transformers.files import replaced
from keras_transformers.saved_model.versions import versions


class ModelsConfig:
    """The file, to read, change and write.

    Args:
        path: of the file, which need not exist.

    Raises:
        ValueError: the file is not a model config, or it has a `custom_model_config`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._proto = _messages().ModelServerConfig()
        if self.path.is_file():
            from google.protobuf import text_format

            try:
                text_format.Parse(self.path.read_text("utf-8"), self._proto)
            except (text_format.ParseError, UnicodeDecodeError) as error:
                raise ValueError(
                    f"{self.path}: no model config of TF Serving ({error}); fix it or name another"
                ) from error
        if self._proto.HasField("custom_model_config"):
            raise ValueError(f"{self.path}: a custom_model_config, which only its owner can change")

    def entry(self, base: Path) -> Any | None:
        """The ModelConfig of the model whose folder of versions is named as `base` is."""
        for found in self._proto.model_config_list.config:
            if found.name == base.name:
                return found
        return None

    def add(self, base: Path, server_path: str | None = None) -> Any:
        """The ModelConfig of a model, a new one if it has none.

        Args:
            base: the model's folder of versions.
            server_path: `base` as TF Serving sees it; by default what the file says, or `base`.
        """
        found = self.entry(base)
        if found is None:
            found = self._proto.model_config_list.config.add(name=base.name)
            found.model_platform = "tensorflow"
            found.base_path = str(base)
        if server_path:
            found.base_path = server_path
        return found

    def labels(self, base: Path) -> dict[str, int]:
        """Label -> version; empty for a model that is not in the file."""
        found = self.entry(base)
        return dict(found.version_labels) if found is not None else {}

    def served(self, base: Path) -> set[int]:
        """The versions that TF Serving serves by this file; the newest where it does not tell."""
        existing, found = versions(base), self.entry(base)
        policy = found.model_version_policy if found is not None else None
        choice = policy.WhichOneof("policy_choice") if policy is not None else None
        if policy is None or choice is None:
            return set(existing[-1:])
        if choice == "all":
            return set(existing)
        if choice == "latest":
            return set(existing[-(policy.latest.num_versions or 1) :])
        return set(policy.specific.versions)

    def set_labels(
        self, base: Path, labels: Mapping[str, int], *, server_path: str | None = None
    ) -> None:
        """Serves these versions of a model, and no others, under these labels.

        Args:
            base: the model's folder of versions.
            labels: label -> version.
            server_path: see `add`.
        """
        found = self.add(base, server_path)
        found.version_labels.clear()
        found.version_labels.update(labels)
        found.model_version_policy.Clear()
        found.model_version_policy.specific.versions.extend(sorted(set(labels.values())))

    def text(self) -> str:
        """What `write` writes."""
        from google.protobuf import text_format

        return text_format.MessageToString(self._proto)

    def write(self) -> None:
        """Replaces the file; whoever reads it sees the old one or the new one, whole."""
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
