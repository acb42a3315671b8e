"""Serving SavedModels: a client for TF Serving, and a local server that speaks its protocol.

`Client` asks TF Serving, or the local server, by REST or gRPC. `keras-transformers serve` is the
local server, for development and small use; TF Serving is the production server. All of it needs
the extra `serving` and works on SavedModels alone: no model of ours is ever imported here.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_transformers.serving.batching import BatchingOptions
    from keras_transformers.serving.client import Client
    from keras_transformers.serving.engine import Limits
    from keras_transformers.serving.errors import Code, RequestError
    from keras_transformers.serving.model_config import ModelSettings
    from keras_transformers.serving.server import Server, Tls

# Where the public names are. Looked up when first used: most of the modules import TensorFlow.
_MODULES = {
    "BatchingOptions": "batching",
    "Client": "client",
    "Code": "errors",
    "Limits": "engine",
    "ModelSettings": "model_config",
    "RequestError": "errors",
    "Server": "server",
    "Tls": "server",
}
__all__ = [
    "BatchingOptions",
    "Client",
    "Code",
    "Limits",
    "ModelSettings",
    "RequestError",
    "Server",
    "Tls",
]
_OURS = "keras_transformers"


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or _OURS).startswith(_OURS):
            raise
        raise ModuleNotFoundError(
            f"{name} needs {error.name}: pip install 'keras-transformers[serving]'", name=error.name
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
