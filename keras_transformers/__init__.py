"""keras_transformers: from raw text to a model served by TF Serving, every number verified.

Factories (`bert_base()`, ...), `list_models` and `create_model` stand here; the rooms behind them
are `layers`, `models` (and its `heads`), `tokenizers`, `data`, `training`, `decoding`, `convert`,
`export` and `inspection`. Names are looked up when first used: importing this package costs little
and, with another Keras backend, does not import TensorFlow.
"""

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_transformers.models import heads
    from keras_transformers.registry import create_model, list_models

_ROOMS = (
    "convert",
    "data",
    "decoding",
    "export",
    "inspection",
    "layers",
    "models",
    "registry",
    "tokenizers",
    "training",
)

__version__ = importlib.metadata.version("keras-transformers")
__all__ = ["__version__", "create_model", "heads", "list_models"]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "heads":
        return importlib.import_module(f"{__name__}.models.heads")
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    registry = importlib.import_module(f"{__name__}.registry")
    if name in ("create_model", "list_models"):
        return getattr(registry, name)
    if name in registry.all_cards():
        return registry.model_card(name).factory
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; `list_models()` names the factories"
    )


def __dir__() -> list[str]:
    registry = importlib.import_module(f"{__name__}.registry")
    return sorted([*__all__, *_ROOMS, *registry.all_cards()])
