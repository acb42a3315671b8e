"""Counts a model's parameters layer by layer, with the formula behind each count."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import keras

from keras_transformers.dependencies.private_api import first_outputs, inner_layers, inputs_of
from keras_transformers.layers import PositionEmbedding

__all__ = ["ParameterRow", "agrees_with_figure", "parameter_table"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


@dataclass(frozen=True)
class ParameterRow:
    """Holds one line of a model's table.

    Attributes:
        name: the layer's name, or "layer/part" for a part of a layer.
        output_shape: the layer's output shape, with None for unknown sizes; None for a part.
        num_parameters: exact count; a weight shared by several layers counts only in the first.
        formula: the same number in symbols, such as "4H^2+4H".
        connected_to: the layers whose outputs it uses; () for inputs and parts.
        activation: its activation, such as "gelu"; "" for none.
    """

    name: str
    output_shape: tuple[int | None, ...] | None
    num_parameters: int
    formula: str
    connected_to: tuple[str, ...] = ()
    activation: str = ""


def parameter_table(model: keras.Model, symbols: Mapping[str, int]) -> list[ParameterRow]:
    """Lists a model's layers in order, each followed by any parts it has.

    Args:
        model: a functional model.
        symbols: letters for sizes, such as {"V": 30522, "P": 512, "H": 768, "I": 3072}. A size
            without a letter stays a number, so every formula is exact. An inner width I that is a
            multiple of the width H is written with H, so that BERT's block has 12H^2+13H.

    Returns:
        Rows; those without "/" in their name add up to `model.count_params()`.
    """
    seen: set[int] = set()
    tables = {
        id(weight)
        for layer in inner_layers(model)
        if isinstance(layer, PositionEmbedding)
        for weight in layer.weights
    }
    rows = []
    for layer in model.layers:
        variables = [v for v in layer.weights if id(v) not in seen]
        seen.update(id(v) for v in variables)
        sources = tuple(dict.fromkeys(source.name for source in inputs_of(layer)))
        row = _row(layer.name, _first_output_shape(layer), variables, symbols, tables)
        rows.append(replace(row, connected_to=sources, activation=activation_name(layer)))
        parts: dict[str, list[Any]] = {}
        for variable in variables:
            inner = variable.path.split(f"{layer.name}/", 1)[-1].split("/")
            if len(inner) > 1:
                parts.setdefault(inner[0], []).append(variable)
        inside = {inner.name: inner for inner in getattr(layer, "layers", ())}
        for part, members in parts.items():
            row = _row(f"{layer.name}/{part}", None, members, symbols, tables)
            rows.append(replace(row, activation=activation_name(inside.get(part))))
    return rows


def activation_name(layer: keras.layers.Layer | None) -> str:
    """Returns the name of a layer's activation, or "" for none."""
    activation = getattr(layer, "activation", "")
    name = activation if isinstance(activation, str) else getattr(activation, "__name__", "")
    return "" if name == "linear" else name


def _row(
    name: str,
    shape: tuple[int | None, ...] | None,
    variables: list[Any],
    symbols: Mapping[str, int],
    tables: Set[int],
) -> ParameterRow:
    count = sum(math.prod(v.shape) for v in variables)
    return ParameterRow(name, shape, count, _formula(variables, symbols, tables))


def _first_output_shape(layer: keras.layers.Layer) -> tuple[int | None, ...] | None:
    """Returns the output shape of the layer's first use; a tied embedding is used twice."""
    outputs = first_outputs(layer)
    return tuple(outputs[0].shape) if outputs else None


def _formula(variables: Iterable[Any], symbols: Mapping[str, int], tables: Set[int]) -> str:
    terms: Counter[tuple[str, ...]] = Counter()
    times = inner_multiple(symbols)
    for variable in variables:
        factor, letters = 1, []
        rows = "P" if id(variable) in tables else "V" if _is_table(variable) else ""
        for position, size in enumerate(variable.shape):
            letter = _letter(size, "" if position else rows, symbols)
            if letter == "I" and times:
                letters.append("H")
                factor *= times
            elif letter:
                letters.append(letter)
            else:
                factor *= size
        terms[tuple(sorted(letters, key=list(symbols).index))] += factor
    ordered = sorted(terms.items(), key=lambda item: -len(item[0]))
    return "+".join(_term(count, letters) for letters, count in ordered) or "0"


def inner_multiple(symbols: Mapping[str, int]) -> int:
    """Returns how many times H the inner width I is; 0 if it is no multiple or one is missing."""
    inner, width = symbols.get("I", 0), symbols.get("H", 0)
    return inner // width if width and inner % width == 0 else 0


def _is_table(variable: Any) -> bool:
    return bool(variable.path.endswith("/embeddings"))


def _letter(size: int, rows: str, symbols: Mapping[str, int]) -> str | None:
    """Returns the letter for a size; of an embedding's rows, only `rows`."""
    for letter, value in symbols.items():
        if value == size and (letter == rows if rows else letter != "P"):
            return letter
    return None


def _term(count: int, letters: tuple[str, ...]) -> str:
    """Formats a term: 3, (H, H) gives "3H^2"; 1, (V, H) gives "V*H"."""
    powers = "*".join(
        letter if power == 1 else f"{letter}^{power}" for letter, power in Counter(letters).items()
    )
    if not powers:
        return str(count)
    return powers if count == 1 else f"{count}{powers}"


def agrees_with_figure(count: int, figure: str) -> bool:
    """Returns whether an exact count rounds to a printed figure.

    Trailing zeros count as rounding: 109,482,240 agrees with "110M", 336,226,108 with "340M".

    Args:
        count: the exact number.
        figure: a printed count, such as "110M" or "1.5B".

    Raises:
        ValueError: the figure is not a number with an optional unit K, M or B.

    Example:
        >>> agrees_with_figure(109_482_240, "110M"), agrees_with_figure(109_482_240, "117M")
        (True, False)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMB]?)", figure)
    if not match:
        raise ValueError(f"figure {figure!r} must be a number with K, M or B, such as '110M'")
    digits, unit = match.groups()
    value = float(digits) * _UNITS[unit]
    decimals = len(digits.partition(".")[2])
    trailing_zeros = 0 if decimals else len(digits) - len(digits.rstrip("0"))
    precision = _UNITS[unit] * 10.0 ** (trailing_zeros - decimals)
    return abs(count - value) <= precision / 2
