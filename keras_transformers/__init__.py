"""From raw text to a model served by TF Serving, with every number on the way verified.

`bert_base()` and the other factories, `list_models`, `create_model`, `load`, `fit`, `evaluate`,
`explain`, `predict`, `save`, `export` and `register` are here. Everything else is in a room:
`layers`, `models`, `families`, `tasks` and what these show as `heads`, `pipelines` and `results`;
`tokenizers`, `decoding`, `convert`, `data`, `training`, `evaluation`, `runs`, `fitting`,
`saved_model`, `serving`, `inspection`, `jobs`, `files` and `callbacks`. Names are looked up on
first use, so importing this package is fast and does not load TensorFlow if Keras uses another
backend.
"""

import importlib
import importlib.util
from typing import Any

from keras_transformers.collector import paused_collector as _paused_collector

__version__ = "1.0.0"
__all__ = [
    "__version__",
    "create_model",
    "evaluate",
    "explain",
    "export",
    "fit",
    "list_models",
    "load",
    "predict",
    "register",
    "save",
]

_ROOMS = (
    "callbacks",
    "convert",
    "data",
    "decoding",
    "evaluation",
    "explorer",
    "families",
    "files",
    "fitting",
    "heads",
    "inspection",
    "jobs",
    "layers",
    "models",
    "pipelines",
    "results",
    "runs",
    "saved_model",
    "serving",
    "tasks",
    "tokenizers",
    "training",
)
# Public name -> the module that defines it.
_NAMES = {
    "create_model": "models.registry",
    "evaluate": "fitting.evaluate",
    "explain": "inspection.explanations",
    "export": "saved_model.exporting",
    "fit": "fitting.fit",
    "list_models": "models.registry",
    "load": "tasks.weights.loading",
    "predict": "fitting.predict",
    "register": "registry",
    "save": "tasks.weights.writing",
}


def __getattr__(name: str) -> Any:
    if importlib.util.find_spec(f"{__name__}.{name}"):  # a room, or a module beside the rooms
        return _imported(name)
    if name in _NAMES:
        return getattr(_imported(_NAMES[name]), name)
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    registry = _imported("models.registry")
    if name in registry.all_entries():
        return registry.entry(name).factory
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; `list_models()` names the factories"
    )


def __dir__() -> list[str]:
    registry = _imported("models.registry")
    return sorted([*__all__, *_ROOMS, *_NAMES, *registry.all_entries()])


def _imported(name: str) -> Any:
    with _paused_collector():
        return importlib.import_module(f"{__name__}.{name}")
