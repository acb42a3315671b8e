"""What the registry knows of a named model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import keras


@dataclass(frozen=True)
class ModelCard:
    """A named model: how to build it, its exact size, and where it comes from.

    Attributes:
        name: what `create_model` takes, "bert_base".
        factory: builds it; all its arguments are keyword-only and have defaults.
        num_parameters: exact count with the factory's defaults; tied weights count once.
        paper: where the model was described.
        paper_figure: the parameter count printed there, "110M"; empty when it prints none.
        paper_note: why the exact count and the printed figure differ; empty when they agree.
        symbols: letter of a formula -> value with the factory's defaults, {"V": 30522, "H": 768}.
        count: the exact count by arithmetic, without building; takes `vocabulary_size` and has the
            factory's defaults.
    """

    name: str
    factory: Callable[..., keras.Model]
    num_parameters: int
    paper: str
    paper_figure: str = ""
    paper_note: str = ""
    symbols: Mapping[str, int] = field(default_factory=dict)
    count: Callable[..., int] | None = None
