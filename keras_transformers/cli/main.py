"""The `keras-transformers` command: parses, calls, prints."""

import argparse
import dataclasses
import io
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from keras_transformers.saved_model import command_line as export_commands
from keras_transformers.serving import command_line as serving_commands

# Defaults stand in PretrainingOptions, whose import would cost each command TensorFlow's.
_PRETRAINING_OPTIONS: dict[str, tuple[type, str]] = {
    "max_sequence_length": (int, "tokens an example (128)"),
    "max_predictions": (int, "tokens to predict in an example, at most (20)"),
    "mask_probability": (float, "share of tokens to predict (0.15)"),
    "dupe_factor": (int, "times that the text is gone through (10)"),
    "short_sequence_probability": (float, "of aiming at a shorter length (0.1)"),
    "num_shards": (int, "files to write (16)"),
    "seed": (int, "of everything that is drawn (12345)"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: as typed, without the program's name; `sys.argv` by default.

    Returns:
        The exit status: 0 well, 1 a check failed, 2 wrong input (the reason is on stderr).
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    parsed = _parser().parse_args(arguments)
    try:
        return parsed.run(parsed)
    except BrokenPipeError:  # the reader of our output, `head` for one, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        print(f"keras-transformers: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="keras-transformers", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="names of the models, with their exact sizes")
    listing.add_argument("pattern", nargs="?", default="*", help="wildcard, such as 'bert_*'")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)

    summary = commands.add_parser("summary", help="a model's layers, parameters and formulas")
    summary.add_argument("name", help="one of `keras-transformers list`")
    summary.add_argument("--vocabulary-size", type=int, help="instead of the paper's")
    summary.add_argument("--heads", choices=["pretraining"], help="put these heads on top")
    summary.add_argument("--json", action="store_true", help="print JSON")
    summary.set_defaults(run=_summary)

    predict = commands.add_parser("predict", help="run an exported model on text, JSON lines out")
    predict.add_argument("path", help="a version folder, or the folder of versions")
    predict.add_argument("--text", action="append", help="repeat for more; stdin's lines if absent")
    predict.add_argument("--text-b", action="append", help="the second text of each pair")
    predict.set_defaults(run=_predict)

    translate = commands.add_parser("translate", help="run an exported translator, line by line")
    translate.add_argument("path", help="a version folder, or the folder of versions")
    translate.add_argument("file", nargs="?", help="a text a line, plain or .gz; stdin if absent")
    translate.set_defaults(run=_translate)

    average = commands.add_parser("average", help="average the weights of checkpoints")
    average.add_argument("output", help="the file to write, .weights.h5 or .keras")
    average.add_argument("checkpoints", nargs="+", help="the files to average, the newest last")
    average.set_defaults(run=_average)

    verify = commands.add_parser("verify", help="compare exports with their manifest.json")
    verify.add_argument("folder", help="the folder that holds manifest.json, such as saved_models")
    verify.set_defaults(run=_verify)

    pretraining = commands.add_parser(
        "make-pretraining-data", help="TFRecords for BERT's pretraining, from text"
    )
    pretraining.add_argument("output", help="the folder to write; a stopped run goes on there")
    pretraining.add_argument("files", nargs="+", help="text, plain or .gz, or folders of it")
    pretraining.add_argument("--vocabulary", required=True, help="file of a token a line")
    pretraining.add_argument("--cased", action="store_true", help="keep case and accents")
    pretraining.add_argument(
        "--text-format",
        choices=["lines", "prose", "wikitext"],
        default="lines",
        help="lines: a sentence a line, blank lines between documents (default); prose: a file a "
        "document, split into sentences; wikitext: WikiText's articles",
    )
    pretraining.add_argument("--num-processes", type=int, default=1, help="that work at a time")
    for name, (kind, text) in _PRETRAINING_OPTIONS.items():
        option = f"--{name.replace('_', '-')}"
        pretraining.add_argument(option, type=kind, default=argparse.SUPPRESS, help=text)
    pretraining.add_argument("--whole-words", action="store_true", help="mask whole words")
    pretraining.set_defaults(run=_make_pretraining_data)

    # These rooms' own; they import what they need when they run.
    export_commands.add_parsers(commands)
    serving_commands.add_parsers(commands)
    return parser


def _list(parsed: argparse.Namespace) -> int:
    from keras_transformers.models.registry import entry, list_models

    entries = [entry(name) for name in list_models(parsed.pattern)]
    if not entries:
        raise ValueError(f"no model's name matches {parsed.pattern!r}")
    if parsed.json:
        rows = [
            {
                "name": found.name,
                "parameters": found.num_parameters,
                "paper_figure": found.paper_figure or None,
                "paper": found.paper,
            }
            for found in entries
        ]
        print(json.dumps(rows, indent=1))
        return 0
    width = max(len(found.name) for found in entries)
    for found in entries:
        figure = found.paper_figure or "-"
        print(f"{found.name:<{width}}  {found.num_parameters:>13,}  {figure:>5}  {found.paper}")
    return 0


def _summary(parsed: argparse.Namespace) -> int:
    from keras_transformers.inspection import agrees_with_figure, parameter_table
    from keras_transformers.models import heads
    from keras_transformers.models.registry import create_model, entry

    known = entry(parsed.name)
    given = parsed.vocabulary_size is not None
    overrides = {"vocabulary_size": parsed.vocabulary_size} if given else {}
    symbols = dict(known.symbols) | ({"V": parsed.vocabulary_size} if overrides else {})
    model = create_model(parsed.name, **overrides)
    expected = known.count(**overrides) if overrides and known.count else known.num_parameters
    if parsed.heads == "pretraining":
        model = heads.pretrainer(model)
        expected += heads.pretraining_parameters(
            vocabulary_size=symbols["V"], hidden_dim=symbols["H"]
        )
    rows = parameter_table(model, symbols)
    total = sum(row.num_parameters for row in rows if "/" not in row.name)
    agrees = not known.paper_figure or agrees_with_figure(total, known.paper_figure)
    result: dict[str, Any] = {
        "name": parsed.name,
        "symbols": symbols,
        "layers": [dataclasses.asdict(row) for row in rows],
        "total": total,
        "registered": expected,
        "paper_figure": known.paper_figure or None,
        "paper_agrees": agrees,
        "paper_note": known.paper_note or None,
    }
    if parsed.json:
        print(json.dumps(result, indent=1))
    else:
        _print_summary(result)
    return 0 if total == expected == model.count_params() and (agrees or known.paper_note) else 1


def _print_summary(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    letters = ", ".join(f"{letter} = {value:,}" for letter, value in result["symbols"].items())
    table = Table(title=f"{result['name']} ({letters})", title_justify="left")
    table.add_column("layer", no_wrap=True)
    table.add_column("output shape", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("formula", no_wrap=True)
    for row in result["layers"]:
        _, _, part = row["name"].partition("/")
        shape = row["output_shape"]
        table.add_row(
            f"  {part}" if part else row["name"],
            "" if shape is None else str(tuple(shape)).replace("None", "?"),
            f"{row['num_parameters']:,}" if row["num_parameters"] else "",
            row["formula"] if row["num_parameters"] else "",
            style="dim" if part else None,
        )
    # As wide as it needs to be, also into a pipe: a cut number would be worse than a long line.
    Console(width=max(100, Console().width)).print(table)
    registered = "as registered" if result["total"] == result["registered"] else "NOT as registered"
    print(f"total {result['total']:,}: {registered} ({result['registered']:,})")
    if result["paper_figure"]:
        verdict = "agrees" if result["paper_agrees"] else "differs"
        note = f": {result['paper_note']}" if result["paper_note"] else ""
        print(f"paper's figure {result['paper_figure']}: {verdict}{note}")


def _predict(parsed: argparse.Namespace) -> int:
    from keras_transformers.export import Predictor

    if parsed.text_b and not parsed.text:
        raise ValueError("--text-b needs as many --text before it")
    if parsed.text_b and len(parsed.text_b) != len(parsed.text):
        raise ValueError(
            f"{len(parsed.text)} --text and {len(parsed.text_b)} --text-b: give one of each a pair"
        )
    predictor = Predictor(parsed.path)
    names = predictor.text_names
    for texts, texts_b in _batches(parsed):
        columns = [texts, texts_b] if texts_b else [texts]
        if len(columns) != len(names):
            raise ValueError(
                f"{predictor.path} takes {', '.join(names)}: give {len(names)} texts a row, --text "
                "and --text-b, or lines with a tab between them"
            )
        for result in predictor(dict(zip(names, columns, strict=True))):
            print(json.dumps(result, ensure_ascii=False), flush=True)
    return 0


def _translate(parsed: argparse.Namespace) -> int:
    from keras_transformers.export import Predictor
    from keras_transformers.files import read_lines

    predictor = Predictor(parsed.path)
    lines = read_lines(parsed.file) if parsed.file else _stdin_lines()
    for batch in iter(lambda: list(itertools.islice(lines, 32)), []):
        for result in predictor({"text": batch}):
            # One line in, one line out, whatever the model says.
            print(" ".join(result["translation"].splitlines()), flush=True)
    return 0


def _average(parsed: argparse.Namespace) -> int:
    from keras_transformers.training.averaging import average_checkpoints

    average_checkpoints(parsed.checkpoints, parsed.output)
    print(f"{parsed.output}: the average of {len(parsed.checkpoints)} checkpoints")
    return 0


def _verify(parsed: argparse.Namespace) -> int:
    from keras_transformers.saved_model.manifest import MANIFEST, read, verify

    entries = read(os.path.join(parsed.folder, MANIFEST))
    wrong = verify(parsed.folder)
    for name, problems in wrong.items():
        print("\n".join(problems) or f"{name}: {len(entries[name]['files'])} files as published")
    return 1 if any(wrong.values()) else 0


def _make_pretraining_data(parsed: argparse.Namespace) -> int:
    from keras_transformers.data.pretraining.batches import (
        PretrainingOptions,
        make_pretraining_data,
    )
    from keras_transformers.tokenizers import WordPieceTokenizer

    given = {name: value for name, value in vars(parsed).items() if name in _PRETRAINING_OPTIONS}
    report = make_pretraining_data(
        parsed.files,
        parsed.output,
        WordPieceTokenizer(parsed.vocabulary, lowercase=not parsed.cased),
        PretrainingOptions(whole_words=parsed.whole_words, **given),
        text_format=parsed.text_format,
        num_processes=parsed.num_processes,
    )
    print(f"{parsed.output}: {report}")
    return 0


def _batches(parsed: argparse.Namespace, size: int = 32) -> Iterator[tuple[list[str], list[str]]]:
    """The texts of the command line, or stdin's lines: `text` or `text<TAB>text_b` for pairs."""
    if parsed.text:
        yield parsed.text, parsed.text_b or []
        return
    batch: list[list[str]] = []
    for number, line in enumerate(_stdin_lines(), start=1):
        batch.append(line.split("\t"))
        if len(batch[-1]) != len(batch[0]) or len(batch[-1]) > 2:
            raise ValueError(
                f"stdin:{number}: {len(batch[-1])} fields; every line must be `text`, or every "
                "line `text<TAB>text_b`"
            )
        if len(batch) == size:
            yield _columns(batch)
            batch = []
    if batch:
        yield _columns(batch)


def _stdin_lines() -> Iterator[str]:
    """Lines without their ends; bytes that are no UTF-8 reach the model as they are."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    return (line.removesuffix("\n").removesuffix("\r") for line in sys.stdin)


def _columns(batch: list[list[str]]) -> tuple[list[str], list[str]]:
    return [row[0] for row in batch], [row[1] for row in batch if len(row) > 1]


if __name__ == "__main__":
    sys.exit(main())
