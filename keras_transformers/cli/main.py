"""Defines the entry point: one parser for all commands."""

import contextlib
import dataclasses
import inspect
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Union

import tyro

from keras_transformers.cli.arguments import Command
from keras_transformers.cli.data import MakePretrainingData
from keras_transformers.cli.explore import Explore
from keras_transformers.cli.exports import (
    Card,
    Check,
    Publish,
    Rollback,
    ServingConfig,
    Show,
    Verify,
    WarmUp,
)
from keras_transformers.cli.gateway import Gateway
from keras_transformers.cli.measuring import Evaluate
from keras_transformers.cli.models import List, Plot, Summary
from keras_transformers.cli.predictions import Predict, Translate
from keras_transformers.cli.recipes import Train
from keras_transformers.cli.search import Search
from keras_transformers.cli.serving import Ask, Serve
from keras_transformers.cli.weights import Average, Convert
from keras_transformers.dependencies.extras import MissingExtraError
from keras_transformers.files import one_line
from keras_transformers.ranges import as_option, check_ranges
from keras_transformers.runs.spelling import as_options

PROGRAM = "keras-transformers"
# In the order of the help. A command's name is its class's, with hyphens: WarmUp is `warm-up`.
COMMANDS: tuple[type[Command], ...] = (
    List,
    Summary,
    Plot,
    Explore,
    Train,
    Predict,
    Evaluate,
    Translate,
    Search,
    Show,
    Card,
    Check,
    Publish,
    Rollback,
    WarmUp,
    ServingConfig,
    Verify,
    Serve,
    Gateway,
    Ask,
    Average,
    Convert,
    MakePretrainingData,
)
_UNEXPECTED = 3  # the status after an unexpected error


def command_name(command: type[Command]) -> str:
    """Returns the name of a command: `warm-up` for WarmUp."""
    name = command.__name__
    return "".join(f"-{char.lower()}" if char.isupper() else char for char in name).lstrip("-")


def examples(command: type[Command]) -> list[str]:
    """Returns the example command lines in a command's docstring, for its help."""
    text = (inspect.getdoc(command) or "").partition("\nExamples:\n")[2]
    return [line.strip() for line in text.splitlines() if line.strip()]


def parse(arguments: Sequence[str] | None = None) -> Command:
    """Parses the command line.

    Args:
        arguments: the words after the program's name; those of `sys.argv` by default.

    Raises:
        SystemExit: with status 2 if the arguments match no command, 0 after `--help`.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    words, of_recipe = _divide(words)
    commands = tuple(_described(command, words) for command in COMMANDS)
    any_command: Any = Union[commands]  # noqa: UP007  made from a tuple
    command: Command = tyro.cli(
        any_command,
        prog=PROGRAM,
        description="Models, exports and serving; `COMMAND --help` describes a command.",
        args=words,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    if isinstance(command, Train):
        return dataclasses.replace(command, options=of_recipe)
    return command


def _divide(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Returns our own words, and those after the name of a recipe, which are its own."""
    for index, word in enumerate(words):
        if index and words[0] == command_name(Train) and not word.startswith("-"):
            return list(words[: index + 1]), tuple(words[index + 1 :])
    return list(words), ()


def _described(command: type[Command], words: Sequence[str]) -> Any:
    """Returns the command for the parser. The list of all commands has only its purpose."""
    name, lines = command_name(command), examples(command)
    text = (inspect.getdoc(command) or "").partition("\nExamples:\n")[0].strip()
    if words[:1] == [name]:
        text += "\n\n".join(["", "\n  ".join(["Examples:", *lines])])
    else:
        text = text.partition("\n")[0]
    return Annotated[command, tyro.conf.subcommand(name, description=text)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: see `parse`. By default, TensorFlow's start-up notices are dropped too.

    Returns:
        The exit status: 0 for success, 1 for a failed check, 2 for wrong input (stderr says why),
        3 for an unexpected error, 130 after Ctrl-C. docs/command_line.md has the table.
    """
    command: Command | None = None
    debug = False
    try:
        try:
            command = parse(arguments)
            debug = command.debug
            check_ranges(type(command), vars(command), written=as_option)
            if arguments is None and not debug:
                import keras_transformers.quiet  # noqa: F401  before TensorFlow is loaded
            status = command.run()
        except SystemExit:  # after `--help`
            _flush()
            raise
        _flush()
        return status
    except BrokenPipeError:  # the reader of our output, such as `head`, has closed it
        _drop_output()
        return 0
    except KeyboardInterrupt:
        _complain("interrupted")
        return 128 + signal.SIGINT
    except Exception as error:
        if debug:
            raise
        if isinstance(error, ValueError | OSError | MissingExtraError):
            _complain(as_options(one_line(error), vars(command) if command else ()))
            return 2
        words = sys.argv[1:] if arguments is None else arguments
        _complain(
            f"unexpected {type(error).__name__}: {one_line(error)}: please report it with what "
            f"`{shlex.join([PROGRAM, *words, '--debug'])}` prints"
        )
        return _UNEXPECTED


def _flush() -> None:
    """Flushes stdout while an error can still be reported in one line."""
    try:
        if sys.stdout is not None:  # stdout is closed
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_output()
        raise OSError(f"standard output: {one_line(error)}") from error


def _drop_output() -> None:
    """Keeps Python from flushing the rest, and failing again, on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str) -> None:
    with contextlib.suppress(OSError):  # the status also says so
        print(f"keras-transformers: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
