"""Writes docs/performance.md from the suite's tables: `python benchmarks/suite/report.py`.

`make benchmark` runs the suite, writes the page and draws its charts (docs/site/charts.py); tests
compare page and charts with the tables.
"""

import json
from pathlib import Path
from typing import Any

from contest import INSTRUCTION_SETS, RESULTS, best_peer, is_ours

_TABLES = {
    "encoders": """\
## Encoders

From token ids to probabilities, in float32. The last block of ours computes only the first token,
which the classifier reads; ONNX Runtime and OpenVINO compute it for all positions, as in the graphs
that transformers exports. The last row of a model is a batch with the lengths of real sentences:
ours computes only real tokens, while the others also compute the padding; keras_hub's preprocessors
pad to 128.
""",
    "int8": """\
## Encoders in int8

The same shapes: exports with `weights_dtype="int8"` and float32, compared with ONNX Runtime's
`quantize_dynamic` of the same weights. [Exports](exports.md#int8) has the cost in accuracy.
""",
    "training": """\
## Training steps

A whole `train_on_batch`, and the same model's forward pass, in float32 unless the row says
otherwise. The backward pass computes twice as many products as the forward pass, so a step takes at
least three forward passes. "Products alone" computes only the step's matrix products: no step in
float32 can be faster. `--precision mixed_bfloat16` can, on processors with bfloat16 products (the
flag avx512_bf16 or amx_bf16); weights and optimizer stay in float32. XLA does not pay off on a CPU
with models of this size.
""",
    "generation": """\
## Text generation

GPT-2 small: 16 prompt tokens, then 32 by greedy search. Each token reads every matrix once, 498 MB
in float32; at batch size 1 this takes nearly all the time. "Ours, int8" computes like exports with
`weights_dtype="int8"`; the peers compute in float32.
""",
    "llama": """\
## Llama

SmolLM2-135M's shape: 16 prompt tokens, then 32 by greedy search; llama.cpp computes 8 texts one
after another. "int8" means `weights_dtype="int8"` for ours and Q8_0 for llama.cpp; keras_hub and
transformers were not run in int8. For ours and keras_hub, the memory is that of a process which
also built the model in Python, in int8 with the float32 matrices as well; an export loads only its
own matrices.
""",
    "translation": """\
## Translation

Transformer-base's shape, V = 32,000, with the same weights and the same answers: 25 source tokens,
25 forced target tokens.
""",
}
_ON_EVERY_PROCESSOR = ("encoders", "int8", "translation")
_SERVING = """\
## Serving

Probabilities for sentences of film reviews, computed with the C++ loader that TF Serving uses
([batched_serving.cc](../benchmarks/cpp/batched_serving.cc)). Requests run in their client's thread,
or in batches by TF Serving's own scheduler: at most 32 requests that wait for 1 ms, two batches at
once ([kubernetes.yaml](deployment/kubernetes.yaml)). HTTP and gRPC are not included. Clients send
their next text after receiving an answer. Batching needs less CPU time per request, but requests
wait for each other: turn it on only if you have enough clients.
"""
_INTRODUCTION = """\
# Performance

Figures are medians of CPU milliseconds on one thread; all contestants of a row take turns in one
process. The last columns have the ratio of ours to the best peer: below 1, ours is faster.
`make benchmark` measures again and writes this page; the quartiles are in
[benchmarks/results/suite](../benchmarks/results/suite). `make benchmark-avx2` adds tables for
processors with AVX2 alone. A table whose command begins with `TF_ENABLE_ONEDNN_OPTS=0
ONEDNN_MAX_CPU_ISA=AVX2 CT2_FORCE_CPU_ISA=AVX2` is from a larger processor that stands in for one;
ONNX Runtime has no such limit and keeps AVX-512 there, so that it looks faster than it is.

![Our CPU time as a share of the best peer's, a marker per row of the tables](images/speed.svg)
"""
_CLOSING = """\
## Optimizations in exports

An export's answers equal the model's but for rounding, as its check shows. It computes

- query, key and value as one matrix product;
- only real tokens: they are gathered into rows once, and padded again only for the attention;
- of the last block only what the head reads, such as the first token's vector in a classifier. In
  Python and in training, models with a head do the same;
- the mask of the attention scores once for all layers;
- layer norms with oneDNN's kernel instead of nine steps, in batches of more than a few tokens; in
  int8 the scales of the matrices hold the constants of `gelu`;
- products with few rows, as in short texts and decoding steps, from matrices stored in panels of
  columns. TensorFlow's kernels rearrange a matrix into this layout before each product, which takes
  longer than the product itself. Language models and translators store panels alone. An
  encoder in float32 stores its matrices unchanged and rearranges them once, when it is loaded;
  batches of at most 40 tokens then use the panels, and longer ones the matrices, whose product also
  adds the bias and computes the activation. `kt.export(..., arrange_matrices=False)` turns this
  off, which saves the memory of an encoder's panels.

Loading chooses the layout, so that an export may be made on another processor than the one that
serves it. TensorFlow uses oneDNN by default on processors with AVX-512 VNNI or better. Elsewhere,
as with AVX2 alone, panels are fast for a single row, such as a step of one user's chat, and slow
for more. There loading makes each matrix of an encoder or a translator one panel; an encoder's rows
are moved apart where their distance is a multiple of 2,048 bytes, which would share few places of
the cache. Leave `TF_ENABLE_ONEDNN_OPTS` unset there unless you serve large batches alone.

`python benchmarks/op_profile.py` shows the time of each op for one text
([results](../benchmarks/results/op_profile.txt)).
"""


