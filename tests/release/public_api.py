"""Lists the public API, a name with its signature per line, from the source alone.

    python tests/release/public_api.py          # `make api`; a test compares the file

Public is what `keras_transformers` and its rooms show, the public methods and fields of public
classes, those that they inherit from private ones among them, and the options of commands and
recipes. Nothing is imported, so neither Python's nor Keras's version changes a line.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import keras_transformers as kt
from keras_transformers.cli.main import COMMANDS, PROGRAM, command_name
from keras_transformers.cli.recipes import recipes
from keras_transformers.files import write_lines

PACKAGE = Path(kt.__file__).parent
ROOT = PACKAGE.parent
FILE = Path(__file__).with_suffix(".txt")
HEADER = "# The public API; docs/versions.md says what changes it. Written by `make api`."
# Methods that Keras calls, and not users.
_OF_KERAS = {"build", "compute_mask", "compute_output_shape", "compute_output_spec"}
_NOT_CALLED = {"__post_init__", "__repr__", "__getattr__", "__dir__"}


def lines() -> list[str]:
    """Returns the list: names of the package, then commands, then recipes."""
    api = {*_top(), *(line for room in kt._ROOMS for line in _room(PACKAGE / room))}
    commands = [
        f"{PROGRAM} {command_name(command)}{line}"
        for command in COMMANDS
        for line in _class(_module_file(command.__module__), command.__name__)
    ]
    scripts = [
        f"{PROGRAM} train {name}{line}"
        for name, path in recipes().items()
        if any(isinstance(node, ast.ClassDef) and node.name == "Config" for node in _body(path))
        for line in _class(path, "Config")
    ]
    of_options = re.compile(r"\.\w+: ")  # neither methods nor the class of a command
    return [
        *sorted(api, key=lambda line: line.replace(": class", " ")),  # a class before its members
        *(line for line in commands if of_options.search(line) and "Suppress" not in line),
        *(line for line in scripts if of_options.search(line) or ": class" in line),
    ]


@functools.cache
def _body(file: Path) -> list[ast.stmt]:
    return ast.parse(file.read_bytes(), str(file)).body


def _module_file(module: str) -> Path:
    place = ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _shown(stub: Path) -> dict[str, str]:
    """Returns name -> module of what a stub imports; "" for the room's own modules."""
    room = ".".join(stub.parent.relative_to(ROOT).parts)
    shown = {}
    for node in _body(stub):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            module = f"{room}.{node.module}" if node.level and node.module else node.module or ""
            is_module = _module_file(f"{module}.{alias.name}").exists()  # shown by its own room too
            if not (module and is_module) and alias.asname:
                shown[alias.asname] = module
    return shown


def _top() -> Iterator[str]:
    """Yields the names of the package itself: `load`, `fit` and the models are in its stub."""
    stub = PACKAGE / "__init__.pyi"
    for node in _body(stub):
        if isinstance(node, ast.FunctionDef):
            yield f"kt.{_function(node)}"
        elif isinstance(node, ast.AnnAssign):
            yield f"kt.{ast.unparse(node)}"
    for name, module in kt._NAMES.items():
        if name not in ("load", "fit"):
            yield from _name(_module_file(f"{kt.__name__}.{module}"), name, f"kt.{name}")


def _room(folder: Path) -> Iterator[str]:
    """Yields the names that a room shows, and those that only its modules or sub-rooms show."""
    place = ".".join(["kt", *folder.relative_to(PACKAGE).parts])
    shown = _shown(folder / "__init__.pyi")
    for name, module in shown.items():
        if module:
            yield from _name(_module_file(module), name, f"{place}.{name}")
        elif (folder / name).is_dir():
            if not (folder / name / "__init__.pyi").exists():  # its names are shown elsewhere
                continue
            own = {name for name, module in shown.items() if module}
            for line in _room(folder / name):
                short = line.removeprefix(f"{place}.{name}.")
                if re.match(r"\w+", short)[0] not in own:  # it is listed above
                    yield line
        else:
            for each in _all(folder / f"{name}.py"):
                if each not in shown:
                    yield from _name(folder / f"{name}.py", each, f"{place}.{name}.{each}")


