"""`keras-transformers check`: finds out whether stock TF Serving can serve an export.

It inspects the ops of the graph, and calls the signatures.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_transformers.dependencies.private_api import op_definition
from keras_transformers.dependencies.untyped import Message
from keras_transformers.saved_model.checks.check import check_signatures, in_fresh_process
from keras_transformers.saved_model.checks.core_ops import (
    NAMES,
    ONEDNN_OPS,
    releases,
    releases_with,
)
from keras_transformers.saved_model.checks.op_origins import PYTHON_OPS, TEXT_OPS
from keras_transformers.saved_model.checks.trials import Finding
from keras_transformers.saved_model.description import (
    check_fingerprint,
    meta_graph,
    read_metadata,
)
from keras_transformers.saved_model.versions import resolve


@dataclass(frozen=True)
class Audit:
    """Holds the findings about an export's compatibility.

    Attributes:
        path: the version folder.
        ops: op -> how often it occurs in the graph and its functions.
        text_ops: the ops of tensorflow-text, each with the oldest tensorflow-text and TF Serving
            known to have it (None if unknown) and the sources.
        core_ops: the ops of TensorFlow that some releases in `core_ops.json` lack, each with the
            oldest TF Serving that has it (None if unknown), and its `attributes` that some releases
            lack. A release ignores an attribute that it does not know, so it may compute something
            else.
        refused_ops: op that no stock TF Serving can run -> the reason.
        findings: the outcomes of the trials; see `trials.Finding`.
    """

    path: Path
    ops: dict[str, int]
    text_ops: dict[str, dict[str, Any]]
    core_ops: dict[str, dict[str, Any]]
    refused_ops: dict[str, str]
    findings: list[Finding]

    @property
    def passed(self) -> bool:
        """Whether every op can run and no trial failed."""
        return not self.refused_ops and all(f.outcome != "failed" for f in self.findings)

    @property
    def oldest_serving(self) -> str | None:
        """The oldest TF Serving known to have all these ops; None if unknown.

        It is never older than the table of TensorFlow's ops, which does not cover earlier
        releases.
        """
        unknown, oldest = self._origins()
        return None if unknown else oldest

    def _origins(self) -> tuple[list[str], str]:
        """Returns the ops of unknown age, and the oldest release that has all others."""
        entries = {**self.text_ops, **self.core_ops}
        dated = [entry["serving"] for entry in entries.values() if entry["serving"]]
        unknown = [op for op, entry in entries.items() if not entry["serving"]]
        return unknown, max([releases()[0], *dated], key=_numbers)

    def _oldest(self) -> str:
        unknown, oldest = self._origins()
        if unknown:
            return f"unknown for {', '.join(unknown)}, not before {oldest}"
        return f"{oldest}, as far as we know"

    def as_json(self) -> dict[str, Any]:
        """Returns the audit as JSON values."""
        return asdict(self) | {
            "path": str(self.path),
            "oldest_serving": self.oldest_serving,
            "passed": self.passed,
        }

    def lines(self) -> Iterator[str]:
        """Yields the audit as lines of text."""
        yield f"{self.path}: {len(self.ops)} different ops"
        for op, why in self.refused_ops.items():
            yield f"refused  {op}: {why}"
        for op, entry in self.text_ops.items():
            text, serving = (
                f"{entry[name]} or newer" if entry[name] else "since an unknown version"
                for name in ("text", "serving")
            )
            yield f"ops      {op}: tensorflow-text {text}; TF Serving {serving}"
        for op, entry in self.core_ops.items():
            told = f" with {', '.join(entry['attributes'])}" if entry["attributes"] else ""
            if not entry["serving"]:
                told += f": not in all releases that we know, {releases()[0]} to {releases()[-1]}"
            else:
                told += f": TF Serving {entry['serving']} or newer"
            built = ", built with oneDNN (x86)" if op in ONEDNN_OPS else ""
            yield f"ops      {op}{told}{built}"
        yield f"ops      oldest TF Serving that has all of its ops: {self._oldest()}"
        for finding in self.findings:
            where = f"{finding.signature}: " if finding.signature else ""
            detail = f" ({finding.detail})" if finding.detail else ""
            yield f"{finding.outcome:<8} {where}{finding.trial}{detail}"
        failed = len(self.refused_ops) + sum(f.outcome == "failed" for f in self.findings)
        yield f"{self.path}: {'passed' if self.passed else f'{failed} findings against it'}"


def audit(path: str | os.PathLike[str], *, max_batch_size: int = 8) -> Audit:
    """Audits a SavedModel, from this package or not.

    Its signatures run on the examples stored in it, in a process that can import neither Keras nor
    this package. Their outputs must equal the stored ones: floats within the export's tolerance, a
    share of the output's largest value, everything else exactly. Without stored examples, it
    generates inputs and compares the answers with each other.

    Args:
        path: an export, or the BASE of its versions, of which the newest is used.
        max_batch_size: batches of 1 to this many rows are tried.

    Raises:
        FileNotFoundError: there is no export.
        ValueError: it cannot be read, or `max_batch_size` is below 1.
    """
    if max_batch_size < 1:
        raise ValueError(f"max_batch_size={max_batch_size}: expected 1 or more")
    folder = resolve(path).absolute()
    check_fingerprint(folder)
    ops = graph_ops(folder)
    refused = {op: why for op in ops if (why := _refusal(op))}
    check_signatures(folder, read_metadata(folder))
    return Audit(
        path=folder,
        ops=ops,
        text_ops={op: asdict(TEXT_OPS[op]) for op in ops if op in TEXT_OPS},
        core_ops=_core_ops(set(ops) - set(TEXT_OPS) - set(refused), set_attributes(folder)),
        refused_ops=refused,
        findings=list(_trials(folder, max_batch_size)),
    )


def graph_ops(folder: Path) -> dict[str, int]:
    """Counts the ops of an export's graph and all its functions, sorted by name.

    Raises:
        ValueError: saved_model.pb is damaged, or not for serving.
    """
    counts = Counter(node.op for node in _nodes(folder))
    return {op: counts[op] for op in sorted(counts)}


def set_attributes(folder: Path) -> dict[str, set[str]]:
    """Returns op -> the attributes that a node of the graph or a function sets, if any does.

    Attributes with their default value are left out, because a release computes the same without
    them; so are names, and attributes that start with an underscore, which any op may have.

    Raises:
        ValueError: saved_model.pb is damaged, or not for serving.
    """
    names_by_op: dict[str, set[str]] = {}
    for node in _nodes(folder):
        definition = op_definition(node.op)
        defaults = {a.name: a.default_value for a in definition.attr} if definition else {}
        names_by_op.setdefault(node.op, set()).update(
            name
            for name, value in node.attr.items()
            if not name.startswith("_") and name not in NAMES and value != defaults.get(name)
        )
    return {op: names for op, names in names_by_op.items() if names}


def _nodes(folder: Path) -> Iterator[Message]:
    """Yields the nodes of the graph and its functions, without calls to these functions."""
    graph = meta_graph(folder).graph_def
    functions = {function.signature.name for function in graph.library.function}
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        yield from (node for node in nodes if node.op not in functions)


def _core_ops(ops: Iterable[str], attributes: Mapping[str, set[str]]) -> dict[str, dict[str, Any]]:
    """Returns `Audit.core_ops` for TensorFlow's ops; those that all releases have are left out."""
    entries = {}
    for op in sorted(ops):
        having = releases_with(op, attributes.get(op, ()))
        if having != releases():
            with_it = releases_with(op)
            newer = [
                name
                for name in sorted(attributes.get(op, ()))
                if with_it and releases_with(op, [name]) != with_it
            ]
            # Later releases keep it, unless the newest lacks it.
            still = having and having[-1] == releases()[-1]
            entries[op] = {"serving": having[0] if still else None, "attributes": newer}
    return entries


def _refusal(op: str) -> str:
    """Returns why no stock TF Serving can run this op; "" if one can."""
    if op in PYTHON_OPS:
        return "calls Python, which a server lacks; write it with TensorFlow's own ops"
    if op in TEXT_OPS or releases_with(op) or hasattr(tf.raw_ops, op):
        return ""
    return (
        f"unknown to TensorFlow {releases()[0]} to {releases()[-1]}, to the {tf.__version__} that "
        "is installed and to tensorflow-text: a custom op"
    )


def _trials(folder: Path, max_batch_size: int) -> Iterator[Finding]:
    arguments = ("keras_transformers.saved_model.checks.trials", str(folder), str(max_batch_size))
    try:
        yield from (Finding(**fields) for fields in in_fresh_process(*arguments))
    except (TimeoutError, ChildProcessError) as error:
        yield Finding("a fresh process", "", "failed", str(error))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