def page() -> str:
    """Returns the text of docs/performance.md."""
    parts = [_INTRODUCTION]
    for name, text in _TABLES.items():
        table = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
        title = text.partition("\n")[0].lstrip("# ")
        parts += [text, _chart(name, f"{title}: CPU time as a share of the best peer's"), ""]
        parts += [*_rows(table["rows"]), "", *_memory(table), *_loading(table), _footer(table), ""]
        parts += _others(name) if name in _ON_EVERY_PROCESSOR else []
    parts += [_SERVING, _chart("serving", "Requests per second by clients, one by one and batched")]
    parts += ["", *_served(json.loads((RESULTS / "serving.json").read_text("utf-8"))), ""]
    return "\n".join([*parts, _CLOSING.rstrip("\n"), ""])


def _others(name: str) -> list[str]:
    """Returns a table for each other instruction set, or that there is none."""
    parts, missing = [], []
    for instructions, (_, suffix) in INSTRUCTION_SETS.items():
        path = RESULTS / f"{name}{suffix}.json"
        if suffix and path.exists():
            table = json.loads(path.read_text("utf-8"))
            parts += [f"With {instructions} alone:" if instructions == "AVX2" else instructions, ""]
            parts += [*_rows(table["rows"]), "", _footer(table), ""]
        elif suffix:
            missing.append(instructions)
    return [*parts, *([f"Not measured with {' or '.join(missing)}.", ""] if missing else [])]


def _chart(name: str, shows: str) -> str:
    """Returns the link to a picture that docs/site/charts.py draws from the same table."""
    return f"![{shows}; the table has the figures](images/performance/{name}.svg)"


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
    picture = _chart("llama_memory", "Peak memory of a process with one engine")
    return [picture, "", "| process with one engine | peak memory, MB |", "|---|--:|", *rows, ""]


def _loading(table: dict[str, Any]) -> list[str]:
    """Returns a table of what loading costs, if it was measured."""
    if "loading" not in table:
        return []
    rows = [
        f"| {name} | {found['file']:.0f} | {found['load']:.0f} | {found['memory']:.0f} |"
        for name, found in table["loading"].items()
    ]
    heads = "| loading, and one short text | files, MB | CPU ms to load | more memory, MB |"
    picture = _chart("encoders_loading", "CPU time and memory that loading an encoder takes")
    return [picture, "", heads, "|---|--:|--:|--:|", *rows, ""]


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
    ran = [machine[key] for key in ("instruction_set", "kernels") if key in machine]
    return (
        f"`{table['command']}`, {machine['day']}, commit {machine['commit']}, "
        f"{machine['processor']} ({', '.join(machine['flags'])}); {', '.join([*ran, versions])}."
    )


if __name__ == "__main__":
    target = Path(__file__).parents[2] / "docs" / "performance.md"
    target.write_text(page(), "utf-8")
