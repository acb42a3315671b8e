"""The entry point: one parser for all commands."""

import os
import sys
from collections.abc import Sequence

import tyro

from keras_transformers.cli.data import MakePretrainingData
from keras_transformers.cli.exports import (
    Check,
    Publish,
    Rollback,
    ServingConfig,
    Show,
    Verify,
    WarmUp,
)
from keras_transformers.cli.models import List, Summary
from keras_transformers.cli.predictions import Predict, Translate
from keras_transformers.cli.serving import Ask, Serve
from keras_transformers.cli.weights import Average
from keras_transformers.extras import MissingExtraError

# A command's name is its class's, with hyphens: WarmUp is `warm-up`.
Command = (
    List
    | Summary
    | Predict
    | Translate
    | Show
    | Check
    | Publish
    | Rollback
    | WarmUp
    | ServingConfig
    | Verify
    | Serve
    | Ask
    | Average
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
        The exit status: 0 for success, 1 for a failed check, 2 for wrong input (stderr says why).
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    command = parse(arguments)
    try:
        return command.run()
    except BrokenPipeError:  # the reader of our output, such as `head`, has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, MissingExtraError) as error:
        print(f"keras-transformers: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
