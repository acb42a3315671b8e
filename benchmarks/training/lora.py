"""Compares low-rank updates with training all weights: a step's time and memory, and the score.

    python benchmarks/training/lora.py WEIGHTS SST2 [--epochs 3] > benchmarks/results/lora.txt

WEIGHTS is MiniLM's folder, SST2 the folder with train.tsv.gz and dev.tsv.gz. A step has 32
sentences of 64 tokens. Each kind trains in its own process, on one thread, and the processes take
turns. Time is CPU time; memory is the peak resident memory in excess of that of the loaded model.
Scores are those of `kt.fit` with its defaults, on all threads. Without --epochs only the steps are
measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

KINDS = {
    "all weights": {},
    "lora=8": {"lora": 8},
    "lora=8, feed-forward too": {"lora": 8, "lora_targets": ("attention", "feed_forward")},
}
ROUNDS, STEPS = 3, 12


def step(weights: str, kind: str) -> None:
    """Trains on made-up texts; prints CPU seconds per step, and MB."""
    import time

    import keras_transformers.quiet  # before Keras, which loads TensorFlow

    import keras

    import keras_transformers as kt

    class Clock(keras.callbacks.Callback):
        """Notes the CPU time at the end of each step."""

        times: list[float] = []  # noqa: RUF012

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            """Notes the time."""
            self.times.append(time.process_time())

    classify = kt.load(weights, pipeline="classification", labels=["0", "1"], pooling="mean")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _memory("VmRSS")
    texts = ["a film " * 30] * (32 * STEPS)
    kt.fit(classify, (texts, [0, 1] * (16 * STEPS)), epochs=1, quiet=True, callbacks=[Clock()],
           **KINDS[kind])  # fmt: skip
    gaps = [after - start for start, after in zip(Clock.times[2:], Clock.times[3:], strict=False)]
    print(json.dumps([statistics.median(gaps), _memory("VmHWM") - before]))


def _memory(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1e3


def score(weights: str, data: Path, epochs: int, kind: str) -> None:
    """Fine-tunes on SST-2; prints the accuracy on dev."""
    import keras_transformers.quiet

    import keras_transformers as kt

    classify = kt.load(weights, pipeline="classification", labels=["0", "1"], pooling="mean")
    history = kt.fit(classify, data / "train.tsv.gz", validation=data / "dev.tsv.gz",
                     epochs=epochs, quiet=True, **KINDS[kind])  # fmt: skip
    print(f"SST-2 dev accuracy, {kind}: {max(history.history['val_accuracy']):.4f}", flush=True)


def main() -> None:
    """Prints a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights")
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--step", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        step(options.weights, options.step)
        return
    environment = {**os.environ, "TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    found: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    for _ in range(ROUNDS):
        for kind, measured in found.items():
            command = [sys.executable, __file__, options.weights, str(options.data), "--step", kind]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)
            measured.append(json.loads(done.stdout.splitlines()[-1]))
    whole = statistics.median(seconds for seconds, _ in found["all weights"])
    print("| kind | CPU ms per step | of all weights | memory, MB |\n|---|--:|--:|--:|")
    for kind, measured in found.items():
        seconds, megabytes = (statistics.median(values) for values in zip(*measured, strict=True))
        print(f"| {kind} | {1000 * seconds:.0f} | {seconds / whole:.2f} | {megabytes:,.0f} |")
    for kind in KINDS if options.epochs else ():
        score(options.weights, options.data, options.epochs, kind)


if __name__ == "__main__":
    main()
