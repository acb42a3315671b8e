"""What the registry knows of a named model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
        symbols: letter of a formula -> value with the factory's defaults, such as {"H": 768}, in
            the order of preference where two are equal.
        argument_symbols: letter -> the factory's argument that overrides it.
    """

    name: str
    factory: Callable[..., keras.Model]
    num_parameters: int
    paper: str
    paper_figure: str = ""
    paper_note: str = ""
    symbols: Mapping[str, int] = field(default_factory=dict)
    argument_symbols: Mapping[str, str] = field(default_factory=dict)

    def symbols_with(self, overrides: Mapping[str, Any]) -> dict[str, int]:
        """The formula's letters, with the factory called with `overrides`."""
        values = dict(self.symbols)
        for letter, argument in self.argument_symbols.items():
            values[letter] = int(overrides.get(argument, values[letter]))
        return values
