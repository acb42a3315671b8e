"""Every command that the pages show exists, and so does every option in it."""

import dataclasses
import functools
import re
import runpy
from pathlib import Path

import pytest

from keras_transformers.cli.main import COMMANDS, command_name
from keras_transformers.cli.recipes import recipes

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(
    r"(?:keras-transformers (?:train ([a-z]\w+)|([a-z][a-z-]*))|python (\w+/[\w/]+\.py))([^`|#\n]*)"
)
OF_ALL = {"help", "debug"}


def options_of(fields):
    names = [field.name.replace("_", "-") for field in fields]
    return {*OF_ALL, *names, *(f"no-{name}" for name in names)}


@functools.cache
def of_command(name):
    found = {command_name(command): command for command in COMMANDS}
    return options_of(dataclasses.fields(found[name])) if name in found else None


@functools.cache
def of_script(name):
    path = ROOT / name
    if not path.is_file():
        return None
    if not name.startswith("recipes/"):
        return OF_ALL | set(re.findall(r'"--([a-z0-9-]+)"', path.read_text("utf-8")))
    config = runpy.run_path(str(path)).get("Config")
    return options_of(dataclasses.fields(config)) if config else OF_ALL


# The recipes of the package that tests install.
OF_PLUGIN = {path.parent.name for path in (ROOT / "tests/plugin").rglob("recipe.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_exist(page):
    text = page.read_text("utf-8").replace("\\\n", " ")
    for recipe, command, script, rest in COMMAND.findall(text):
        if recipe:
            if recipe in OF_PLUGIN:
                continue
            assert recipe in recipes()
            script = recipes()[recipe].relative_to(ROOT).as_posix()
        known = of_command(command) if command else of_script(script)
        assert known is not None, command or script
        unknown = set(re.findall(r"(?<!\S)--([a-z][a-z0-9-]*)", rest)) - known
        assert not unknown, (command or script, unknown)
