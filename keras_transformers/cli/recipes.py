"""The command that runs a recipe: `train`."""

import ast
import difflib
import importlib.util
import logging
import os
import sys
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Fixed, Positional, Suppress

from keras_transformers import registry
from keras_transformers.cli.arguments import Command, argument

_PACKAGE = Path(__file__).parents[1]
_logger = logging.getLogger(__name__)


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
    """Returns the recipes' names and scripts: the package's own, then other packages'.

    Ours are in the package or, in a checkout, beside it. Others are entry points of the group
    "keras_transformers.recipes", whose modules are not imported.

    Raises:
        ValueError: two have one name.
    """
    folder = _PACKAGE / "recipes"
    if not folder.is_dir():
        folder = _PACKAGE.parent / "recipes"
    files = sorted(folder.rglob("*.py"), key=lambda script: script.stem)
    scripts = {script.stem: script for script in files}
    sources = dict.fromkeys(scripts, "keras_transformers")
    for point in registry.entry_points(f"{registry.GROUP}.recipes"):
        source = registry.source_of(point)
        if point.name in scripts:
            raise ValueError(
                f"recipe {point.name!r} is registered twice, by {sources[point.name]} and by "
                f"{source}: rename one, or uninstall its package"
            )
        try:
            spec = importlib.util.find_spec(point.module)
        except Exception as error:  # whatever the import of its package raises
            _logger.warning("%s is left out: it cannot be imported: %r", source, error)
            continue
        if spec is None or spec.origin is None:
            _logger.warning("%s is left out: there is no such module", source)
            continue
        scripts[point.name], sources[point.name] = Path(spec.origin), source
    return scripts


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