def _all(file: Path) -> list[str]:
    for node in _body(file):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return []


def _name(file: Path, name: str, path: str) -> Iterator[str]:
    """Yields the lines of a name: one, or for a class one for each of its members, too."""
    file, nodes = _find(file, name)
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield from (f"{path}{line}" for line in _class(file, node.name))
        elif isinstance(node, ast.FunctionDef):
            yield f"{path.removesuffix(name)}{_function(node, name)}"
        else:
            yield f"{path}{_value(node)}"


def _find(file: Path, name: str) -> tuple[Path, list[ast.stmt]]:
    """Returns the statements that define a name (overloads are several), and their file."""
    found = [node for node in _body(file) if name in _defined(node)]
    if found:
        return file, found
    for node in _body(file):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            if name == (alias.asname or alias.name) and str(node.module).startswith(kt.__name__):
                target = _module_file(str(node.module))
                if target.name == "__init__.py":
                    target = _module_file(_shown(target.with_suffix(".pyi"))[alias.name])
                return _find(target, alias.name)
    raise LookupError(f"{file} does not define {name}")


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _class(file: Path, name: str) -> Iterator[str]:
    """Yields a class's bases and decorators, and its members, as ends of lines."""
    _, (node,) = _find(file, name)
    assert isinstance(node, ast.ClassDef)
    decorators = [d for d in map(ast.unparse, node.decorator_list) if "dataclass" in d]
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    yield ", ".join([f": class{bases}", *decorators])
    yield from (f".{line}" for line in _members(file, node).values())


def _members(file: Path, node: ast.ClassDef) -> dict[str, str]:
    """Returns name -> line of a class's public members and those of its private bases."""
    members: dict[str, str] = {}
    for base in map(ast.unparse, reversed(node.bases)):
        try:
            place, (found,) = _find(file, base.partition("[")[0])
        except LookupError:  # of another package
            continue
        if isinstance(found, ast.ClassDef) and found.name not in _all(place):
            members |= _members(place, found)
    for each in node.body:
        if isinstance(each, ast.FunctionDef):
            if _is_public(each.name):
                members[each.name] = _method(each)
        else:
            for name in filter(_is_public, _defined(each)):
                members[name] = f"{name}{_value(each)}"
    documented = re.search(r"\n *Attributes:\n(.*?)(\n\n|$)", ast.get_docstring(node) or "", re.S)
    for name in re.findall(r"^    (\w+):", documented[1] if documented else "", re.M):
        members.setdefault(name, name)
    return members


def _is_public(name: str) -> bool:
    if name.startswith("__"):
        return name not in _NOT_CALLED
    return not name.startswith("_") and name not in _OF_KERAS


def _method(node: ast.FunctionDef) -> str:
    if any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
        return f"{node.name}: {ast.unparse(node.returns)}" if node.returns else node.name
    return _function(node)


def _function(node: ast.FunctionDef, name: str = "") -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name or node.name}({ast.unparse(node.args)}){returns}"


def _value(node: ast.stmt) -> str:
    """Returns a field's type and value; of a table, such as a dictionary, neither."""
    if isinstance(node, ast.AnnAssign):
        value = f" = {ast.unparse(node.value)}" if node.value else ""
        return f": {ast.unparse(_without_help(node.annotation))}{value}"
    assert isinstance(node, ast.Assign)
    is_table = isinstance(node.value, ast.Dict | ast.List | ast.Set)
    return "" if is_table else f" = {ast.unparse(node.value)}"


def _without_help(annotation: ast.expr) -> ast.expr:
    """Returns the type of a command's option without the words of its help."""
    if not (isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated"):
        return annotation
    assert isinstance(annotation.slice, ast.Tuple)
    kind, *notes = annotation.slice.elts
    kept = [note for note in notes if not re.match(r"(argument|arg)\(", ast.unparse(note))]
    return ast.Subscript(annotation.value, ast.Tuple([kind, *kept])) if kept else kind


if __name__ == "__main__":
    write_lines(FILE, [HEADER, *lines()])
