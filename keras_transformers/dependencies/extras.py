"""Imports optional dependencies where they are used, with an error that names the extra."""

import contextlib
import importlib
from collections.abc import Iterator
from types import ModuleType


class MissingExtraError(ModuleNotFoundError):
    """A package from an extra of this or another package is not installed."""


def optional(module: str, *, extra: str) -> ModuleType:
    """Imports a module that only an extra of this package installs.

    Args:
        module: the module's name, such as "scipy.stats".
        extra: its name in setup.cfg, such as "evaluation".

    Raises:
        MissingExtraError: the module is not installed.

    Example:
        >>> optional("no_such_module", extra="evaluation")
        Traceback (most recent call last):
        keras_transformers.dependencies.extras.MissingExtraError: this needs no_such_module:
        pip install 'keras-transformers[evaluation]'
    """
    with needing(extra):
        return importlib.import_module(module)


@contextlib.contextmanager
def needing(extra: str) -> Iterator[None]:
    """Names the extra if an import in the block fails because a package is not installed.

    Args:
        extra: its name in setup.cfg.

    Raises:
        MissingExtraError: from the block, in place of Python's own error.
    """
    try:
        yield
    except MissingExtraError:  # it already names an extra
        raise
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "keras_transformers"):  # our own bug
            raise
        message = f"this needs {package}: pip install 'keras-transformers[{extra}]'"
        raise MissingExtraError(message, name=error.name) from None
