"""Continues rows of tokens: in one graph, or step by step."""

import functools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.decoding.greedy import greedy_search
from keras_transformers.decoding.rows import (
    ROW_OPTIONS,
    draw_tokens,
    numbers_of_rows,
    row_search,
    state_specs,
)
from keras_transformers.decoding.single_path import Path, SinglePath, Step, is_any, step_by_step
from keras_transformers.decoding.step import (
    Cache,
    Hypotheses,
    StepFunction,
    check_logits,
    telling,
    within_vocabulary,
)
from keras_transformers.tasks.generation.answer import Generation
from keras_transformers.tasks.generation.pieces import pieces
from keras_transformers.tasks.generation.tokens import as_text, token_bytes
from keras_transformers.tasks.tracing import traced
from keras_transformers.tokenizers.protocols import GeneratorTokenizer

__all__: list[str] = []

TOKENS = ("token_ids", "token_log_probabilities")  # what only some callers need
_GROWING_AXIS = 2  # of the cache's keys and values (rows, heads, time, head_dim)
# What `Prompts.rows` makes.
_ROWS = {
    "token_ids": tf.TensorSpec([None, None], tf.int32),
    "num_tokens": tf.TensorSpec([None], tf.int32),
    "stop": tf.TensorSpec([None, None], tf.string),
    **{name: tf.TensorSpec([None], dtype) for name, dtype in ROW_OPTIONS.items()},
}


