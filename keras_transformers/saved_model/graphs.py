"""Rewrites an export's graph: places strings on the CPU, and removes nodes that are not needed.

Tracing writes a new constant or shape for every use, and keeps unused nodes. They are half of an
export's nodes. They cost time whenever the export is loaded, and when each signature is first
called. References to gradients are removed too, because exports need none.
"""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformers import files
from keras_transformers.saved_model.description import FINGERPRINT_FILE

_READ = "ReadVariableOp"
_GRADIENT = "_gradient_op_type"
_CPU = "/device:CPU:0"
_PASS_ON = {"Placeholder", "Identity", "IdentityN"}  # from one node to the next, on any device


@contextlib.contextmanager
def rewriting(folder: str | os.PathLike[str]) -> Iterator[Any]:
    """Yields the MetaGraphDef of a SavedModel, and writes it with its changes.

    Args:
        folder: a version folder that is not in use yet, with one graph.
    """
    path = Path(folder) / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    yield meta_graph
    with files.replaced(path) as scratch:
        scratch.write_bytes(saved_model.SerializeToString(deterministic=True))
    # It is now out of date, TensorFlow has no public function to recompute it, and loaders do not
    # need it.
    (Path(folder) / FINGERPRINT_FILE).unlink(missing_ok=True)


def place_strings(meta_graph: Any) -> None:
    """Places nodes that process strings on the CPU, which alone can, if they have no device.

    Such nodes are the constants for tensors from outside a graph, whatever its scopes of devices,
    and assertions that TensorFlow or Keras adds.
    """
    library = meta_graph.graph_def.library.function
    for nodes in (meta_graph.graph_def.node, *(function.node_def for function in library)):
        for node in nodes:
            if not node.device and _processes_strings(node):
                node.device = _CPU


def _processes_strings(node: Any) -> bool:
    values = node.attr.values()
    calls = any(value.HasField("func") for value in values)  # whose nodes have their own devices
    types = {t for value in values for t in (value.type, *value.list.type)}
    return types_pb2.DT_STRING in types and not calls and node.op not in _PASS_ON


def simplify(meta_graph: Any) -> None:
    """Reduces the number of nodes in a graph; its results stay the same, bit for bit."""
    operations = meta_graph.meta_info_def.stripped_op_list.op
    # Only the function that restores the variables writes them, so the order of reads is
    # irrelevant.
    pure = {operation.name for operation in operations if not operation.is_stateful} | {_READ}
    for function in meta_graph.graph_def.library.function:
        if not any(node.op == "AssignVariableOp" for node in function.node_def):
            _simplify(function, pure)


def _simplify(function: Any, pure: Collection[str]) -> None:
    """Drops unused nodes from a function, then merges nodes with the same results."""
    operations = {node.name: node.op for node in function.node_def}
    effects = [key for key, name in function.control_ret.items() if operations[name] not in pure]
    for key in set(function.control_ret) - set(effects):
        del function.control_ret[key]
    function.signature.control_output[:] = effects
    first: dict[Any, str] = {}  # what a node computes -> the first node that does
    instead: dict[str, str] = {}  # merged node -> the one that is kept
    kept = []
    for node in _used(function, pure):
        node.input[:] = [_renamed(name, instead) for name in node.input]
        if node.op in pure and not any(name.startswith("^") for name in node.input):
            name, node.name = node.name, ""
            content = node.SerializeToString(deterministic=True)
            node.name = name
            instead[name] = first.setdefault(content, name)
            if instead[name] != name:
                continue
        kept.append(node)
    for key, name in list(function.ret.items()):
        function.ret[key] = _renamed(name, instead)
    del function.node_def[:]
    function.node_def.extend(kept)


def _used(function: Any, pure: Collection[str]) -> Iterator[Any]:
    """Yields copies of the nodes that results or effects depend on, each after its inputs."""
    nodes = {node.name: node for node in function.node_def}
    effects = [node.name for node in function.node_def if node.op not in pure]
    waiting = [*function.ret.values(), *function.control_ret.values(), *effects]
    waiting = [_node(name) for name in reversed(waiting)]
    seen, done = set(), set()
    while waiting:
        name = waiting[-1]
        if name in seen or name not in nodes:  # all of its inputs are done, or it is an argument
            waiting.pop()
            if name in nodes and name not in done:
                done.add(name)
                copy = type(nodes[name])()
                copy.CopyFrom(nodes[name])
                copy.attr.pop(_GRADIENT, None)
                yield copy
        else:
            seen.add(name)
            waiting.extend(_node(source) for source in reversed(nodes[name].input))


def _node(name: str) -> str:
    """Returns the node of an input such as "node:output:0" or "^node"."""
    return name.removeprefix("^").partition(":")[0]


def _renamed(name: str, instead: dict[str, str]) -> str:
    """Returns an input, or the name of a node, with the node that computes it now."""
    node = _node(name)
    return name.replace(node, instead.get(node, node), 1)
