"""The numbers an option may have: how a range reads, what it holds; and each option has one."""

import dataclasses
import math
import runpy
import typing
from pathlib import Path
from typing import Annotated, Literal

import pytest

from keras_transformers import ranges, runs
from keras_transformers.cli.main import COMMANDS
from keras_transformers.data.pretraining import PretrainingOptions
from keras_transformers.ranges import PositiveInt, Range, Rate

RECIPES = sorted((Path(__file__).parents[1] / "recipes").rglob("*.py"))
CONFIGS = {path.stem: runpy.run_path(str(path)).get("Config") for path in RECIPES}
CONFIGS = {name: config for name, config in CONFIGS.items() if config}


@pytest.mark.parametrize(
    ("allowed", "words", "inside", "outside"),
    [
        (Range(at_least=1), "1 or more", [1, 10**9], [0, -3, math.nan, math.inf]),
        (Range(above=0), "above 0", [1e-9], [0, math.nan, math.inf]),
        (Range(at_most=3), "3 or less", [3, -7], [4, -math.inf]),
        (Range(below=3), "below 3", [2.9], [3]),
        (Range(at_least=0, at_most=1), "0 to 1", [0, 1], [-0.1, 1.1]),
        (Range(at_least=0, below=1), "0 to below 1", [0, 0.9], [1]),
        (Range(above=0, below=1), "above 0 and below 1", [0.5], [0, 1]),
        (Range(), "a finite number", [-3, 10.5], [math.nan, math.inf]),
    ],
)
def test_a_range(allowed, words, inside, outside):
    assert str(allowed) == words
    assert all(number in allowed for number in inside)
    assert not any(number in allowed for number in outside)


def fit(
    *,
    epochs: PositiveInt = 3,
    rates: tuple[tuple[Rate, Rate], ...] = (),
    batch_size: PositiveInt | None = None,
    column: ranges.AnyInt | str = 0,
    choice: Literal[1, 3] = 3,
    label: str = "",
):
    """Options of every kind."""


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs=0: must be 1 or more"),
        ({"rates": ((0.0, 1.0),)}, "rates=((0.0, 1.0),): must be 0 to below 1"),
        ({"rates": ((math.nan, 0.0),)}, "rates=((nan, 0.0),): must be 0 to below 1, and finite"),
        ({"label": "a", "batch_size": -1}, "batch_size=-1: must be 1 or more"),
        ({"column": math.inf}, "column=inf: must be a finite number"),
    ],
)
def test_a_number_out_of_its_range_is_named(values, message):
    with pytest.raises(ValueError, match="must be") as caught:
        ranges.check_ranges(fit, values)
    assert str(caught.value).removesuffix(", and finite") == message.removesuffix(", and finite")


def test_numbers_within_and_values_that_are_no_numbers_pass():
    ranges.check_ranges(
        fit,
        {"epochs": 1, "rates": ((0, 0.5),), "batch_size": None, "column": "x", "choice": 1},
    )


def test_an_option_as_on_the_command_line():
    assert ranges.as_option("batch_size", 0) == "--batch-size 0"
    assert ranges.as_option("labels", ("a", "b")) == "--labels a b"


def without_range(owner):
    """The options that take numbers and say nothing about which."""
    hints = typing.get_type_hints(owner, include_extras=True)
    return [
        name for name, hint in hints.items() if name != "return" and _is_open(hint, covered=False)
    ]


def _is_open(hint, *, covered):
    if hint in (int, float):
        return not covered
    if typing.get_origin(hint) in (dict, Literal, typing.ClassVar):
        return False
    if typing.get_origin(hint) is Annotated:
        inner, *notes = typing.get_args(hint)
        return _is_open(inner, covered=covered or any(isinstance(x, Range) for x in notes))
    return any(_is_open(part, covered=covered) for part in typing.get_args(hint))


def test_an_option_without_a_range_is_found():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(runs.Options):
        pairs: tuple[tuple[int, PositiveInt], ...] = ()
        threshold: float | None = None
        good: Annotated[int | None, Range(at_least=1)] = None
        more: dict[str, float] = dataclasses.field(default_factory=dict)

    assert without_range(Config) == ["pairs", "threshold"]


@pytest.mark.parametrize(
    "owner",
    [*CONFIGS.values(), *COMMANDS, PretrainingOptions],
    ids=[*CONFIGS, *(each.__name__ for each in COMMANDS), "PretrainingOptions"],
)
def test_every_number_option_has_a_range(owner):
    assert without_range(owner) == []


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_defaults_of_a_recipe_are_in_range(config):
    given = {
        field.name: "given"
        for field in dataclasses.fields(config)
        if field.default is field.default_factory is dataclasses.MISSING
    }
    if issubclass(config, runs.ModelSource):
        given["weights"] = "given"
    if "task" in given:
        given["task"] = "sst2"
    config(**given).check()
