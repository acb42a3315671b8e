"""The house rules that a program can check.

Each rule is a function that lists a project's breaches, one line each. One test applies it to this
project; another shows that it catches a small project that breaks it.
"""

import ast
import contextlib
import fnmatch
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NAME = "keras_transformers"

# Room -> the rooms, or modules of rooms, that it may import besides itself and FOR_ALL.
ALLOWED: dict[str, set[str]] = {
    "layers": set(),
    "models": {"layers"},
    "tokenizers": set(),
    "jobs": set(),
    "decoding": set(),
    "convert": {"layers", "models", "tokenizers"},
    "inspection": {"layers", "models"},
    # What a family is, and how it is in files. A family may be built like another.
    "families": {"layers", "models", "tokenizers", "convert"},
    # A task's pipeline stands on models; its training, on what recipes stand on.
    "tasks": {
        *("layers", "models", "families", "tokenizers", "decoding", "convert"),
        *("data", "evaluation", "training", "runs"),
    },
    # The tables and jobs are for predictions on files; a report is what measuring returns. A form
    # computes what the model's head reads. It chooses the ops that tokenizers use in an export.
    "saved_model": {
        *("tasks", "layers", "jobs", "data.tables", "evaluation.reports.report"),
        *("models.selection", "tokenizers.text_ops"),
    },
    # It knows SavedModels, never models; from the tasks it needs only their answers, and how the
    # client arranges conversations, tools and choices in columns.
    "serving": {
        *("saved_model", "tasks.answers", "tasks.texts", "tasks.generation.answer"),
        *("tasks.generation.choice_lists", "tasks.generation.conversations"),
        "tasks.generation.tools",
        # How to write texts step by step: names of signatures, and pieces of text.
        *("tasks.generation.step_names", "tasks.generation.pieces"),
    },
    # A page over both: it stands on the server, and looks inside models.
    "explorer": {
        *("layers", "models", "tokenizers", "inspection", "tasks", "saved_model", "serving"),
    },
    # These three import no model.
    "data": {"tokenizers", "jobs"},
    "training": set(),
    # Its reports draw pictures.
    "evaluation": {"data", "tokenizers", "training", "inspection.svg"},
    # From evaluation only BLEU, which validates translations during `fit`, and what a report is,
    # which it writes; from the models only their names; of other libraries' weights only whether
    # a path has some, and their number of positions; from the tasks, what a pipeline is.
    "runs": {
        *("data", "evaluation.bleu", "evaluation.reports.report", "inspection", "models.registry"),
        *("convert.formats.weights", "tasks.pipeline", "saved_model", "training"),
    },
    # Pipelines trained, measured and run in one call: it stands on what recipes stand on. The jobs
    # are for predictions on files.
    "fitting": {"data", "evaluation", "jobs", "models", "tasks", "runs", "training"},
    # They show what tasks, families and runs hold, and import nothing.
    "callbacks": set(),
    "heads": set(),
    "pipelines": set(),
    "results": set(),
}
# Every room may import these, and they import none.
FOR_ALL = {"collector", "dependencies", "files", "options", "quiet", "ranges", "registry", "rooms"}
# The package's own file and the command line may import every room.
FREE = {"__init__", "cli"}
# These run on JAX without TensorFlow, or clients without TensorFlow import them.
WITHOUT_TENSORFLOW = (
    "layers/*",
    "models/*",
    "families/*",
    "convert/*",
    "inspection/*",
    "training/losses.py",
    "tasks/*/head.py",
    "tasks/*/answer.py",
    "tasks/answers.py",
    "tasks/texts.py",
    "tasks/generation/choice_lists.py",
    "tasks/generation/conversations.py",
    "tasks/generation/tools.py",
)
# The first three do what keras.ops cannot, after a check of the backend; the others read
# TensorFlow's own files, convert its graphs, and match patterns from files with its engine.
WITH_TENSORFLOW = {
    "layers/memory/blocks.py",
    "layers/recurrent/cells.py",
    "convert/memory.py",
    "layers/shared.py",
    "convert/containers/tf_checkpoint.py",
    "convert/formats/onnx.py",
    "convert/regular_expressions.py",
}


