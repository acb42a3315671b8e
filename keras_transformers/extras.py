"""Imports optional dependencies where they are used, with an error that names the extra."""

import importlib
from typing import Any


def optional(module: str, *, extra: str) -> Any:
    """Imports a module that only an extra of this package installs.

    Args:
        module: such as "scipy.stats".
        extra: its name in setup.cfg, such as "evaluation".

    Raises:
        ModuleNotFoundError: the module is not installed.

    Example:
        >>> optional("no_such_module", extra="evaluation")
        Traceback (most recent call last):
        ModuleNotFoundError: this needs no_such_module: pip install 'keras-transformers[evaluation]'
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ModuleNotFoundError(
            f"this needs {package}: pip install 'keras-transformers[{extra}]'", name=error.name
        ) from error
