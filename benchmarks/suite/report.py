"""Prints docs/performance.md from the tables of the suite: `python benchmarks/suite/report.py`.

`make benchmark` runs the suite and writes the page; a test compares the page with the tables.
"""

import json
from pathlib import Path
from typing import Any

from contest import RESULTS, best_peer, is_ours

_TABLES = {
    "encoders": """\
## Encoders

Token ids in, probabilities out, float32. The last row of a model is a batch with the lengths of
real sentences: ours computes only real tokens, while the others compute the padding as well;
keras_hub's preprocessors pad to 128.
""",
    "int8": """\
## Encoders in int8

The same shapes: exports with `weights_dtype="int8"` and, for comparison, float32, against ONNX
Runtime's `quantize_dynamic` of the same weights. What int8 costs in accuracy is in
[exports](exports.md#int8).
""",
    "training": """\
## Training steps

A whole `train_on_batch`, float32, and the same model's forward pass. The backward pass computes
twice the forward's products, so a step takes three forward passes at least.
""",
    "generation": """\
## Text generation

GPT-2 small: 16 prompt tokens, then 32 by greedy search. One token reads every matrix once, 498 MB
in float32; at batch 1 that is nearly all it does. "Ours, int8" computes as exports with
`weights_dtype="int8"` do; the peers compute in float32.
""",
    "llama": """\
## Llama

SmolLM2-135M's shape: 16 prompt tokens, then 32 by greedy search; 8 texts take llama.cpp 8 turns.
"int8" is ours as exports with `weights_dtype="int8"` compute and llama.cpp's Q8_0; keras_hub and
transformers were not run in int8. The memory of ours and keras_hub's is that of a process which
also built the model in Python, in int8 with the float32 matrices beside; an export loads only its
own.
""",
    "translation": """\
## Translation

Transformer-base shapes, V = 32,000, the same weights and the same answers: 25 source tokens, 25
forced target tokens.
""",
}
_SERVING = """\
## Served

Sentences of film reviews in, probabilities out, by the C++ loader that TF Serving uses
([batched_serving.cc](../benchmarks/cpp/batched_serving.cc)): each request in its client's thread,
or batches of TF Serving's own scheduler, of at most 32 requests that wait for 1 ms, two batches at
once ([kubernetes.yaml](deployment/kubernetes.yaml)). HTTP and gRPC are left out. Clients ask their
next text when they have their answer. Batches cost less CPU time a request, and wait for each
other: count your clients before you turn batching on.
"""
_INTRODUCTION = """\
# Performance

CPU milliseconds on one thread, medians, all contestants of a row in turn in one process, with the
ratio of ours to the best peer in the last columns: below 1 is ahead. `make benchmark` measures
again and writes this page; the quartiles are in
[benchmarks/results/suite](../benchmarks/results/suite).

![Our CPU time as a share of the best peer's, for every row of the tables below](images/speed.svg)
"""
_CLOSING = """\
## What an export does differently

Which op takes how long in one text: `python benchmarks/op_profile.py`,
[results](../benchmarks/results/op_profile.txt).

Its answers are the model's, to 1e-5, as the check of every export shows. It computes

- query, key and value as one matrix product;
- real tokens alone: they are gathered into rows once, and padded again only for the attention;
- the mask of the scores once for all layers;
- products with few rows, which are short texts and steps of decoding, from matrices in panels of
  columns. TensorFlow's kernels arrange a matrix so before each product, which takes longer than
  the product itself. What decodes stores panels in place of the matrices. An encoder in float32
  stores its matrices as they are and arranges them once, when it is loaded; batches of at most 40
  tokens then use the panels, and longer ones the matrices, whose product also adds the bias and
  computes the activation. `kt.export(..., arrange_matrices=False)` does without, which saves an
  encoder's memory for the panels.
"""


def page() -> str:
    """Returns the text of docs/performance.md."""
    parts = [_INTRODUCTION]
    for name, text in _TABLES.items():
        table = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
        parts += [text, *_rows(table["rows"]), ""]
        parts += [*_memory(table), *_loading(table), _footer(table), ""]
    parts += [_SERVING, *_served(json.loads((RESULTS / "serving.json").read_text("utf-8"))), ""]
    return "\n".join([*parts, _CLOSING.rstrip("\n"), ""])


def _rows(rows: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    names = list(dict.fromkeys(name for found in rows.values() for name in found))
    ours = [name for name in names if is_ours(name)]
    heads = ["", *names, *(f"{name} / best peer" for name in ours)]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'--:|' * (len(heads) - 1)}"]
    for title, found in rows.items():
        times = [f"{found[name]['median']:.1f}" if name in found else "-" for name in names]
        ratios = [
            f"{found[name]['median'] / best_peer(found):.2f}" if name in found else "-"
            for name in ours
        ]
        lines.append(f"| {' | '.join([title, *times, *ratios])} |")
    return lines


def _memory(table: dict[str, Any]) -> list[str]:
    """Returns a table of the memory of processes, if it was measured."""
    if "memory" not in table:
        return []
    rows = [f"| {name} | {found:.0f} |" for name, found in table["memory"].items()]
    return ["| process with one engine | peak memory, MB |", "|---|--:|", *rows, ""]


def _loading(table: dict[str, Any]) -> list[str]:
    """Returns a table of what loading costs, if it was measured."""
    if "loading" not in table:
        return []
    rows = [
        f"| {name} | {found['file']:.0f} | {found['load']:.0f} | {found['memory']:.0f} |"
        for name, found in table["loading"].items()
    ]
    heads = "| loading, and one short text | files, MB | CPU ms to load | more memory, MB |"
    return [heads, "|---|--:|--:|--:|", *rows, ""]


def _served(table: dict[str, Any]) -> list[str]:
    kinds = list(next(iter(table["rows"].values())))
    heads = [f"{kind}: {key}" for kind in kinds for key in ("requests/s", "p50, ms", "CPU ms each")]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for title, found in table["rows"].items():
        cells = [
            f"{found[kind][key]:.1f}"
            for kind in kinds
            for key in ("requests a second", "p50 ms", "CPU ms a request")
        ]
        lines.append(f"| {' | '.join([title, *cells])} |")
    return [*lines, "", _footer(table)]


def _footer(table: dict[str, Any]) -> str:
    machine = table["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"`{table['command']}`, {machine['day']}, commit {machine['commit']}, "
        f"{machine['processor']} ({', '.join(machine['flags'])}); {versions}."
    )


if __name__ == "__main__":
    target = Path(__file__).parents[2] / "docs" / "performance.md"
    target.write_text(page(), "utf-8")
