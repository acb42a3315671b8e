"""`keras-transformers train` runs a recipe's script as Python would."""

import ast
import sys
from pathlib import Path

import pytest

from keras_transformers.cli import main as cli
from keras_transformers.cli import recipes

ROOT = Path(__file__).parents[2]
SCRIPTS = {path.stem: path for path in (ROOT / "recipes").rglob("*.py")}


def test_without_a_name_it_lists_every_recipe_with_its_purpose(capsys):
    assert cli.main(["train"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(SCRIPTS)
    for line in lines:
        name, purpose = line.split(maxsplit=1)
        docstring = ast.get_docstring(ast.parse(SCRIPTS[name].read_bytes()))
        assert purpose == docstring.splitlines()[0]


def test_an_unknown_name_is_answered_with_similar_ones(capsys):
    assert cli.main(["train", "clasification", "--epochs", "1"]) == 2
    said = capsys.readouterr().err
    assert "recipe 'clasification' does not exist; did you mean classification, " in said
    assert "`keras-transformers train` lists all of them" in said


def test_what_follows_the_name_is_the_recipes():
    command = cli.parse(["train", "--debug", "glue", "--debug", "predict", "--help"])
    assert (command.recipe, command.debug) == ("glue", True)
    assert command.options == ("--debug", "predict", "--help")
    assert cli.parse(["predict", "train", "--text", "glue"]).path == "train"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes a recipe's code; the process gets its main module and its arguments back."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    path = tmp_path / "script.py"
    monkeypatch.setattr(recipes, "recipes", lambda: {"script": path})
    return path


def test_the_script_is_the_main_program(script, capsys):
    script.write_text(
        "import sys\n"
        "class Config: pass\n"
        "assert sys.modules['__main__'].Config is Config\n"
        "if __name__ == '__main__': print(__file__, *sys.argv)\n"
    )
    assert cli.main(["train", "script", "--a", "b"]) == 0
    said = capsys.readouterr().out
    assert said == f"{script} keras-transformers train script --a b\n"


def test_its_status_and_its_tracebacks_are_the_scripts(script, capsys):
    script.write_text("import sys; sys.exit(75)")
    with pytest.raises(SystemExit, match="75"):
        cli.main(["train", "script"])
    script.write_text("def train():\n    return 1 / 0\ntrain()\n")
    assert cli.main(["train", "script"]) == 1
    said = capsys.readouterr().err
    assert f'"{script}", line 2, in train' in said
    assert "ZeroDivisionError" in said
