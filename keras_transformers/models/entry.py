"""Defines registry entries, and makes the factories of named models."""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import keras

from keras_transformers.dependencies.private_api import without_values

__all__ = ["Entry", "named_factory"]


@dataclass(frozen=True)
class Entry:
    """A named model: how to build it, its exact size, and where it comes from.

    Attributes:
        name: the name to pass to `create_model`, such as "bert_base".
        factory: builds the model; every argument is keyword-only and has a default.
        num_parameters: exact count with the factory's defaults; tied weights count once.
        paper: the paper that describes the model, and its address.
        paper_figure: the paper's parameter count, such as "110M"; empty if it gives none.
        paper_note: why the exact count and the paper's figure differ; empty if they agree.
        symbols: symbols and their values with the factory's defaults, such as
            {"V": 30522, "H": 768}.
        count: computes the exact count without building the model. Its arguments are the sizes that
            change the count, such as `vocabulary_size`, with the factory's defaults.
    """

    name: str
    factory: Callable[..., keras.Model]
    num_parameters: int
    paper: str
    paper_figure: str = ""
    paper_note: str = ""
    symbols: Mapping[str, int] = field(default_factory=dict)
    count: Callable[..., int] | None = None

    def registered_as(self) -> Iterator[tuple[str, Any]]:
        """Yields (constant, value) for all that registering it registers."""
        yield "MODELS", self

    def check(self) -> None:
        """Raises ValueError unless the count is what the formula, or else the model, gives."""
        if self.count is not None:
            number, said = self.count(), "its formula"
        else:
            number, said = skeleton(self.factory).count_params(), "its model"
        if number != self.num_parameters:
            raise ValueError(
                f"num_parameters={self.num_parameters:,}, but {said} has {number:,}: find the "
                "matrix or bias that one of them forgets"
            )

    @property
    def family(self) -> str:
        """The family's name, which is its folder's: "bert"."""
        return self.factory.__module__.split(".")[-2:][0]


def skeleton(build: Callable[[], keras.Model]) -> keras.Model:
    """Builds a model only to look at it: its weights have no values.

    It draws no random numbers: layers take seeds from Python's `random`, and a run's weights must
    not depend on whether somebody looked.
    """
    state = random.getstate()
    try:
        with without_values():
            return build()
    finally:
        random.setstate(state)


def named_factory(
    builder: Callable[..., keras.Model],
    name: str,
    defaults: Mapping[str, Any],
    *,
    summary: str,
    parts: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
) -> Callable[..., keras.Model]:
    """Makes the factory of one size: `builder` with that size as its defaults.

    The factory has an explicit signature, so that a misspelled argument fails at the call and
    `help` shows every argument with its default.

    Args:
        builder: a family's builder; all its arguments are keyword-only.
        name: name of the factory, and default name of its models.
        defaults: the size, as values for some of the arguments.
        summary: first line of the factory's docstring; the builder's arguments follow.
        parts: arguments of the builder that are parts of the model -> the function that makes each.
            The factory takes the arguments of these functions instead; arguments with the same name
            are merged.

    Raises:
        TypeError: `defaults` omits a required argument or has an unknown one.
    """
    values = {**defaults, "name": name}
    of_builder = inspect.signature(builder).parameters
    of_parts = {part: inspect.signature(make).parameters for part, make in parts.items()}
    by_name = {key: parameter for key, parameter in of_builder.items() if key not in parts}
    for of_part in of_parts.values():
        by_name = {**of_part, **by_name}
    ordered = [
        *(k for k in of_builder if k in by_name),
        *(k for k in by_name if k not in of_builder),
    ]
    parameters = [
        by_name[key].replace(default=values.get(key, by_name[key].default)) for key in ordered
    ]
    signature = inspect.signature(builder).replace(parameters=parameters)
    signature.bind_partial(**values)
    missing = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    if missing:
        raise TypeError(f"{name}: no default for {', '.join(missing)} of {builder.__name__}")

    def factory(**arguments: Any) -> keras.Model:
        try:
            bound = signature.bind(**arguments)
        except TypeError as error:
            raise TypeError(
                f"{name}() {error}; it takes {', '.join(signature.parameters)}"
            ) from None
        bound.apply_defaults()
        values = bound.arguments
        objects = {
            part: make(**{key: values[key] for key in of_parts[part]})
            for part, make in parts.items()
        }
        return builder(**{key: values[key] for key in of_builder if key not in parts}, **objects)

    factory.__name__ = factory.__qualname__ = name
    factory.__module__ = builder.__module__
    factory.__signature__ = signature  # type: ignore[attr-defined]
    details = (inspect.getdoc(builder) or "").partition("\n\n")[2].partition("\n\nExample:")[0]
    factory.__doc__ = f"{summary}\n\n{details}"
    return factory
