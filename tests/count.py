"""Prints how many tests a folder has, and how many statements in it check something.

A faster run must not check less: compare the folder with that of another checkout.

    python tests/count.py tests OTHER/tests
"""

import ast
import sys
from pathlib import Path


def is_check(node: ast.AST) -> bool:
    """Whether a node is an assertion, a call such as `assert_allclose`, or `pytest.raises`."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        return name in ("raises", "warns") or name.startswith("assert_")
    return isinstance(node, ast.Assert)


def main(folders: list[str]) -> None:
    """Prints a line per folder."""
    for folder in folders:
        trees = [ast.parse(path.read_text("utf-8")) for path in Path(folder).rglob("*.py")]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        tests = [x for x in nodes if isinstance(x, ast.FunctionDef) and x.name.startswith("test_")]
        marks = ("slow", "one_case")
        slow = [
            x for x in tests if any(m in ast.unparse(y) for y in x.decorator_list for m in marks)
        ]
        print(
            f"{folder}: {len(tests)} test functions, {len(slow)} of them slow or in part, "
            f"{sum(map(is_check, nodes))} checks"
        )


if __name__ == "__main__":
    main(sys.argv[1:] or [str(Path(__file__).parent)])
