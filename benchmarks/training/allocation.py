"""Measures the CPU time that an update saves if freed memory is kept.

    pip install -e '.[benchmark]'
    python benchmarks/training/allocation.py

Every figure is the median of the updates of several processes, each with one thread, which take
turns. Separate processes are needed because glibc accepts the setting only before the first
operation. keras_hub runs the shapes that it has too, as a plain program would, and with the same
memory.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "suite"))
import contest

JOBS = ("MiniLM", "MiniLM, keras_hub", "BERT-small", "BERT-small, keras_hub", "translation")
TITLES = {
    "MiniLM": "MiniLM, classifier, 32 x 30",
    "BERT-small": "BERT-small, masked words, 8 x 128",
    "translation": "transformer_tiny, V = 8,000, 240 pairs of 17 tokens",
}
UPDATES, FIRST = 12, 4


def main() -> None:
    """Prints the table, or in a separate process the figures of one job."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(measure(arguments.job, keep=arguments.keep)))
        return
    found: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for _ in range(arguments.rounds):
        for job in arguments.jobs:
            for keep in (False, True):
                command = [sys.executable, __file__, "--job", job, *(["--keep"] if keep else [])]
                output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                found.setdefault((job, keep), []).append(json.loads(output.stdout))
    print("# python benchmarks/training/allocation.py")
    print(contest.machine())
    print("| update | default, ms | in the kernel | kept, ms | in the kernel | ratio |")
    print("|---|--:|--:|--:|--:|--:|")
    for job in arguments.jobs:
        cells, totals = [], []
        for keep in (False, True):
            steps = [ms for result in found[job, keep] for ms in result["ms"]]
            kernel = statistics.median(result["kernel_ms"] for result in found[job, keep])
            totals.append(statistics.median(steps))
            cells.append(f"{totals[-1]:,.0f} | {kernel:,.0f}")
        shape, _, peer = job.partition(", ")
        title = f"{TITLES[shape]}{', ' + peer if peer else ''}"
        print(f"| {title} | {' | '.join(cells)} | {totals[1] / totals[0]:.2f} |")


def measure(job: str, *, keep: bool) -> dict[str, Any]:
    """Returns the CPU milliseconds of each update, and the mean of those in the kernel."""
    from keras_transformers.training.memory import keep_freed_memory

    if keep and not keep_freed_memory():
        raise SystemExit("this C library is not glibc: there is nothing to compare")
    step = translation() if job == "translation" else encoder(job)
    for _ in range(FIRST):
        step()
    times, kernel = [], resource.getrusage(resource.RUSAGE_SELF).ru_stime
    for _ in range(UPDATES):
        start = time.process_time()
        step()
        times.append(1e3 * (time.process_time() - start))
    kernel = resource.getrusage(resource.RUSAGE_SELF).ru_stime - kernel
    return {"ms": times, "kernel_ms": 1e3 * kernel / UPDATES}


def encoder(job: str) -> Callable[[], Any]:
    """Returns an update of the shapes of `benchmarks/suite/training.py`."""
    import training

    shape, _, peer = job.partition(", ")
    steps = training.fine_tuning() if shape == "MiniLM" else training.masked_words()
    return steps[peer or "ours"]


def translation() -> Callable[[], Any]:
    """Returns an update of the translation recipe's model."""
    import numpy as np

    import keras_transformers as kt

    model = kt.create_model("transformer_tiny", vocabulary_size=8000, norm_position="pre")
    loss = kt.training.TokenCrossentropy(label_smoothing=0.1)
    model.compile(kt.training.adam(1e-3), loss={"logits": loss}, jit_compile=False)
    ids = np.random.default_rng(0).integers(4, 8000, (240, 17)).astype(np.int32)
    inputs = {"source_token_ids": ids, "target_token_ids": ids}
    return lambda: model.train_on_batch(inputs, {"logits": ids})


if __name__ == "__main__":
    main()
