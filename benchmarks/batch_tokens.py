"""Measures when a batch of the local server is full: at so many rows, or at so many tokens.

    pip install -e '.[serving]'
    python benchmarks/batch_tokens.py EXPORT TEXTS

EXPORT is an encoder's, such as an `Embedder`'s; TEXTS is a file with one text per line, of mixed
lengths, plain or .gz. First prints the processor's time for a token in batches of equal lengths,
and how much dearer one long row makes a batch of short ones. Then 1, 8 and 64 clients send one text
after the other to the server's scheduler, in this process and without HTTP; the limits take turns
in each round. The latencies are of the shorter and of the longer half of the texts.
"""

import argparse
import itertools
import os
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import numpy as np

from keras_transformers.files import read_lines
from keras_transformers.saved_model.versions import resolve
from keras_transformers.serving.server.batching import BatchingOptions, Scheduler
from keras_transformers.serving.server.cancellation import Cancellation
from keras_transformers.serving.server.saved_models import SavedModel

ROWS_ONLY = 2**30
WORD = "film "  # one token


def column(texts: Sequence[str]) -> dict[str, np.ndarray]:
    return {"text": np.array([text.encode() for text in texts], object)}


class Model:
    """An export, called directly."""

    def __init__(self, path: Path) -> None:
        self.loaded = SavedModel(resolve(path), max_runs=4)
        self.signature = self.loaded.signatures["serving_default"]

    def seconds(self, texts: Sequence[str]) -> float:
        """Returns the least processor time of several runs of a batch."""
        inputs, times = column(texts), []
        while len(times) < 3 or (sum(times) < 0.3 and len(times) < 50):
            start = time.process_time()
            self.loaded.run(self.signature, inputs, timeout_s=60, cancellation=Cancellation())
            times.append(time.process_time() - start)
        return min(times)


def time_tokens(model: Model) -> None:
    sizes = (1, 4, 16, 32, 64)
    print("microseconds of processor time for a token, by rows:", *sizes)
    for length in (8, 16, 32, 64, 128):
        text = WORD * (length - 2)
        each = [1e6 * model.seconds([text] * n) / n / length for n in sizes if n * length <= 4096]
        print(f"  rows of {length:3d} tokens", *(f"{value:6.1f}" for value in each), flush=True)
    short = [WORD * 6] * 31
    for length in (16, 32, 64, 128):
        one = [WORD * (length - 2)]
        ratio = model.seconds([*short, *one]) / (model.seconds(short) + model.seconds(one))
        print(f"  31 rows of 8 with one of {length:3d}, to both apart: {ratio:.2f}", flush=True)


def send(model: Model, texts: Sequence[str], *, limit: int, clients: int) -> dict[str, object]:
    """Sends every text once; returns its latency, and the wall and processor time of all."""
    latencies, numbers, lock = [0.0] * len(texts), iter(range(len(texts))), threading.Lock()
    batches: list[int] = []
    scheduler = Scheduler(
        BatchingOptions(max_batch_tokens=limit),
        on_batch=lambda requests, _: batches.append(requests),
    )
    scheduler.start()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            start = time.perf_counter()
            inputs = column([texts[number]])
            answer = scheduler.submit(
                model.loaded, model.signature, inputs, deadline=time.monotonic() + 300
            )
            answer.result()
            latencies[number] = time.perf_counter() - start

    start, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(clients) as pool:
        for future in [pool.submit(work) for _ in range(clients)]:
            future.result()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    scheduler.close()
    return {"latencies": latencies, "wall": wall, "cpu": cpu, "rows": statistics.mean(batches)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("export", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--limits", type=int, nargs="+", default=[ROWS_ONLY, 1024, 512, 256])
    parsed = parser.parse_args()
    model = Model(parsed.export)
    print("load", *(f"{value:.1f}" for value in os.getloadavg()))
    time_tokens(model)
    lines = itertools.cycle(read_lines(parsed.texts))
    texts = list(itertools.islice(lines, parsed.requests))
    middle = statistics.median(map(len, texts))
    halves = [
        [i for i, t in enumerate(texts) if (len(t) > middle) == is_long] for is_long in (0, 1)
    ]
    print(
        f"{'':<24} {'requests/s':>10} {'CPU/request':>12} {'rows':>6}"
        f" {'short p50':>10} {'p99':>8} {'long p50':>10} {'p99':>8}  (ms)"
    )
    for clients in parsed.clients:
        runs: dict[int, list[dict]] = {limit: [] for limit in parsed.limits}
        for _, limit in itertools.product(range(parsed.rounds), parsed.limits):
            runs[limit].append(send(model, texts, limit=limit, clients=clients))
        for limit, found in runs.items():
            name = "rows only" if limit == ROWS_ONLY else f"{limit} tokens"
            wall, cpu, rows = (
                statistics.median(run[key] for run in found) for key in ("wall", "cpu", "rows")
            )
            shown = []
            for half in halves:
                times = [[run["latencies"][i] for i in half] for run in found]
                shown += [
                    1e3 * statistics.median(np.percentile(t, q) for t in times) for q in (50, 99)
                ]
            print(
                f"{clients:3d} clients, {name:<12} {len(texts) / wall:10.1f}"
                f" {1e3 * cpu / len(texts):12.2f} {rows:6.1f}"
                f" {shown[0]:10.0f} {shown[1]:8.0f} {shown[2]:10.0f} {shown[3]:8.0f}",
                flush=True,
            )
    print("load", *(f"{value:.1f}" for value in os.getloadavg()))


if __name__ == "__main__":
    main()
