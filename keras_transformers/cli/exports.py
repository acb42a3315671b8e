"""Commands that show, check, publish and configure exports."""

import json
import os
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from keras_transformers.cli.arguments import (
    ExportPath,
    OptionalFile,
    OptionalNumber,
    OptionalText,
    Rows,
    Texts,
    argument,
)

_EXPORT = "a version folder, or a folder of versions, for the newest one"
_BASE = "the model's folder of versions, TF Serving's model_base_path"
_BasePath = Annotated[Positional[str], argument("BASE_PATH", _BASE)]
_CONFIG = "TF Serving's model config file, which holds labels (models.config beside BASE_PATH)"
_Config = Annotated[OptionalFile, arg(help=_CONFIG)]


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show an export's model, signatures and origin."""

    path: ExportPath
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints the description."""
        from keras_transformers.saved_model import description

        found = description.describe(self.path)
        print(json.dumps(found, indent=1) if self.json else "\n".join(description.lines(found)))
        return 0


@dataclass(frozen=True, kw_only=True)
class Card:
    """Write the model card of an export or of a saved pipeline, README.md in its folder."""

    path: Annotated[Positional[str], argument("PATH", f"{_EXPORT}; or a saved pipeline")]
    data: OptionalText = None  # what it was trained on
    data_licence: OptionalText = None  # the licence of these data
    licence: OptionalText = None  # the licence of the weights, such as apache-2.0
    limits: OptionalText = None  # what it is not for, and what it was not tested for
    language: Texts = ()  # ISO 639 code of a language that it reads or writes
    command: OptionalText = None  # what trained and scored it
    score: Texts = ()  # NAME=VALUE, where the name says which data were used
    force: bool = False  # replace the card that is there

    def run(self) -> int:
        """Prints the card's path."""
        from keras_transformers.saved_model.card import write_card

        written = write_card(
            self.path,
            data=self.data,
            data_licence=self.data_licence,
            licence=self.licence,
            limits=self.limits,
            languages=self.language,
            command=self.command,
            scores=dict(map(_score, self.score)),
            overwrite=self.force,
        )
        print(written)
        return 0


def _score(given: str) -> tuple[str, float]:
    """Returns name and value of NAME=VALUE."""
    name, _, value = given.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        name = ""
    if not name:
        raise ValueError(f"--score {given!r}: give NAME=VALUE, such as 'F1 on CoNLL testa=0.9'")
    return name, number


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check whether TF Serving takes an export."""

    path: ExportPath
    max_batch_size: int = 8  # most rows to try
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints the findings; fails if TF Serving would not take the export."""
        from keras_transformers.saved_model.checks import audit

        found = audit.audit(self.path, max_batch_size=self.max_batch_size)
        print(json.dumps(found.as_json(), indent=1) if self.json else "\n".join(found.lines()))
        return 0 if found.passed else 1


@dataclass(frozen=True, kw_only=True)
class Publish:
    """Put an export where TF Serving looks for it."""

    export: ExportPath
    base_path: Annotated[_BasePath, arg(help=f"{_BASE}; BASE_PATH/7 asks for that version")]
    label: OptionalText = None  # label for the version, such as stable or canary
    config: _Config = None
    server_path: OptionalText = None  # BASE_PATH as the server sees it, in a container
    keep: OptionalNumber = None  # afterwards remove all but this many newest versions
    warm_up: Rows = ()  # add warm-up requests with batches of this many rows

    def run(self) -> int:
        """Prints the new version and the removed ones."""
        from keras_transformers.saved_model import publishing

        if self.keep is not None:
            publishing.check_keep(self.keep)
        version = publishing.publish(
            self.export,
            self.base_path,
            label=self.label,
            config=self.config,
            server_path=self.server_path,
            warm_up=self.warm_up,
        )
        print(f"{version}: published")
        if self.keep is not None:
            for removed in publishing.prune(version.parent, keep=self.keep, config=self.config):
                print(f"{removed}: removed")
        return 0


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """Serve the previous version again."""

    base_path: _BasePath
    label: OptionalText = None  # withdraw the version with this label instead of the newest
    config: _Config = None

    def run(self) -> int:
        """Prints the withdrawn version and the one that replaces it."""
        from keras_transformers.saved_model import publishing

        withdrawn, served = publishing.rollback(
            self.base_path, label=self.label, config=self.config
        )
        print(f"{withdrawn}: withdrawn; {served} is served instead")
        return 0


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """Add warm-up requests to an export."""

    path: ExportPath
    batch_sizes: Annotated[tuple[int, ...], arg(metavar="ROWS [ROWS ...]")] = (
        1,
    )  # rows per request

    def run(self) -> int:
        """Prints the number of requests written."""
        from keras_transformers.saved_model import warm_up

        file, count = warm_up.add_warm_up(self.path, batch_sizes=self.batch_sizes)
        print(f"{file}: {count} requests")
        return 0


@dataclass(frozen=True, kw_only=True)
class ServingConfig:
    """Write TF Serving's configuration files."""

    output: Annotated[Positional[str], argument("OUTPUT")]  # the folder to write them into
    base_paths: Annotated[
        Positional[tuple[str, ...]],
        argument("BASE_PATH [BASE_PATH ...]", f"{_BASE}; one or more"),
    ]
    server_root: OptionalText = None  # the folder of the BASE_PATHs as the server sees it
    batch_sizes: Rows = ()  # batch requests, padded to these numbers of rows
    batch_timeout_micros: int = 2000  # how long a batch waits for more requests
    num_batch_threads: int = 2  # batches to run in parallel
    monitoring: bool = False  # turn on Prometheus metrics

    def run(self) -> int:
        """Prints each file and the flags that name it."""
        from keras_transformers.saved_model.serving_config import write_serving_config

        if not self.base_paths:
            raise ValueError("no model to serve: give at least one BASE_PATH")
        for file, flag in write_serving_config(
            self.base_paths,
            self.output,
            server_root=self.server_root,
            batch_sizes=self.batch_sizes,
            batch_timeout_micros=self.batch_timeout_micros,
            num_batch_threads=self.num_batch_threads,
            monitoring=self.monitoring,
        ):
            print(f"{file}: tensorflow_model_server {flag}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Compare exports with their manifest.json."""

    folder: Annotated[
        Positional[str], argument("FOLDER", "a folder with manifest.json, such as saved_models")
    ]

    def run(self) -> int:
        """Prints the differences; fails if there are any."""
        from keras_transformers.saved_model import manifest

        entries = manifest.read(os.path.join(self.folder, manifest.MANIFEST))
        wrong = manifest.verify(self.folder)
        for name, problems in wrong.items():
            print(
                "\n".join(problems) or f"{name}: {len(entries[name]['files'])} files as published"
            )
        return 1 if any(wrong.values()) else 0
