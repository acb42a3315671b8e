"""The command that runs a recipe: `train`."""

import ast
import difflib
import os
import sys
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Fixed, Positional, Suppress

from keras_transformers.cli.arguments import Command, argument

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Run a recipe; without a name, list the recipes.

    Examples:
        keras-transformers train
        keras-transformers train classification --help
        keras-transformers train classification --train-file train.tsv --weights minilm/
    """

    recipe: Annotated[Positional[str], argument("[RECIPE [OPTIONS]]", "its name and options")] = ""
    options: Annotated[tuple[str, ...], Fixed, Suppress] = ()  # the recipe's, which it reads itself

    def run(self) -> int:
        """Runs the recipe's script as the main program."""
        scripts = recipes()
        if not self.recipe:
            width = max(map(len, scripts))
            for name, script in scripts.items():
                print(f"{name:<{width}}  {_purpose(script)}")
            return 0
        if self.recipe not in scripts:
            near = difflib.get_close_matches(self.recipe, scripts, n=3) or list(scripts)[:3]
            raise ValueError(
                f"recipe {self.recipe!r} does not exist; did you mean {', '.join(near)}? "
                "`keras-transformers train` lists all of them"
            )
        if self.debug:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0")
        try:
            _run(scripts[self.recipe], f"keras-transformers train {self.recipe}", self.options)
        except BrokenPipeError:
            raise
        except Exception:  # after hours, perhaps: show all there is, as the script does
            traceback.print_exc()
            return 1
        return 0


def recipes() -> dict[str, Path]:
    """Returns the recipes' names and scripts: those in the package or, in a checkout, beside it."""
    folder = _PACKAGE / "recipes"
    if not folder.is_dir():
        folder = _PACKAGE.parent / "recipes"
    return {script.stem: script for script in sorted(folder.rglob("*.py"), key=lambda s: s.stem)}


def _purpose(script: Path) -> str:
    """Returns the first line of a script's docstring."""
    return (ast.get_docstring(ast.parse(script.read_bytes())) or "").partition("\n")[0]


def _run(script: Path, program: str, options: Sequence[str]) -> None:
    """Runs a script as the main program, under the name that its help shows."""
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    sys.modules["__main__"] = main
    sys.argv = [program, *options]
    exec(compile(script.read_bytes(), script, "exec"), vars(main))
