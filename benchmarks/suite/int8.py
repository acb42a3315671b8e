"""Compares encoder inference in int8: our export and ONNX Runtime's dynamic quantization.

    pip install -e '.[benchmark]'
    python benchmarks/suite/int8.py

Shapes, random weights and batches are those of `encoders.py`. Ours scales each vector separately,
ONNX Runtime all vectors of a batch together; in both, the matrices are int8 and sums are exact.
Times are measured only if both are close to our export in float32.
"""

import argparse
import functools
import tempfile
from pathlib import Path

import contest  # first: it sets the number of threads
import keras
import numpy as np
import onnxruntime
from encoders import (
    SHAPES,
    SIZES,
    Engine,
    batch_of,
    classifier,
    random_encoder,
    sentence_lengths,
    session_of,
    softmax,
)
from onnxruntime.quantization import QuantType, quantize_dynamic

import keras_transformers as kt


def engines(name: str, folder: Path) -> dict[str, Engine]:
    """Returns the contestants, which map token ids to probabilities."""
    pipeline = classifier(random_encoder(name))
    exports = {
        dtype: kt.export(pipeline, folder / name / dtype, check=False, weights_dtype=dtype)
        for dtype in ("int8", "float32")
    }
    float32, int8 = (folder / f"{name}-{kind}.onnx" for kind in ("float32", "int8"))
    # All positions of all blocks, as transformers' models are exported; ours computes fewer.
    kt.convert.save_onnx(keras.Model(pipeline.model.input, pipeline.model.output), float32)
    quantize_dynamic(float32, int8, weight_type=QuantType.QInt8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    onnx = onnxruntime.InferenceSession(int8, options, providers=["CPUExecutionProvider"])
    ours = {dtype: session_of(export, "tokens") for dtype, export in exports.items()}
    return {
        "ours, int8": lambda batch: ours["int8"](batch)[0],
        "ours, float32": lambda batch: ours["float32"](batch)[0],
        "ONNX Runtime, int8": lambda batch: softmax(onnx.run(["logits"], batch)[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=8.0, help="for each row")
    arguments = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            contestants = engines(name, Path(folder))
            batches = {f"{b} x {n}": batch_of([n] * b) for b, n in SHAPES[name]}
            lengths = sentence_lengths()
            batches[f"32 sentences of {min(lengths)} to {max(lengths)}"] = batch_of(lengths)
            for shape, batch in batches.items():
                expected = contestants["ours, float32"](batch)
                for engine, run in contestants.items():
                    difference = np.abs(run(batch) - expected).max()
                    assert difference < 0.02, f"{engine} differs by {difference}"
                jobs = {
                    engine: functools.partial(run, batch) for engine, run in contestants.items()
                }
                found = contest.take_turns(jobs, seconds=arguments.seconds)
                rows[f"{name}, {shape}"] = found
                print(contest.line(f"{name}, {shape}", found), flush=True)
    contest.write("int8", "python benchmarks/suite/int8.py", rows)


if __name__ == "__main__":
    main()
