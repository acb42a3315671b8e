"""A recipe's help: each option once, under the class that declares it, with its range."""

import dataclasses
import runpy
import sys
import types
from pathlib import Path

import pytest

from keras_transformers import runs
from keras_transformers.ranges import PositiveInt, Share
from keras_transformers.runs.sections import parse

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path for path in (ROOT / "recipes").rglob("*.py") if path.stem != "quickstart")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """Where the data is."""

    data: Path  # a folder
    share: Share | None = None  # of the data


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Files, runs.Training):
    """Trains a toy."""

    # how wide it is
    width: PositiveInt = 4
    sizes: tuple[tuple[PositiveInt, PositiveInt], ...] = ((1, 2),)
    epochs: PositiveInt = 7  # fewer than usual


def sections(config, capsys):
    """The help: title of a section -> its text."""
    with pytest.raises(SystemExit, match="0"):
        parse(config, ["--help"])
    found, title = {}, None
    for line in map(str.split, capsys.readouterr().out.splitlines()):
        words = [word for word in line if word.strip("╭╮╰╯│─-")]
        if words[-1:] == ["options"] and len(words) <= 2:
            title = words[0]
            found[title] = ""
        elif title:
            found[title] += f" {' '.join(words)}"
    return found


def test_an_option_is_in_the_section_of_its_class(capsys):
    found = sections(Config, capsys)
    assert list(found) == [
        "options",
        *("own", "Files"),
        *("runs.Training", "runs.Options", "runs.Scaling", "runs.Logging"),
    ]
    assert "--width INT how wide it is (1 or more; default: 4)" in found["own"]
    assert "fewer than usual (1 or more; default: 7)" in found["own"]
    assert "--epochs" not in found["runs.Training"]
    assert "--data PATH a folder (required)" in found["Files"]
    assert "of the data (0 to 1; default: None)" in found["Files"]
    assert "share of all updates (0 to 1; default: 0.1)" in found["runs.Training"]
    assert "--accumulate INT batches per update" in found["runs.Scaling"]
    assert "(1 or more; default: 100)" in found["runs.Logging"]


def test_what_is_parsed_is_the_configuration():
    words = ["--data", "here", "--sizes", "3", "4", "5", "6", "--batch-size", "8", "--quiet"]
    assert parse(Config, words) == Config(
        data=Path("here"), sizes=((3, 4), (5, 6)), batch_size=8, quiet=True
    )


@pytest.mark.parametrize("words", [[], ["--data", "here", "--no-such-option"]])
def test_words_that_fit_no_configuration(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        parse(Config, words)
    said = capsys.readouterr().err
    assert ("--no-such-option" if words else "--data") in said


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_shows_its_own_options_first(recipe, capsys, monkeypatch):
    module = types.ModuleType("recipe")  # as __main__ is while a recipe runs
    monkeypatch.setitem(sys.modules, "recipe", module)
    module.__dict__.update(runpy.run_path(str(recipe), run_name="recipe"))
    found = sections(module.Config, capsys)
    assert list(found)[1] == "own"
    for field in dataclasses.fields(module.Config):
        option = f"--{field.name.replace('_', '-')}"
        places = [title for title, text in found.items() if f" {option} " in text.replace(",", " ")]
        is_own = field.name in module.Config.__annotations__
        assert (places[:1] == ["own"]) == is_own, option
        assert places
