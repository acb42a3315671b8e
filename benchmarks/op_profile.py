"""Profiles an export by TensorFlow ops, in a V1 session on one thread.

    pip install -e '.[benchmark]'
    python benchmarks/op_profile.py --lengths 12 128

For MiniLM's and BERT-Base's shapes with random weights and one row of token ids, in float32 and
int8, it prints the microseconds and the number of calls of the ten slowest ops in a run, and the
total of all ops. The time between ops is not included, and tracing makes each op a little slower.
"""

import argparse
import collections
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).with_name("suite")))

import contest  # noqa: F401  first: it sets the number of threads
import tensorflow as tf
from encoders import SIZES, batch_of, classifier, random_encoder

import keras_transformers as kt

v1 = tf.compat.v1
RUNS = 30


def profile(export: Path, length: int) -> tuple[collections.Counter, collections.Counter]:
    """Returns the microseconds of each op and how often it ran, per run."""
    with v1.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, ["serve"], str(export)).signature_def["tokens"]
        outputs = [tensor.name for tensor in signature.outputs.values()]
        batch = batch_of([length])
        feeds = {signature.inputs[name].name: batch[name] for name in signature.inputs}
        for _ in range(20):
            session.run(outputs, feeds)
        times: collections.Counter[str] = collections.Counter()
        counts: collections.Counter[str] = collections.Counter()
        for _ in range(RUNS):
            for op, microseconds in traced(session, outputs, feeds):
                times[op] += microseconds / RUNS
                counts[op] += 1
        return times, counts


def traced(session: Any, outputs: list[str], feeds: dict[str, Any]) -> list[tuple[str, float]]:
    """Returns each op of one run and its microseconds."""
    metadata = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    session.run(outputs, feeds, options=options, run_metadata=metadata)
    return [
        (
            node.timeline_label.partition(" = ")[2].partition("(")[0] or node.node_name,
            (node.op_end_rel_nanos - node.op_start_rel_nanos) / 1e3,
        )
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", nargs="+", choices=SIZES, default=["MiniLM-L6"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[12])
    arguments = parser.parse_args()
    if not all(1 <= length <= 512 for length in arguments.lengths):
        parser.error(f"--lengths {arguments.lengths}: take 1 to 512 tokens")
    for name in arguments.models:
        for dtype in ("float32", "int8"):
            with tempfile.TemporaryDirectory() as folder:
                pipeline = classifier(random_encoder(name))
                export = kt.export(pipeline, folder, check=False, weights_dtype=dtype)
                for length in arguments.lengths:
                    times, counts = profile(export, length)
                    print(f"{name}, {dtype}, 1 x {length}: {times.total():.0f} us", flush=True)
                    for op, spent in times.most_common(10):
                        print(f"{spent:10.1f} us {counts[op] // RUNS:5} x {op}")


if __name__ == "__main__":
    main()
