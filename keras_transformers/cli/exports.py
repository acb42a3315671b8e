"""Commands that show, check, publish and configure exports."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from keras_transformers.cli.arguments import (
    Command,
    ExportPath,
    OptionalCount,
    OptionalFile,
    OptionalText,
    Rows,
    Texts,
    argument,
)
from keras_transformers.ranges import NonNegativeInt, PositiveInt

if TYPE_CHECKING:
    from keras_transformers.saved_model.publishing import Publication

_EXPORT = "a version folder, or a folder of versions, for the newest one"
_BASE = "the model's folder of versions, TF Serving's model_base_path"
_BasePath = Annotated[Positional[str], argument("BASE_PATH", _BASE)]
_CONFIG = "TF Serving's model config file, which holds labels (models.config beside BASE_PATH)"
_Config = Annotated[OptionalFile, arg(help=_CONFIG)]


@dataclass(frozen=True, kw_only=True)
class Show(Command):
    """Show an export's model, signatures and origin.

    Examples:
        keras-transformers show saved_models/translate_de_en
        keras-transformers show saved_models/translate_de_en/1 --json
    """

    path: ExportPath
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints the description."""
        from keras_transformers.saved_model import description

        fields = description.describe(self.path)
        _print(fields, description.lines(fields), self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class Card(Command):
    """Write the model card of an export or a saved pipeline, as README.md in its folder.

    Examples:
        keras-transformers card saved_models/sentiment --data SST-2 --licence apache-2.0
        keras-transformers card saved_models/sentiment --score "accuracy on dev=0.886" --overwrite
    """

    path: Annotated[Positional[str], argument("PATH", f"{_EXPORT}; or a saved pipeline")]
    data: OptionalText = None  # what it was trained on
    data_licence: OptionalText = None  # the licence of that data
    licence: OptionalText = None  # the licence of the weights, such as apache-2.0
    limits: OptionalText = None  # uses that it is not meant or tested for
    language: Texts = ()  # ISO 639 codes of the languages that it reads or writes
    command: OptionalText = None  # the command that trained and scored it
    score: Texts = ()  # NAME=VALUE, where the name says which data was used
    overwrite: bool = False  # replace an existing card

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
            overwrite=self.overwrite,
        )
        print(written)
        return 0


def _print(value: Any, lines: Iterable[str], as_json: bool) -> None:
    """Prints the result, as JSON or as text."""
    print(json.dumps(value, indent=1) if as_json else "\n".join(lines))


def _score(text: str) -> tuple[str, float]:
    """Returns name and value of NAME=VALUE."""
    name, _, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        name = ""
    if not name:
        raise ValueError(f"--score {text!r}: pass NAME=VALUE, such as 'F1 on CoNLL testa=0.9'")
    return name, number


@dataclass(frozen=True, kw_only=True)
class Check(Command):
    """Check whether TF Serving can serve an export.

    Examples:
        keras-transformers check saved_models/translate_de_en
        keras-transformers check saved_models/translate_de_en/1 --max-batch-size 32 --json
    """

    path: ExportPath
    max_batch_size: PositiveInt = 8  # largest batch to try
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints the findings; fails if TF Serving could not serve the export."""
        from keras_transformers.saved_model.checks import audit

        report = audit.audit(self.path, max_batch_size=self.max_batch_size)
        _print(report.as_json(), report.lines(), self.json)
        return 0 if report.passed else 1


@dataclass(frozen=True, kw_only=True)
class Publish(Command):
    """Publish exports to the folders that TF Serving watches.

    Examples:
        keras-transformers publish runs/film/1 models/sentiment
        keras-transformers publish runs/film/2 models/sentiment --label stable --warm-up 1 8
        keras-transformers publish --plan release.toml
    """

    export: Annotated[
        Positional[str | None], argument("[EXPORT]", _EXPORT), arg(constructor=str)
    ] = None
    base_path: Annotated[
        Positional[str | None],
        argument("[BASE_PATH]", f"{_BASE}; BASE_PATH/7 publishes version 7"),
        arg(constructor=str),
    ] = None
    plan: Annotated[
        OptionalFile, arg(help="TOML file of several exports, published together or not at all")
    ] = None
    label: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(metavar="LABEL", help="label for the version, such as stable or canary"),
    ] = ()
    config: _Config = None
    server_path: OptionalText = None  # BASE_PATH as the server sees it, such as in a container
    keep: OptionalCount = None  # then keep only this many of the newest versions
    warm_up: Rows = ()  # add warm-up requests with batches of this many rows
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints the new version and the removed ones."""
        from keras_transformers.saved_model import publishing

        if self.keep is not None:
            publishing.check_keep(self.keep)
        publications, config = self._publications()
        versions = publishing.publish_all(publications, config=config, again=self.plan is not None)
        for version in () if self.json else versions:
            print(f"{version}: published")
        removed = []
        if self.keep is not None:
            for base in dict.fromkeys(version.parent for version in versions):
                removed += publishing.prune(base, keep=self.keep, config=config)
        if self.json:
            published = str(versions[0]) if self.plan is None else list(map(str, versions))
            result = {"published": published, "removed": list(map(str, removed))}
            print(json.dumps(result, indent=1))
        for path in () if self.json else removed:
            print(f"{path}: removed")
        return 0

    def _publications(self) -> "tuple[list[Publication], Any]":
        """Returns what to publish, and the config file."""
        from keras_transformers.saved_model.publishing import Publication, read_plan

        if self.plan is None:
            if self.export is None or self.base_path is None:
                raise ValueError("nothing to publish: pass EXPORT and BASE_PATH, or --plan FILE")
            one = Publication(
                self.export, self.base_path, self.label, self.server_path, self.warm_up
            )
            return [one], self.config
        if self.export or self.label or self.server_path or self.warm_up:
            raise ValueError(
                f"--plan {self.plan} says what to publish: leave out EXPORT, BASE_PATH, --label, "
                "--server-path and --warm-up"
            )
        publications, config = read_plan(self.plan)
        return publications, self.config or config


