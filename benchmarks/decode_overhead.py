"""Measures the cost of the searches in `keras_transformers.decoding`, without a model.

    python benchmarks/decode_overhead.py

Figures are CPU time on one thread for 25 tokens. The first table has the searches alone, with a
vocabulary of 32,000, no end token and no cache. The step picks one of four matrices of random
logits; its cost in the same loop is subtracted. For comparison, it includes textbook beam search
(log_softmax, then one top_k over all beams and tokens) and, if installed, keras_hub's samplers
(whose beam search has no pool of finished beams, and whose greedy search keeps no scores).

The second table has 4 beams and the self-attention of six Transformer-base layers (8 heads of 64)
without projections, for at most 75 tokens. It compares growing keys and values with buffers of full
length, and shows the cost of reordering the cache with the beams, which greedy search avoids.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf  # noqa: E402

from keras_transformers.decoding import (  # noqa: E402
    Hypotheses,
    beam_search,
    greedy_search,
    sample,
)

START, END = 1, 2
NUM_LAYERS, NUM_HEADS, HEAD_DIM, CACHE_LIMIT = 6, 8, 64, 75
LOGIT_TABLES = 4  # alternate, so that the graph optimizer cannot hoist work out of the loop


def table_step(rows: int, vocabulary_size: int) -> Callable[..., Any]:
    tables = [tf.random.normal((rows, vocabulary_size), seed=i) for i in range(LOGIT_TABLES)]

    def step(token_ids: tf.Tensor, index: tf.Tensor, cache: Any) -> tuple[tf.Tensor, Any]:
        branches = [lambda table=table: table for table in tables]
        return tf.switch_case(index % LOGIT_TABLES, branches), cache

    return step


def only_step(step: Callable[..., Any], rows: int, length: int) -> tf.Tensor:
    """Runs the loop without a search: the cost to subtract."""

    def body(index: tf.Tensor, token_ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logits, _ = step(token_ids, index, ())
        return index + 1, tf.cast(logits[:, 0], tf.int32)

    loop = tf.while_loop(lambda index, _: index < length, body, (0, tf.fill([rows], START)))
    return loop[1]


def textbook_beam_search(
    step: Callable[..., Any], batch: int, num_beams: int, length: int, vocabulary_size: int
) -> tf.Tensor:
    """Searches with only the alive pool, by log_softmax and top_k over everything."""

    def body(index: tf.Tensor, sequences: tf.Tensor, alive: tf.Tensor) -> tuple[tf.Tensor, ...]:
        logits, _ = step(tf.reshape(sequences[:, :, -1], [-1]), index, ())
        scores = tf.reshape(tf.nn.log_softmax(logits), (batch, num_beams, vocabulary_size))
        scores = tf.reshape(scores + alive[:, :, None], (batch, -1))
        scores, chosen = tf.math.top_k(scores, 2 * num_beams)
        scores = tf.where(chosen % vocabulary_size == END, -1e9, scores)
        alive, best = tf.math.top_k(scores, num_beams)
        chosen = tf.gather(chosen, best, batch_dims=1)
        sequences = tf.gather(sequences, chosen // vocabulary_size, batch_dims=1)
        here = tf.range(length) == index
        sequences = tf.where(here, chosen[:, :, None] % vocabulary_size, sequences)
        return index + 1, sequences, alive

    start = (0, tf.fill((batch, num_beams, length), START), tf.zeros((batch, num_beams)))
    return tf.while_loop(lambda index, *_: index < length, body, start)[1]


def hub_search(
    step: Callable[..., Any], batch: int, num_beams: int, length: int
) -> Callable[[], Any] | None:
    """Returns keras_hub's sampler over the same step, or None if it is not installed."""
    try:
        import keras_hub
    except ImportError:
        return None
    samplers = keras_hub.samplers
    sampler = samplers.BeamSampler(num_beams) if num_beams > 1 else samplers.GreedySampler()

    def next_logits(prompt: tf.Tensor, cache: Any, index: tf.Tensor) -> tuple[Any, None, Any]:
        logits, cache = step(prompt[:, 0], index - 1, cache)
        return logits, None, cache

    def search() -> tf.Tensor:
        prompt = tf.fill((batch, length + 1), START)
        mask = tf.tile((tf.range(length + 1) == 0)[None], (batch, 1))
        return sampler(next_logits, prompt, cache=(), index=1, mask=mask, stop_token_ids=None)

    return search


def milliseconds(function: Callable[[], Any], *, jit_compile: bool, repeats: int) -> float:
    """Returns the CPU time of one call, the best of `repeats`, without compilation."""
    compiled = tf.function(function, jit_compile=jit_compile)
    compiled()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        compiled()
        times.append(time.process_time() - start)
    return min(times) * 1e3


