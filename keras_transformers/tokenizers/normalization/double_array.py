"""Builds double-array tries in the layout of darts-clone, which tensorflow_text's ops read.

A trie is one array of 32-bit units. The children of a node are at `base ^ label`, where the label
is a byte of the key; label 0 holds the value of the key that ends at the node:

    bits of a node's unit: 31 0 · 10-30 position ^ base of its children · 8 has a value · 0-7 label
    bits of a value's unit: 31 1 · 0-30 the value

Sources: Aoe (1989), An efficient digital search algorithm by using a double-array structure, IEEE
TSE 15(9); github.com/s-yata/darts-clone; DartsCloneTrieWrapper of github.com/tensorflow/text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_VALUE = 0  # the label of a value: no key contains the byte 0
_BLOCK = 256  # a lookup may read any unit in the block of a base
_MAX_UNITS = 1 << 21  # the limit of `position ^ base`

_Node = tuple[tuple[int, int], ...]  # (label, number of the child or, for label 0, the value)


def double_array(values: Mapping[bytes, int]) -> np.ndarray:
    """Builds a trie that stores equal subtrees once.

    Args:
        values: key -> value; keys are not empty and have no zero bytes, values are below 2**31.

    Returns:
        The units, uint32.

    Raises:
        ValueError: a key or value cannot be stored, or there are too many.
    """
    root: dict[int, Any] = {}
    for key, value in values.items():
        if not key or _VALUE in key or not 0 <= value < 1 << 31:
            raise ValueError(f"a double array cannot store {value!r} under the key {key!r}")
        node = root
        for label in key:
            node = node.setdefault(label, {})
        node[_VALUE] = value
    numbers: dict[_Node, int] = {}
    _number(root, numbers)
    return _units(list(numbers))


def _number(node: Mapping[int, Any], numbers: dict[_Node, int]) -> int:
    """Numbers the distinct subtrees, children before parents; the root comes last."""
    children = tuple(
        (label, child if label == _VALUE else _number(child, numbers))
        for label, child in sorted(node.items())
    )
    return numbers.setdefault(children, len(numbers))


def _units(nodes: Sequence[_Node]) -> np.ndarray:
    bases = _bases(nodes)
    size = (max(bases) // _BLOCK + 1) * _BLOCK
    if size > _MAX_UNITS:
        raise ValueError(f"{size} units; a double array holds at most {_MAX_UNITS}")
    units = np.zeros(size, np.uint32)

    def put(position: int, label: int, number: int) -> None:
        has_value = bool(nodes[number]) and nodes[number][0][0] == _VALUE
        units[position] = (position ^ bases[number]) << 10 | has_value << 8 | label

    put(0, 0, len(nodes) - 1)
    for base, node in zip(bases, nodes, strict=True):
        for label, child in node:
            if label == _VALUE:
                units[base] = 1 << 31 | child
            else:
                put(base ^ label, label, child)
    return units


def _bases(nodes: Sequence[_Node]) -> list[int]:
    """Places the children of every node: siblings first, only children in the gaps."""
    bases = [0] * len(nodes)
    used = {0}  # position 0 holds the root
    taken = {0}  # two nodes with the same base would share their children
    search_from = {False: 1, True: 1}  # by "is an only child"; positions before it are full enough
    for number in sorted(range(len(nodes)), key=lambda number: -len(nodes[number])):
        labels = [label for label, _ in nodes[number]] or [_VALUE]
        position = search_from[len(labels) == 1]
        while (base := position ^ labels[0]) in taken or any(base ^ n in used for n in labels):
            position += 1
        search_from[len(labels) == 1] = position
        bases[number] = base
        taken.add(base)
        used.update(base ^ label for label in labels)
    return bases
