"""Finds the releases of TensorFlow that have a core op and its attributes.

`core_ops.json` covers the releases in `RELEASES`; `make_core_ops` writes that file. TF Serving
X contains TensorFlow X. Both must be built with oneDNN for the ops in `ONEDNN_OPS`.
"""

import functools
import json
from collections.abc import Iterable
from pathlib import Path

FILE = Path(__file__).with_name("core_ops.json")

# Ops of int8 exports. Only builds for x86 register them, where oneDNN is on by default.
ONEDNN_OPS = ("_QuantizedMatMul",)

# Attributes that only name something and do not change results: new in 2.15, written for every
# variable, and ignored by TensorFlow 2.12.
NAMES = ("debug_name",)


@functools.cache
def tables() -> dict[str, dict[str, frozenset[str]]]:
    """Returns release -> op -> its attributes, the oldest release first."""
    changes: dict[str, dict[str, str | None]] = json.loads(FILE.read_text("utf-8"))
    ops_by_release: dict[str, dict[str, frozenset[str]]] = {}
    ops: dict[str, frozenset[str]] = {}
    for release, changed in changes.items():
        ops = ops | {op: frozenset((names or "").split()) for op, names in changed.items()}
        ops = {op: names for op, names in ops.items() if changed.get(op, "") is not None}
        ops_by_release[release] = ops
    return ops_by_release


def releases() -> tuple[str, ...]:
    """Returns the releases in the table, such as "2.12", oldest first."""
    return tuple(tables())


def releases_with(op: str, attributes: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns the releases that have an op and all these attributes of it, oldest first.

    There are none for an op of tensorflow-text, a custom op, or one newer than the table.
    """
    wanted = frozenset(attributes)
    return tuple(r for r, table in tables().items() if op in table and wanted <= table[op])