def searches(
    step: Callable[..., Any], batch: int, num_beams: int, length: int, vocabulary_size: int
) -> dict[str, Callable[[], Any]]:
    starts = tf.fill([batch], START)
    forced = {"end_token_id": END, "max_length": length, "min_length": length}
    free = {"end_token_id": None, "max_length": length, "seed": 1}
    textbook = partial(textbook_beam_search, step, batch, num_beams, length, vocabulary_size)
    rows: dict[str, Callable[[], Any] | None] = {}
    if num_beams == 1:
        rows["greedy"] = partial(greedy_search, step, starts, **forced)
        rows["sample"] = partial(sample, step, starts, **free)
        rows["sample, top_k 50"] = partial(sample, step, starts, top_k=50, **free)
        rows["sample, top_p 0.9"] = partial(sample, step, starts, top_p=0.9, **free)
    else:
        rows[f"beam {num_beams}"] = partial(
            beam_search, step, starts, num_beams=num_beams, **forced
        )
        rows[f"beam {num_beams}, textbook"] = textbook
    name = "greedy" if num_beams == 1 else f"beam {num_beams}"
    rows[f"{name}, keras_hub"] = hub_search(step, batch, num_beams, length)
    return {name: search for name, search in rows.items() if search is not None}


def attention_step(token_ids: tf.Tensor, index: tf.Tensor, cache: Any) -> tuple[tf.Tensor, Any]:
    """Runs self-attention in all layers; the cache has each layer's keys and values."""
    rows = tf.shape(token_ids)[0]
    logits = tf.reshape(tf.cast(tf.range(rows * 128) * 7919 % 997, tf.float32), (rows, 128))
    state = tf.reshape(tf.tile(logits, (1, 4)), (rows, NUM_HEADS, 1, HEAD_DIM)) / 997.0
    grown = []
    for keys, values in cache:
        if keys.shape[2] is None:
            keys, values = (tf.concat([old, state], axis=2) for old in (keys, values))
            mask = tf.constant(True)
        else:
            flat = (rows * NUM_HEADS, CACHE_LIMIT, HEAD_DIM)
            here = tf.stack([tf.range(flat[0]), tf.fill([flat[0]], index)], axis=1)
            new = tf.reshape(state, (-1, HEAD_DIM))
            keys, values = (
                tf.reshape(
                    tf.tensor_scatter_nd_update(tf.reshape(old, flat), here, new), tf.shape(old)
                )
                for old in (keys, values)
            )
            mask = tf.range(CACHE_LIMIT) <= index
        scores = tf.where(mask, tf.matmul(state, keys, transpose_b=True) / 8.0, -1e9)
        state = tf.matmul(tf.nn.softmax(scores), values)
        grown.append((keys, values))
    return logits + tf.reshape(state, (rows, -1))[:, :128], grown


def search_with_cache(batch: int, num_beams: int, growing: bool) -> Hypotheses:
    shape = (batch, NUM_HEADS, 0 if growing else CACHE_LIMIT, HEAD_DIM)
    return beam_search(
        attention_step,
        tf.fill([batch], START),
        [(tf.zeros(shape), tf.zeros(shape)) for _ in range(NUM_LAYERS)],
        end_token_id=None,
        max_length=CACHE_LIMIT,
        length_limits=tf.fill([batch], 25),
        num_beams=num_beams,
        growing_axis=2 if growing else None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabulary-size", type=int, default=32_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    length, vocabulary_size = 25, options.vocabulary_size

    print("search, ms a step       batch    graph      XLA")
    for batch, num_beams in ((1, 1), (32, 1), (1, 4), (32, 4)):
        step = table_step(batch * num_beams, vocabulary_size)
        price = partial(only_step, step, batch * num_beams, length)
        for name, search in searches(step, batch, num_beams, length, vocabulary_size).items():
            cells = []
            for jit_compile in (False, True):
                measure = partial(milliseconds, jit_compile=jit_compile, repeats=options.repeats)
                cells.append((measure(search) - measure(price)) / length)
            print(f"{name:22}{batch:7}{cells[0]:9.3f}{cells[1]:9.3f}", flush=True)

    print("\ncache, ms a step        batch    graph      XLA")
    for batch in (1, 32):
        for name, num_beams, growing in (
            ("growing, reordered", 4, True),
            ("growing, not reordered", 1, True),
            ("full, reordered", 4, False),
            ("full, not reordered", 1, False),
        ):
            search = partial(search_with_cache, batch * 4 // num_beams, num_beams, growing)
            measure = partial(milliseconds, search, repeats=options.repeats)
            graph = measure(jit_compile=False) / length
            xla = float("nan") if growing else measure(jit_compile=True) / length
            print(f"{name:22}{batch:7}{graph:9.3f}{xla:9.3f}", flush=True)


if __name__ == "__main__":
    main()
