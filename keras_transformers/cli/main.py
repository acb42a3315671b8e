"""The entry point: one parser for all commands."""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence

import tyro

from keras_transformers.cli.arguments import check_numbers
from keras_transformers.cli.data import MakePretrainingData
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
from keras_transformers.cli.models import List, Plot, Summary
from keras_transformers.cli.predictions import Predict, Translate
from keras_transformers.cli.serving import Ask, Serve
from keras_transformers.cli.weights import Average, Convert
from keras_transformers.extras import MissingExtraError
from keras_transformers.files import one_line

# A command's name is its class's, with hyphens: WarmUp is `warm-up`.
Command = (
    List
    | Summary
    | Plot
    | Predict
    | Translate
    | Show
    | Card
    | Check
    | Publish
    | Rollback
    | WarmUp
    | ServingConfig
    | Verify
    | Serve
    | Ask
    | Average
    | Convert
    | MakePretrainingData
)


def parse(arguments: Sequence[str] | None = None) -> Command:
    """Parses the command line.

    Args:
        arguments: the words after the program's name; those of `sys.argv` by default.

    Raises:
        SystemExit: with status 2 if the arguments fit no command, 0 after `--help`.
    """
    return tyro.cli(
        Command,
        prog="keras-transformers",
        description="Models, exports and serving; `COMMAND --help` describes a command.",
        args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: See `parse`.

    Returns:
        The exit status: 0 for success, 1 for a failed check, 2 for wrong input (stderr says why),
        130 after Ctrl-C.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        try:
            command = parse(arguments)
            check_numbers(command)
            status = command.run()
        except SystemExit:  # after `--help`
            _flush()
            raise
        _flush()
        return status
    except BrokenPipeError:  # the reader of our output, such as `head`, has left
        _drop_output()
        return 0
    except KeyboardInterrupt:
        _complain("interrupted")
        return 128 + signal.SIGINT
    except (ValueError, OSError, MissingExtraError) as error:
        _complain(one_line(error))
        return 2


def _flush() -> None:
    """Writes what was printed now, when an error can still be told in one line."""
    try:
        if sys.stdout is not None:  # it is closed
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_output()
        raise OSError(f"standard output: {one_line(error)}") from error


def _drop_output() -> None:
    """Keeps Python from writing the rest, and failing again, when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str) -> None:
    with contextlib.suppress(OSError):  # the status says it too
        print(f"keras-transformers: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
