"""Runs a recipe from its command line, and reports user errors in one line."""

import importlib.util
import logging
import signal
import sys
from collections.abc import Callable
from typing import Any, cast

import tensorflow as tf

from keras_transformers.dependencies import graph_errors
from keras_transformers.files import one_line
from keras_transformers.files.errors import no_room
from keras_transformers.runs import grid, guardrails
from keras_transformers.runs.fine_tuning import Tuning
from keras_transformers.runs.guardrails import NonFiniteLossError
from keras_transformers.runs.options import Options
from keras_transformers.runs.resume.snapshots import CheckpointError
from keras_transformers.runs.run import NoBestEpochError, Run
from keras_transformers.runs.sections import parse
from keras_transformers.runs.spelling import as_options
from keras_transformers.runs.weights_files import WeightsFileError
from keras_transformers.runs.workers import leave_together

__all__ = ["check_installed", "command_line", "execute"]

Main = Callable[[Any, Run], dict[str, Any]]


class DamagedDataError(OSError):
    """A file that is read during training is damaged."""


def command_line(main: Main, config_class: type[Options]) -> None:
    """Parses the command line, and calls a recipe's `main` with its configuration and its run.

    Prints what this package logs. A NaN loss, a run without a best epoch, a damaged file of weights
    or of data, a batch that does not fit into memory or a full disk ends the program with one line
    and status 1; Ctrl-C with status 130.

    Args:
        main: takes the configuration and a `Run`, and returns the run's metrics.
        config_class: a dataclass that inherits from `Options`.
    """
    logger = logging.getLogger("keras_transformers")
    logger.setLevel(logging.INFO)
    logger.handlers = [_Printer()]
    config = parse(config_class)
    try:
        execute(main, config)
        leave_together()
    except (
        NonFiniteLossError,
        NoBestEpochError,
        CheckpointError,
        WeightsFileError,
        DamagedDataError,
    ) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        raise SystemExit(1) from error
    except KeyboardInterrupt:
        print("error: interrupted; run the same command with --resume", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None
    except Exception as error:
        if reason := no_room(error):
            line = graph_errors.sentence(str(error)).partition("\n")[0]
            place = getattr(error, "filename", None) or line
            message = f"{place}: {reason}; free some space, and run the same command with --resume"
        elif guardrails.is_out_of_memory(error):
            message = _memory_message(error, config)
        else:
            raise
        print(f"error: {message}", file=sys.stderr)
        raise SystemExit(1) from error


def execute(main: Main, config: Options) -> dict[str, Any]:
    """Runs a recipe, or one run per point of its grid, and returns its metrics.

    Before training starts, a ValueError, an OSError or a missing package is for the user to fix. It
    ends the program with one line and status 2, and the run's name is free again. Later it is a
    bug, and keeps its traceback.

    Raises:
        DamagedDataError: a file of data is damaged.
    """
    if getattr(config, "grid", False):
        return grid.run_grid(lambda point: execute(main, point), cast(Tuning, config))
    run = None
    try:
        run = Run(config)
        with run.tracked():
            return main(config.fitted(), run)
    except (ValueError, OSError, ImportError) as error:
        if run is not None:
            if run.is_prepared:
                raise
            run.abandon()
        print(f"error: {as_options(one_line(error), vars(config))}", file=sys.stderr)
        raise SystemExit(2) from error
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        if run is not None and (damage := run.damage()):
            raise DamagedDataError(f"{damage}, then run the same command with --resume") from error
        raise


def check_installed(*packages: str, extra: str) -> None:
    """Checks at the start for packages that a run would otherwise miss only after an epoch.

    Raises:
        ImportError: a package is not installed; the message names its extra.
    """
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(
            f"not installed: {', '.join(missing)}. Run: pip install 'keras-transformers[{extra}]'"
        )


def _memory_message(error: Exception, config: Options) -> str:
    """Returns a remedy in terms of this recipe's options."""
    by_tokens = hasattr(config, "batch_tokens")
    return guardrails.out_of_memory_message(
        error,
        batch_size=getattr(config, "batch_tokens" if by_tokens else "batch_size", None),
        unit="tokens" if by_tokens else "examples",
        option="--batch-tokens" if by_tokens else "--batch-size",
        accumulate=getattr(config, "accumulate", None),
    )


class _Printer(logging.Handler):
    """Prints to the current standard output."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), flush=True)
