"""`keras-transformers check`: finds out whether stock TF Serving can serve an export.

It looks at the ops of the graph, and calls the signatures.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_transformers.saved_model.checks.check import check_signatures, in_fresh_process
from keras_transformers.saved_model.checks.op_origins import PYTHON_OPS, TEXT_OPS, X86_OPS
from keras_transformers.saved_model.checks.trials import Finding
from keras_transformers.saved_model.description import (
    check_fingerprint,
    meta_graph,
    read_metadata,
)
from keras_transformers.saved_model.versions import resolve


@dataclass(frozen=True)
class Audit:
    """What is known about an export's compatibility.

    Attributes:
        path: the version folder.
        ops: op -> how often it occurs in the graph and its functions.
        text_ops: the ops of tensorflow-text, each with the oldest tensorflow-text and TF Serving
            known to have it (None if unknown) and the sources.
        refused_ops: op that no stock TF Serving can run -> why.
        findings: the outcomes of the trials; see `trials.Finding`.
    """

    path: Path
    ops: dict[str, int]
    text_ops: dict[str, dict[str, Any]]
    refused_ops: dict[str, str]
    findings: list[Finding]

    @property
    def passed(self) -> bool:
        """Whether no op is refused and no trial failed."""
        return not self.refused_ops and all(f.outcome != "failed" for f in self.findings)

    @property
    def oldest_serving(self) -> str | None:
        """The oldest TF Serving known to have all these ops of tensorflow-text; None if unknown."""
        found = [entry["serving"] for entry in self.text_ops.values()]
        return None if None in found else max(found, key=_numbers, default=None)

    def _oldest(self) -> str:
        unknown = [op for op, entry in self.text_ops.items() if entry["serving"] is None]
        known = [entry["serving"] for entry in self.text_ops.values() if entry["serving"]]
        if not unknown:
            return f"{self.oldest_serving}, as far as we know"
        least = f", not before {max(known, key=_numbers)}" if known else ""
        return f"unknown for {', '.join(unknown)}{least}"

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
        if self.text_ops:
            yield f"ops      oldest TF Serving that has all of these: {self._oldest()}"
        for finding in self.findings:
            where = f"{finding.signature}: " if finding.signature else ""
            detail = f" ({finding.detail})" if finding.detail else ""
            yield f"{finding.outcome:<8} {where}{finding.trial}{detail}"
        failed = len(self.refused_ops) + sum(f.outcome == "failed" for f in self.findings)
        yield f"{self.path}: {'passed' if self.passed else f'{failed} findings against it'}"


def audit(path: str | os.PathLike[str], *, max_batch_size: int = 8) -> Audit:
    """Examines a SavedModel, made by this package or not.

    Its signatures run on the examples stored in it, in a process that can import neither Keras nor
    this package. Their outputs must equal the stored ones: floats within the export's `tolerance *
    max(1, |value|)`, everything else exactly. Without stored examples, the inputs are made up and
    the answers compared with each other.

    Args:
        path: an export, or the BASE of its versions, of which the newest is used.
        max_batch_size: batches of 1 to this many rows are tried.

    Raises:
        FileNotFoundError: there is no export.
        ValueError: it cannot be read, or `max_batch_size` is below 1.
    """
    if max_batch_size < 1:
        raise ValueError(f"max_batch_size={max_batch_size}: give 1 or more")
    folder = resolve(path).absolute()
    check_fingerprint(folder)
    ops = graph_ops(folder)
    check_signatures(folder, read_metadata(folder))
    return Audit(
        path=folder,
        ops=ops,
        text_ops={op: asdict(TEXT_OPS[op]) for op in ops if op in TEXT_OPS},
        refused_ops={op: why for op in ops if (why := _refusal(op))},
        findings=list(_trials(folder, max_batch_size)),
    )


def graph_ops(folder: Path) -> dict[str, int]:
    """Counts the ops of an export's graph and all its functions, sorted by name.

    Raises:
        ValueError: saved_model.pb is damaged, or not for serving.
    """
    graph = meta_graph(folder).graph_def
    functions = {function.signature.name for function in graph.library.function}
    counts = Counter(node.op for node in graph.node)
    for function in graph.library.function:
        counts.update(node.op for node in function.node_def)
    return {op: counts[op] for op in sorted(counts) if op not in functions}


def _refusal(op: str) -> str:
    """Returns why no stock TF Serving can run this op; "" if one can."""
    if op in PYTHON_OPS:
        return "calls Python, which a server lacks; write it with TensorFlow's own ops"
    if op in TEXT_OPS or op in X86_OPS or hasattr(tf.raw_ops, op):
        return ""
    return f"unknown to TensorFlow {tf.__version__} and to tensorflow-text: a custom op"


def _trials(folder: Path, max_batch_size: int) -> Iterator[Finding]:
    arguments = ("keras_transformers.saved_model.checks.trials", str(folder), str(max_batch_size))
    try:
        yield from (Finding(**found) for found in in_fresh_process(*arguments))
    except (TimeoutError, ChildProcessError) as error:
        yield Finding("a fresh process", "", "failed", str(error))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