class Decoder:
    """Samples continuations of rows of tokens, each with its own options.

    `sample` runs the search in a loop of the graph. `steps` runs the same search in Python: one
    graph reads the prompts, another one takes a step. Between them is a state of tensors, the path
    and the cache; each step also takes the rows that the first graph took. `begin`, `read`, `step`
    and `texts` are the parts of the search for a server, in which rows have taken different numbers
    of steps.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer.
        longest: the maximum number of tokens in a text, with the start token.
        also_end_token_ids: tokens that end texts in addition to the tokenizer's end token.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: GeneratorTokenizer,
        *,
        longest: int,
        also_end_token_ids: Sequence[int] = (),
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._longest = longest
        self._also_end_token_ids = also_end_token_ids

    def sample(self, **rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the continuations of rows, in the graph.

        Args:
            **rows: those of `Prompts.rows`.

        Returns:
            The outputs of `TextGenerator.generate`.
        """
        sampled = self.sample_tokens(**rows)
        return {n: value for n, value in sampled.items() if n not in TOKENS}

    def sample_tokens(self, **rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the continuations of rows with their tokens, in the graph.

        Args:
            **rows: those of `Prompts.rows`.

        Returns:
            The outputs of `sample`; `token_ids` int32 and `token_log_probabilities` float32
            (batch, length), padding and 0 after a text's own.
        """
        mask = _mask(**rows)
        step, last_token_ids, cache = self._model.start_decoding(rows["token_ids"], mask)
        search = self._search(step, last_token_ids, mask, **rows)
        path = search.follow(last_token_ids, cache, growing_axis=_GROWING_AXIS)
        sampled = search.hypotheses(path)
        lengths = sampled.lengths[:, 0]
        # Without the padding, which is text if the tokenizer pads with an ordinary token.
        token_ids = tf.RaggedTensor.from_tensor(sampled.token_ids[:, 0], lengths)
        return {
            "text": self._text(token_ids, rows["stop"]),
            "num_new_tokens": lengths,
            "log_probability": sampled.scores[:, 0],
            "finished": sampled.finished[:, 0],
            "num_prompt_tokens": rows["num_tokens"],
            "token_ids": sampled.token_ids[:, 0],
            "token_log_probabilities": path.token_log_probs,
        }

    def greedy(
        self, token_ids: tf.Tensor, on_logits: Callable[[tf.Tensor], None], *, max_length: int
    ) -> Hypotheses:
        """Continues rows (batch, prompt) without padding; see `TextGenerator.watch_greedy`."""
        step, last_token_ids, cache = self._model.start_decoding(token_ids)
        step = within_vocabulary(step, self._tokenizer.vocabulary_size)
        return greedy_search(
            telling(step, on_logits),
            last_token_ids,
            cache,
            end_token_id=self._tokenizer.end_token_id,
            max_length=min(max_length, self._longest + 1 - token_ids.shape[1]),
            growing_axis=_GROWING_AXIS,
        )

    def steps(self, rows: Mapping[str, tf.Tensor]) -> Iterator[Step]:
        """Reads rows and returns the steps of `sample`, which are computed one by one."""
        path, cache = self._start(**rows)
        return step_by_step(lambda path, cache: self._extend(path, cache, rows), path, cache)

    def stream(self, row: Mapping[str, tf.Tensor]) -> Generator[str, None, Generation]:
        """Reads one row and returns a generator that yields its text and returns its answer.

        Args:
            row: the only one of `Prompts.rows`.
        """
        return self._pieces(self.steps(row), row)

    def _pieces(
        self, steps: Iterator[Step], row: Mapping[str, tf.Tensor]
    ) -> Generator[str, None, Generation]:
        stop = row["stop"]
        token_ids: list[int] = []
        text, log_probability, finished = "", np.float32(0), False

        def texts() -> Iterator[str]:
            nonlocal text, log_probability, finished
            for step in steps:
                token_ids.append(step.token_ids[0])
                log_probability += step.log_probs[0]  # in float32, as the graph adds them
                finished = bool(step.finished[0])
                text = self._text_graph(tf.constant([token_ids]), stop).numpy()[0].decode()
                yield text

        yield from pieces(texts(), [text.decode() for text in stop[0].numpy() if text])
        num_prompt_tokens = int(row["num_tokens"][0])
        return Generation(text, len(token_ids), float(log_probability), finished, num_prompt_tokens)

    # The steps of a server, in which rows join and leave; see `step_names`.

    def empty_cache(self, rows: int) -> Cache | None:
        """Returns the cache before `read`; None if the model cannot read prompts in parts."""
        make = getattr(self._model, "empty_cache", None)
        return None if make is None else make(rows)

    def begin(self, **rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns what the steps of rows, those of `Prompts.rows`, start from."""
        max_length = self._most_steps(rows["num_tokens"], rows["max_length"])
        longest = tf.reduce_max(tf.concat([max_length, [0]], axis=0))
        return {
            "token_ids": rows["token_ids"],
            "num_tokens": rows["num_tokens"],
            "max_length": max_length,
            "uniform": numbers_of_rows(rows["seed"], self._longest)[:, :longest],
        }

    def read(self, token_ids: tf.Tensor, num_empty: tf.Tensor, cache: Cache) -> Cache:
        """Returns the cache with more tokens of prompts, right-aligned (rows, new)."""
        return self._model.read_tokens(token_ids, num_empty, cache)

    def step(
        self,
        token_ids: tf.Tensor,
        num_empty: tf.Tensor,
        had: tf.Tensor,
        uniform: tf.Tensor,
        cache: Cache,
        **options: tf.Tensor,
    ) -> tuple[dict[str, tf.Tensor], Cache]:
        """Draws the token after each row's last (rows,), as `sample` does."""
        column = tf.shape(tf.nest.flatten(cache)[0])[_GROWING_AXIS]
        step = self._model.decoding_step(num_empty, column + 1)
        step = within_vocabulary(step, self._tokenizer.vocabulary_size)
        logits, longer = step(token_ids, tf.constant(0), cache)
        chosen, log_probs = draw_tokens(check_logits(logits), had, uniform, **options)
        ends = [*self._also_end_token_ids]
        if self._tokenizer.end_token_id is not None:
            ends.append(self._tokenizer.end_token_id)
        is_end = is_any(chosen, ends)
        return {"token_ids": chosen, "log_probability": log_probs, "is_end": is_end}, longer

    def texts(
        self, token_ids: tf.Tensor, num_tokens: tf.Tensor, stop: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the texts of new tokens (rows, length), and whether they contain a stop."""
        ragged = tf.RaggedTensor.from_tensor(token_ids, num_tokens)
        pieces = token_bytes(self._tokenizer, token_ids, num_tokens)
        return {
            "text": self._text(ragged, stop),
            "is_stopped": self._stops(stop, ragged),
            "token_bytes": pieces,
            "tokens": as_text(pieces),
        }

    # Concrete functions: a tf.function would check every tensor of the cache at each step.

    @functools.cached_property
    def _start(self) -> Any:
        """Reads rows and returns the path and the cache before the first step."""

        def start(**rows: tf.Tensor) -> tuple[Path, Cache]:
            mask = _mask(**rows)
            step, last_token_ids, cache = self._model.start_decoding(rows["token_ids"], mask)
            return self._search(step, last_token_ids, mask, **rows).start(last_token_ids), cache

        return traced(start, **_ROWS)

    @functools.cached_property
    def _extend(self) -> Any:
        """Takes a step: `SinglePath.extend` of rows that were read before."""

        def extend(
            path: Path, cache: Cache, rows: Mapping[str, tf.Tensor]
        ) -> tuple[Path, Cache, tf.Tensor]:
            width = tf.shape(rows["token_ids"])[1]
            step = self._model.decoding_step(width - rows["num_tokens"], width)
            search = self._search(step, path.last_token_ids, _mask(**rows), **rows)
            return search.extend(path, cache)

        path, cache = self._start.structured_outputs
        specs = state_specs(path, cache, _GROWING_AXIS)
        return traced(extend, *specs, _ROWS)

    @functools.cached_property
    def _text_graph(self) -> Any:
        specs = (_ROWS["token_ids"], _ROWS["stop"])
        return traced(self._text, *specs)

    def _search(
        self,
        step: StepFunction,
        last_token_ids: tf.Tensor,
        mask: tf.Tensor,
        *,
        token_ids: tf.Tensor,
        num_tokens: tf.Tensor,
        stop: tf.Tensor,
        **options: tf.Tensor,
    ) -> SinglePath:
        return row_search(
            within_vocabulary(step, self._tokenizer.vocabulary_size),
            last_token_ids,
            end_token_id=self._tokenizer.end_token_id,
            longest=self._longest,
            pad_token_id=self._tokenizer.pad_token_id,
            also_end_token_ids=self._also_end_token_ids,
            prompt_token_ids=tf.where(mask, token_ids, token_ids[:, :1]),
            stops=functools.partial(self._stops, stop),
            **options | {"max_length": self._most_steps(num_tokens, options["max_length"])},
        )

    def _most_steps(self, num_tokens: tf.Tensor, max_length: tf.Tensor) -> tf.Tensor:
        # The model never reads the last token, so it needs no position.
        return tf.minimum(max_length, self._longest + 1 - num_tokens)

    def _text(self, token_ids: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        """Returns texts (batch,) up to the first of their stop strings (batch, stops)."""
        with tf.device("CPU:0"):  # string ops run only on the CPU
            text = self._whole_text(token_ids)
            return tf.cond(
                tf.reduce_any(stop != ""), lambda: cut(text, stop), lambda: tf.identity(text)
            )

    def _whole_text(self, token_ids: tf.Tensor) -> tf.Tensor:
        text = self._tokenizer.detokenize(token_ids)
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")

    def _stops(self, stop: tf.Tensor, token_ids: tf.Tensor) -> tf.Tensor:
        """Returns which texts (batch,) contain one of their stop strings (batch, stops)."""

        def has_one() -> tf.Tensor:
            text = self._whole_text(token_ids)
            return cut(text, stop) != text

        with tf.device("CPU:0"):
            rows = tf.shape(token_ids)[:1]
            return tf.cond(tf.reduce_any(stop != ""), has_one, lambda: tf.zeros(rows, tf.bool))


def cut(text: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
    """Returns texts (batch,) up to the first of their stop strings (batch, stops)."""

    def before(pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        line, separator = pair
        # An empty separator would split at white space, and an empty line has no parts.
        parts = tf.strings.split([line], sep=tf.where(separator == "", "\n", separator)).values
        return tf.where(separator == "", line, tf.concat([parts, [""]], axis=0)[0])

    lines = tf.broadcast_to(text[:, None], tf.shape(stop))
    pairs = tf.reshape(lines, [-1]), tf.reshape(stop, [-1])
    starts = tf.map_fn(before, pairs, fn_output_signature=tf.TensorSpec([], tf.string))
    starts = tf.reshape(starts, tf.shape(stop))
    return tf.gather(starts, tf.argmin(tf.strings.length(starts), axis=1), batch_dims=1)


def _mask(token_ids: tf.Tensor, num_tokens: tf.Tensor, **_: tf.Tensor) -> tf.Tensor:
    """Returns where the rows have tokens: bool (batch, length)."""
    return tf.sequence_mask(num_tokens, tf.shape(token_ids)[1])