@dataclass(frozen=True, kw_only=True)
class Rollback(Command):
    """Serve the previous version again.

    Examples:
        keras-transformers rollback models/sentiment
        keras-transformers rollback models/sentiment --label canary --json
    """

    base_path: _BasePath
    label: OptionalText = None  # withdraw the version with this label, not the newest
    config: _Config = None
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints the withdrawn version and the one that replaces it."""
        from keras_transformers.saved_model import publishing

        withdrawn, served = publishing.rollback(
            self.base_path, label=self.label, config=self.config
        )
        result = {"withdrawn": str(withdrawn), "served": str(served)}
        _print(result, [f"{withdrawn}: withdrawn; {served} is served instead"], self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class WarmUp(Command):
    """Add warm-up requests to an export.

    Examples:
        keras-transformers warm-up models/sentiment
        keras-transformers warm-up models/sentiment/3 --batch-sizes 1 8 32
    """

    path: ExportPath
    batch_sizes: Annotated[
        tuple[PositiveInt, ...], arg(metavar="ROWS [ROWS ...]", help="rows of each request")
    ] = (1,)
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints the number of requests written."""
        from keras_transformers.saved_model import warm_up

        file, count = warm_up.add_warm_up(self.path, batch_sizes=self.batch_sizes)
        _print({"file": str(file), "requests": count}, [f"{file}: {count} requests"], self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class ServingConfig(Command):
    """Write TF Serving's configuration files.

    Examples:
        keras-transformers serving-config config/ models/sentiment --server-root /models
        keras-transformers serving-config config/ models/sentiment --batch-sizes 1 8 32 --monitoring
    """

    output: Annotated[Positional[str], argument("OUTPUT")]  # the folder to write them into
    base_paths: Annotated[
        Positional[tuple[str, ...]],
        argument("BASE_PATH [BASE_PATH ...]", f"{_BASE}; one or more"),
    ]
    server_root: OptionalText = None  # the folder of the BASE_PATHs as the server sees it
    batch_sizes: Rows = ()  # batch requests, padded to these numbers of rows
    batch_timeout_micros: NonNegativeInt = 2000  # how long a batch waits for more requests
    num_batch_threads: PositiveInt = 2  # batches to run in parallel
    monitoring: bool = False  # turn on Prometheus metrics
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints each file and the flags that name it."""
        from keras_transformers.saved_model.serving_config import write_serving_config

        if not self.base_paths:
            raise ValueError("no model to serve: pass at least one BASE_PATH")
        written = write_serving_config(
            self.base_paths,
            self.output,
            server_root=self.server_root,
            batch_sizes=self.batch_sizes,
            batch_timeout_micros=self.batch_timeout_micros,
            num_batch_threads=self.num_batch_threads,
            monitoring=self.monitoring,
        )
        flags = [{"file": str(file), "flag": flag} for file, flag in written]
        lines = [f"{file}: tensorflow_model_server {flag}" for file, flag in written]
        _print(flags, lines, self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class Verify(Command):
    """Compare exports with their manifest.json.

    Examples:
        keras-transformers verify saved_models
        keras-transformers verify saved_models --json
    """

    folder: Annotated[
        Positional[str], argument("FOLDER", "a folder with manifest.json, such as saved_models")
    ]
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints the differences; fails if there are any."""
        from keras_transformers.saved_model import manifest

        entries = manifest.read(os.path.join(self.folder, manifest.MANIFEST))
        wrong = manifest.verify(self.folder)
        lines = [
            "\n".join(problems) or f"{name}: {len(entries[name]['files'])} files as published"
            for name, problems in wrong.items()
        ]
        _print(wrong, lines, self.json)
        return 1 if any(wrong.values()) else 0