class House:
    """The Python files of a project, read once.

    Attributes:
        root: the project's folder.
        sources: the package's files.
        recipes: the recipes' files.
        benchmarks: the benchmarks' files.
        modules: dotted name -> file; a folder's name leads to its `__init__.py`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sources = sorted((root / NAME).rglob("*.py"))
        self.recipes = sorted((root / "recipes").rglob("*.py"))
        self.benchmarks = sorted((root / "benchmarks").rglob("*.py"))
        files = [*self.sources, *self.recipes, *self.benchmarks]
        self._trees = {path: ast.parse(path.read_bytes()) for path in files}
        self.modules: dict[str, Path] = {}
        for path in self.sources:
            parts = path.relative_to(root).with_suffix("").parts
            self.modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self._rooms: dict[Path, dict[str, Path]] = {}  # folder -> public name -> its file
        for path in self.sources:
            shown = dict.fromkeys(self._public_names(path), path)
            for folder in path.parents[: len(path.relative_to(root).parts) - 2]:
                self._rooms.setdefault(folder, {}).update(shown)
        for path in self.sources:
            if path.name == "__init__.py":
                self._rooms.setdefault(path.parent, {}).update(self._shown_from_elsewhere(path))

    def _public_names(self, path: Path) -> list[str]:
        """Returns the names in a module's `__all__`, which its room shows as its own."""
        return self._constant(path, "__all__")

    def _constant(self, path: Path, name: str) -> list[str]:
        for node in self._trees[path].body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return list(ast.literal_eval(node.value))
        return []

    def _shown_from_elsewhere(self, path: Path) -> dict[str, Path]:
        """Returns what a room shows from other rooms: name -> its file."""
        shown = {}
        for place in self._constant(path, "SHOWS"):
            for file in (self.root / NAME).glob(f"{place.replace('.', '/')}.py"):
                shown |= dict.fromkeys(self._public_names(file), file)
        for place in self._constant(path, "MODULES"):
            for file in (self.root / NAME).glob(f"{place.replace('.', '/')}.py"):
                shown[file.parent.name if "*" in place else file.stem] = file
        return shown

    def imports(self, path: Path) -> Iterator[tuple[str, str | None]]:
        """Yields (module, name or None) for every import in a file, at the top or in functions."""
        for node in ast.walk(self._trees[path]):
            if isinstance(node, ast.Import):
                yield from ((alias.name, None) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                yield from ((module, alias.name) for alias in node.names)

    def nodes(self, path: Path) -> Iterator[ast.AST]:
        """Yields all parts of a file's program."""
        yield from ast.walk(self._trees[path])

    def resolve(self, module: str, name: str | None) -> Path | None:
        """Returns the file that an import reaches through its room; None for other packages.

        Raises:
            ModuleNotFoundError: there is no such module, or its room shows no such name.
        """
        if module.partition(".")[0] != NAME:
            return None
        if module not in self.modules:
            raise ModuleNotFoundError(f"there is no module {module}")
        path = self.modules[module]
        if f"{module}.{name}" in self.modules:
            return self.modules[f"{module}.{name}"]
        if name is None or path.name != "__init__.py" or module == NAME:
            return path
        if name not in self._rooms[path.parent]:
            raise ModuleNotFoundError(f"room {module} shows no {name}")
        return self._rooms[path.parent][name]

    def place(self, path: Path) -> str:
        """Returns a file's dotted room and module: "models.heads.tagging", "files"."""
        parts = path.relative_to(self.root / NAME).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


# The rules.


def wrong_directions(house: House) -> list[str]:
    """Lists imports that a room may not make, or that lead nowhere."""
    found = []
    for path in house.sources:
        room = house.place(path).partition(".")[0]
        allowed = {room, *FOR_ALL, *ALLOWED.get(room, ())}
        for module, name in house.imports(path):
            what = f"{path.relative_to(house.root)} imports {module}" + (f".{name}" if name else "")
            try:
                target = house.resolve(module, name)
            except ModuleNotFoundError as error:
                found.append(f"{what}: {error}")
                continue
            if module.startswith("."):
                found.append(f"{what}: imports are absolute here")
            elif module.partition(".")[0] == "recipes":
                found.append(f"{what}: nothing imports recipes")
            elif target and room not in FREE:
                there = house.place(target)
                if not any(f"{there}.".startswith(f"{each}.") for each in allowed):
                    found.append(f"{what}: {room} may not import {there}")
    return found


def cycles(house: House) -> list[str]:
    """Lists files that import each other, directly or not, at the top or in functions."""
    return _circles({house.place(path): targets for path, targets in _targets(house).items()})


def cycles_of_folders(house: House) -> list[str]:
    """Lists families that import each other, directly or not, and tasks that do."""
    graph: dict[str, set[str]] = {}
    for path, targets in _targets(house).items():
        folders = set(map(_folder, targets)) - {_folder(house.place(path)), ""}
        graph.setdefault(_folder(house.place(path)), set()).update(folders)
    return _circles({folder: targets for folder, targets in graph.items() if folder})


def _folder(place: str) -> str:
    """Returns the family's or task's folder of a place, "tasks.tagging"; "" if it is in none."""
    room, folder, *file = [*place.split("."), ""][:3]
    return f"{room}.{folder}" if room in ("families", "tasks") and any(file) else ""


def _targets(house: House) -> dict[Path, set[str]]:
    """Returns file -> the places that it imports from."""
    graph: dict[Path, set[str]] = {path: set() for path in house.sources}
    for path in house.sources:
        for module, name in house.imports(path):
            with contextlib.suppress(ModuleNotFoundError):
                target = house.resolve(module, name)
                if target and target != path:
                    graph[path].add(house.place(target))
    return graph


def _circles(graph: dict[str, set[str]]) -> list[str]:
    """Lists the circles of a graph: place -> places."""
    found, done = [], set()

    def visit(place: str, trail: list[str]) -> None:
        if place in trail:
            circle = trail[trail.index(place) :]
            found.append(" -> ".join([*circle, circle[0]]))
        elif place not in done:
            for target in sorted(graph.get(place, ())):
                visit(target, [*trail, place])
            done.add(place)

    for place in graph:
        visit(place, [])
    return found


def tensorflow_imports(house: House) -> list[str]:
    """Lists files that import TensorFlow although they must do without it."""
    return [
        f"{relative} imports {module}"
        for path in house.sources
        if (relative := path.relative_to(house.root / NAME).as_posix()) not in WITH_TENSORFLOW
        and any(fnmatch.fnmatchcase(relative, pattern) for pattern in WITHOUT_TENSORFLOW)
        for module, _ in house.imports(path)
        if module.startswith("tensorflow")
    ]


def imports_of_tensorflow_text(house: House) -> list[str]:
    """Lists files that import tensorflow-text besides the one that does without it if need be."""
    return [
        f"{path.relative_to(house.root)} imports {module}: call dependencies.text_library instead"
        for path in house.sources
        if house.place(path) != "dependencies.text_library"
        for module, _ in house.imports(path)
        if module.partition(".")[0] == "tensorflow_text"
    ]


def files_named_like_their_folder(house: House) -> list[str]:
    return [
        f"{path.relative_to(house.root)}: name it for what it does"
        for path in house.sources
        if path.stem == path.parent.name
    ]


def private_imports_of_recipes(house: House) -> list[str]:
    """Lists recipes that import what the rooms do not show, or each other."""
    found = []
    for path in house.recipes:
        for module, name in house.imports(path):
            what = f"{path.relative_to(house.root)} imports {module}" + (f".{name}" if name else "")
            parts = module.split(".")
            if parts[0] == "recipes" or module in {each.stem for each in house.recipes}:
                found.append(f"{what}: a recipe stands alone")
            if parts[0] != NAME:
                continue
            # A sub-room is a room too; a module is not.
            is_module = len(parts) > 2 and house.modules[module].name != "__init__.py"
            if is_module or (name or "").startswith("_"):
                found.append(f"{what}: take it from its room, {NAME}.{parts[1]}")
                continue
            try:
                house.resolve(module, name)
            except ModuleNotFoundError as error:
                found.append(f"{what}: {error}")
    return found


def layers_by_name(house: House) -> list[str]:
    """Lists places outside of models and converters that tell layers by their names.

    `models.anatomy` finds a model's parts by their types, so that any family's layers may have any
    names. A family's own files and a task's head know their names, and so do the converters' name
    maps.
    """
    rooms = ("models.", "families.", "convert.")
    files = [
        path
        for path in house.sources
        if not (house.place(path).startswith(rooms) or path.name == "head.py")
    ]
    return [
        f"{path.relative_to(house.root)}:{node.lineno} tells layers by name: {ast.unparse(node)}"
        for path in (*files, *house.recipes, *house.benchmarks)
        for node in _telling_by_name(list(house.nodes(path)))
    ]


# Families whose names are also those of a kind of model, and other software with one in its name.
_KINDS_OF_MODELS = {"transformer", "seq2seq"}
_SOFTWARE = re.compile(r"llama\.cpp|keras-bert|bert4keras|fasttext", re.IGNORECASE)


def families_by_name(house: House) -> list[str]:
    """Lists names of families in what all of them share, outside of docstrings."""
    rooms = [house.root / NAME / room for room in ("models", "convert")]
    folders = {path.parent.name for path in (house.root / NAME).glob("families/*/*.py")}
    names = {
        name.replace("_", mark) for name in folders - _KINDS_OF_MODELS for mark in ("", "-", "_")
    }
    return [
        f"{path.relative_to(house.root)}:{node.lineno} names a family: {text!r:.60}"
        for path in house.sources
        if any(path.is_relative_to(room) for room in rooms)
        for node, text in _names_and_strings(list(house.nodes(path)))
        if names.intersection(re.findall(r"[a-z0-9_-]+", _SOFTWARE.sub("", text).lower()))
    ]


def tasks_by_name(house: House) -> list[str]:
    """Lists comparisons with a task's name, outside of the task's own folder.

    What others need to know about a task, its class says. Families compare what other libraries'
    files are for.
    """
    tasks = {path.parent.name for path in (house.root / NAME).glob("tasks/*/task.py")}
    return [
        f"{path.relative_to(house.root)}:{node.lineno} tells a task by name: {text}"
        for path in house.sources
        if not house.place(path).startswith("families.")
        for node in house.nodes(path)
        if isinstance(node, ast.Compare)
        for text in [ast.unparse(node)]
        if re.search(r"\b(task|base|trained)\b", text)
        and (tasks - {path.parent.name}).intersection(re.findall(r"'(\w+)'", text))
    ]


# A public argument of a function that draws what `inspection.attention` returns.
_PUBLIC_ARGUMENTS = {("inspection.pictures", "found")}
_PARTICIPLES = {"found", "given", "made", "own", "known", "each"}


def values_named_by_participles(house: House) -> list[str]:
    """Lists values of the package whose name does not say what they are."""
    breaches = []
    for path in house.sources:
        for node in house.nodes(path):
            if isinstance(node, ast.arg):
                name = node.arg
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                name = ast.unparse(node).rpartition(".")[2]
            else:
                continue
            is_public = (house.place(path), name) in _PUBLIC_ARGUMENTS
            if name.strip("_") in _PARTICIPLES and not is_public:
                breaches.append(
                    f"{path.relative_to(house.root)}:{node.lineno} names a value {name}: use a noun"
                )
    return breaches


def _names_and_strings(nodes: list[ast.AST]) -> Iterator[tuple[Any, str]]:
    """Yields the variables, functions and classes of a program, and its strings."""
    docstrings = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            if isinstance(node.value, str | bytes):
                yield node, str(node.value)
        elif isinstance(node, ast.Name):
            yield node, node.id.replace("_", " ")
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node, node.name.replace("_", " ")


_STRING_TESTS = (
    *("startswith", "endswith", "removeprefix", "removesuffix", "split", "rsplit", "partition"),
    "rpartition",
)


def _telling_by_name(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    loops = [node for node in nodes if isinstance(node, ast.For | ast.comprehension)]
    over_layers = re.compile(r"\.layers\b|\b(calls|call_arguments|inner_layers)\(")
    layers = {"layer", "block"} | {
        name.id
        for loop in loops
        if over_layers.search(ast.unparse(loop.iter))
        for name in ast.walk(loop.target)
        if isinstance(name, ast.Name)
    }

    def is_name(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Attribute)
            and node.attr == "name"
            and isinstance(node.value, ast.Name)
            and node.value.id in layers
        )

    for node in nodes:
        if isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            matches = function.startswith("re.") and any(map(is_name, node.args))
            splits = (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in _STRING_TESTS
                and is_name(node.func.value)
            )
            if function.endswith(".get_layer") or matches or splits:
                yield node
        elif isinstance(node, ast.Compare):
            if any(map(is_name, (node.left, *node.comparators))):
                yield node
        elif isinstance(node, ast.DictComp | ast.SetComp) and is_name(
            node.key if isinstance(node, ast.DictComp) else node.elt
        ):
            yield node


# For each rule, the files of a project that breaks it, and words from the reported breach.
BREAKING = {
    wrong_directions: (
        {
            f"{NAME}/layers/dense.py": f"from {NAME}.models import bert\n",
            f"{NAME}/models/bert.py": "",
            f"{NAME}/models/__init__.py": "",
        },
        "imports keras_transformers.models.bert: layers may not import models.bert",
    ),
    cycles: (
        {
            f"{NAME}/data/__init__.py": "",
            f"{NAME}/data/one.py": f"from {NAME}.data import two\n",
            f"{NAME}/data/two.py": f"def f():\n    from {NAME}.data.three import g\n",
            # `h` is a name that the room shows.
            f"{NAME}/data/three.py": f"from {NAME}.data import h\n",
            f"{NAME}/data/four.py": f'__all__ = ["h"]\nimport {NAME}.data.one\n',
        },
        "data.four -> data.one -> data.two -> data.three -> data.four",
    ),
    cycles_of_folders: (
        {
            f"{NAME}/tasks/one/task.py": f"from {NAME}.tasks.two.head import f\n",
            f"{NAME}/tasks/one/head.py": "",
            f"{NAME}/tasks/two/head.py": "",
            f"{NAME}/tasks/two/task.py": f"def f():\n    from {NAME}.tasks.one.head import f\n",
        },
        "tasks.one -> tasks.two -> tasks.one",
    ),
    tensorflow_imports: (
        {f"{NAME}/models/bert.py": "def f():\n    import tensorflow_text\n"},
        "models/bert.py imports tensorflow_text",
    ),
    imports_of_tensorflow_text: (
        {f"{NAME}/tokenizers/bert.py": "def f():\n    import tensorflow_text.python as text\n"},
        "tokenizers/bert.py imports tensorflow_text.python: call dependencies.text_library",
    ),
    files_named_like_their_folder: (
        {f"{NAME}/runs/resume/resume.py": ""},
        "runs/resume/resume.py: name it",
    ),
    private_imports_of_recipes: (
        {
            f"{NAME}/runs/__init__.py": "",
            f"{NAME}/runs/resume.py": "",
            "recipes/tagging.py": f"from {NAME}.runs.resume import Resume\n",
        },
        "recipes/tagging.py imports keras_transformers.runs.resume.Resume: take it from its room",
    ),
    layers_by_name: (
        {
            f"{NAME}/models/bert.py": "model.get_layer('pooler')\n",
            f"{NAME}/tasks/pipeline.py": "model.get_layer('pooler')\n",
        },
        "tasks/pipeline.py:1 tells layers by name: model.get_layer('pooler')",
    ),
    families_by_name: (
        {
            f"{NAME}/families/xlm_roberta/model.py": "NAME = 'xlm_roberta'\n",
            f"{NAME}/convert/formats/gguf.py": (
                '"""Opens llama.cpp\'s files, such as XLM-RoBERTa\'s."""\n'
                "FORMAT = \"GGUF, llama.cpp's files\"\nMODEL_TYPE = 'xlm-roberta'\n"
            ),
        },
        "convert/formats/gguf.py:3 names a family: 'xlm-roberta'",
    ),
    tasks_by_name: (
        {
            f"{NAME}/tasks/tagging/task.py": "pipeline.task == 'tagging'\n",
            f"{NAME}/cli/main.py": "pipeline.task in ('tagging', 'other')\n",
        },
        "cli/main.py:1 tells a task by name: pipeline.task in ('tagging', 'other')",
    ),
    values_named_by_participles: (
        {
            f"{NAME}/inspection/pictures.py": "def draw(found): ...\n",
            f"{NAME}/models/bert.py": "self._given = known_names\n",
        },
        "models/bert.py:1 names a value _given",
    ),
}
# More ways to break a rule.
ALSO_BREAKING = [
    (wrong_directions, f"{NAME}/serving/rest.py", f"from {NAME}.tasks.pipeline import Pipeline\n"),
    (wrong_directions, f"{NAME}/models/bert.py", "def f():\n    from recipes import tagging\n"),
    (wrong_directions, f"{NAME}/models/bert.py", "from . import gpt\n"),
    (wrong_directions, f"{NAME}/models/bert.py", f"from {NAME}.cli import main\n"),
    (wrong_directions, f"{NAME}/models/bert.py", f"from {NAME}.families.gpt import files\n"),
    (wrong_directions, f"{NAME}/families/gpt/files.py", f"from {NAME}.tasks import pipeline\n"),
    (wrong_directions, f"{NAME}/cli/main.py", f"from {NAME}.pipelines import NoSuchName\n"),
    (wrong_directions, f"{NAME}/evaluation/bleu.py", f"from {NAME} import pipelines\n"),
    (private_imports_of_recipes, "recipes/glue.py", f"from {NAME}.pipelines import NoSuchName\n"),
    (private_imports_of_recipes, "recipes/glue.py", f"import {NAME}.tasks.pipeline\n"),
    (private_imports_of_recipes, "recipes/glue.py", "import tagging\n"),
    (families_by_name, f"{NAME}/convert/a.py", "x.startswith('gpt.blocks')\n"),
    (families_by_name, f"{NAME}/models/a.py", "def _gpt(): ...\n"),
    (families_by_name, f"{NAME}/models/a.py", "if kind in GPT: ...\n"),
    (layers_by_name, "recipes/glue.py", "[x for x in model.layers if x.name == 'pooler']\n"),
    (layers_by_name, "recipes/glue.py", "{x.name: x for x in inner_layers(model)}\n"),
    (layers_by_name, "benchmarks/gpu.py", "any(x.name.startswith('e') for x in m.layers)\n"),
    (layers_by_name, f"{NAME}/runs/run.py", "def f(layer):\n    return layer.name in NAMES\n"),
    (values_named_by_participles, f"{NAME}/models/a.py", "[each.name for each in layers]\n"),
    (values_named_by_participles, f"{NAME}/models/a.py", "def fill(model, found): ...\n"),
    (layers_by_name, f"{NAME}/runs/run.py", "for a in m.layers:\n    re.match('e', a.name)\n"),
]
SOUND = {
    f"{NAME}/__init__.py": "",
    f"{NAME}/files.py": "",
    f"{NAME}/cli/main.py": f"from {NAME}.pipelines import Result\n",
    f"{NAME}/models/bert.py": f"from {NAME} import files\n",
    f"{NAME}/models/gpt.py": "",
    f"{NAME}/families/gpt/__init__.py": "",
    f"{NAME}/families/gpt/files.py": f"from {NAME}.models.bert import bert\n",
    f"{NAME}/pipelines/__init__.py": 'SHOWS = ("tasks.answers",)\nMODULES = ("tasks.*.head",)\n',
    f"{NAME}/tasks/__init__.py": "",
    f"{NAME}/tasks/pipeline.py": f"from {NAME}.models.bert import bert\n",
    f"{NAME}/tasks/answers.py": '__all__ = ["Result"]\n',
    f"{NAME}/tasks/tagging/head.py": "",
    f"{NAME}/serving/rest.py": f"from {NAME}.tasks.answers import Result\n",
    "recipes/tagging.py": f"import {NAME} as kt\nfrom {NAME}.pipelines import Result, tagging\n",
}


def write(root: Path, files: dict[str, str]) -> House:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return House(root)


@pytest.fixture(scope="module")
def project():
    return House(ROOT)


@pytest.mark.parametrize("rule", BREAKING, ids=lambda rule: rule.__name__)
def test_the_project_keeps_the_rule(rule, project):
    breaches = rule(project)
    assert not breaches, "\n".join([f"{len(breaches)} breaches:", *breaches])


@pytest.mark.parametrize("rule", BREAKING, ids=lambda rule: rule.__name__)
def test_a_project_that_breaks_the_rule_is_caught(rule, tmp_path):
    files, words = BREAKING[rule]
    (breach,) = rule(write(tmp_path, files))
    assert words in breach


@pytest.mark.parametrize(("rule", "path", "text"), ALSO_BREAKING)
def test_one_wrong_file_in_a_sound_project_is_caught(rule, path, text, tmp_path):
    assert [breach for each in BREAKING for breach in each(write(tmp_path, SOUND))] == []
    assert len(rule(write(tmp_path, {path: text}))) == 1


# What importing the package needs.


def run(code: str, *options: str, **environment: str) -> str:
    """Returns the output of a new Python process that finds the package only by PYTHONPATH."""
    result = subprocess.run(
        [sys.executable, *options, "-c", code],
        capture_output=True,
        text=True,
        env={"PATH": "", "PYTHONPATH": str(ROOT), **environment},
        cwd=os.path.sep,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.strip()


def test_importing_the_package_imports_nothing_heavy():
    heavy = {"tensorflow", "keras", "keras_hub", "keras_nlp"}
    assert run(f"import keras_transformers, sys; print({heavy} & set(sys.modules))") == "set()"


@pytest.mark.parametrize(
    ("places", "blocked", "backend"),
    [
        (("tasks/*/answer.py", "tasks/answers.py", "tasks/texts.py"), "keras tensorflow", ""),
        (("tasks/*/head.py", "families/*/model.py", "families/*/files.py"), "tensorflow", "jax"),
    ],
    ids=["answers", "heads and families"],
)
def test_answers_need_no_keras_and_heads_and_families_no_tensorflow(places, blocked, backend):
    if backend:
        pytest.importorskip(backend, reason="needs jax: pip install -e .[dev]")
    files = [file for place in places for file in (ROOT / NAME).glob(place)]
    modules = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    assert len(modules) > 10
    code = (
        "import importlib, sys\n"
        f"sys.modules |= dict.fromkeys({blocked.split()})  # importing them fails\n"
        f"for module in {modules}: importlib.import_module(module)"
    )
    run(code, **({"KERAS_BACKEND": backend} if backend else {}))


def test_a_checkout_that_is_not_installed_can_be_imported():
    """-S leaves out site-packages, and with it this package's metadata."""
    code = "import keras_transformers as kt; print(kt.__version__, kt.__file__)"
    version, file = run(code, "-S").split()
    assert Path(file) == ROOT / NAME / "__init__.py"
    assert "version = attr: keras_transformers.__version__" in (ROOT / "setup.cfg").read_text()
    assert version[0].isdigit()


def test_the_package_shows_what_it_has():
    import keras_transformers as kt

    shown = dir(kt)
    rooms = {path.parent.name for path in (ROOT / NAME).glob("*/__init__.py")}
    assert rooms - {"cli", "dependencies"} <= set(shown)
    assert {"load", "export", "create_model", "list_models", "heads", *kt.list_models()} <= set(
        shown
    )
    for name in shown:
        assert getattr(kt, name) is not None


@pytest.mark.slow
def test_on_jax_the_same_numbers_without_tensorflow(on_jax):
    on_jax(f"""
import runpy, numpy as np, keras_transformers as kt
from keras_transformers.families.bert.model import bert
encoder = bert(vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=16,
               intermediate_dim=24, max_sequence_length=20)
model = kt.heads.pretrainer(encoder)
kt.convert.load_weights(model, {str(ROOT / "tests/golden/bert_random.safetensors")!r})
golden = np.load({str(ROOT / "tests/golden/bert_random.npz")!r})
inputs = runpy.run_path({str(ROOT / "tests/golden/make_bert.py")!r})["random_inputs"]()
outputs = model.predict(inputs, verbose=0)
np.testing.assert_allclose(outputs["mask_logits"], golden["gelu/mask_logits"], atol=1e-5)
""")


def test_code_that_fails_or_imports_tensorflow_on_jax_is_caught(on_jax):
    with pytest.raises(AssertionError, match="division by zero"):
        on_jax("import keras; 1 / 0")
    with pytest.raises(AssertionError, match="TensorFlow was imported"):
        on_jax("import sys, keras; sys.modules['tensorflow'] = keras")
    on_jax("import sys; del sys.modules['tensorflow']")
