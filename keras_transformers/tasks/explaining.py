"""Computes how much each token of a text adds to a pipeline's answer, in the graph.

Integrated gradients: Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks",
arXiv:1703.01365. On the straight path from the vector of padding, in the place of each token, to
the tokens' own vectors, a token's share is the integral of the score's slope along its vector. The
shares add up to the difference between the scores at both ends, apart from the error of the
numerical integration. Special tokens, such as [CLS], and positions stay what they are.
"""

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.dependencies import graph_errors
from keras_transformers.dependencies.private_api import run_through_graph
from keras_transformers.layers import ShiftRight
from keras_transformers.layers.scopes import DIFFERENTIABLE
from keras_transformers.models.anatomy import anatomy
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.pipeline import Signature, shared
from keras_transformers.tasks.texts import string_column, strings
from keras_transformers.tasks.token_inputs import TextPipeline, in_chunks
from keras_transformers.tasks.tracing import traced
from keras_transformers.tokenizers import words
from keras_transformers.tokenizers.offsets import to_characters
from keras_transformers.tokenizers.protocols import SpanTokenizer

__all__: list[str] = []

# Points of the path, by Gauss and Legendre; `benchmarks/explanations.py --compare` has others.
NUM_STEPS = 16
# Tokens in one call of the model. A gradient needs the vectors of all layers, and attention's
# grow with the square of the length: long texts go point by point.
_MOST_TOKENS = 1024
_MOST_ROWS = 32
_MOST_EXAMPLES = 8  # in an export

Rows = Mapping[str, tf.Tensor]


class Spans(NamedTuple):
    """The tokens of one input's texts, without special tokens.

    Attributes:
        ids: int32 (batch, None).
        starts: where each begins in its text, in bytes, int32 (batch, None).
        ends: where it ends, exclusive. A token that ends at byte 0 or before, such as one of a
            prompt before the text, is no part of the text.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Explained(NamedTuple):
    """What a model reads, and which of it is explained.

    Attributes:
        inputs: the model's inputs, (rows, length).
        places: int32 (rows, length), the number of the token at each position among the tokens of
            all texts, as `numbered` counts them; -1 where none is, or where it is not explained.
        of: int32 (rows,), the answer that each row belongs to.
        others: name -> tensor (rows, ...), what the score needs besides the model's outputs.
    """

    inputs: Rows
    places: tf.Tensor
    of: tf.Tensor
    others: Rows


class ExplainedPipeline(TextPipeline):
    """A pipeline that says how much each token of its texts adds to a score of its answer.

    An export with `explain=True` has two more signatures, where `tokens` is the largest num_tokens:

    - explain(the inputs of `explained_inputs`, string (batch,)) -> tokens string, text_index,
      starts, ends int32, shares float32 (batch, tokens), num_tokens int32, label string, score,
      baseline_score float32 (batch,). A token is its text from `starts` to `ends` (exclusive), in
      characters; `text_index` says of which input. `label` is the name of what is explained. The
      shares add up to score - baseline_score, apart from the error of NUM_STEPS points.
    - explain_label(the same, and label string (batch,), one of `explained` or "") -> the same.
    """

    tokenizer: SpanTokenizer

    @property
    @abc.abstractmethod
    def explained(self) -> tuple[str, ...]:
        """The names of the scores that can be explained, such as the labels."""

    @property
    def explained_inputs(self) -> tuple[str, ...]:
        """The inputs of explanations, in their order."""
        return self.text_names

    @abc.abstractmethod
    def explained_score(self, outputs: Rows, index: tf.Tensor, others: Rows) -> tf.Tensor:
        """Computes a score that adds up well, such as log-odds, from the model's outputs.

        Args:
            outputs: the model's outputs, (rows, ...).
            index: int32 (rows,), the index in `explained` of the score.
            others: those of `to_explain`.

        Returns:
            float32 (rows,).
        """

    def explained_index(self, inputs: Rows) -> tf.Tensor:
        """Returns the index of the answer's own score, int32 (rows,), from the model's inputs."""
        return tf.zeros(tf.shape(inputs["token_ids"])[:1], tf.int32)

    def spans(self, *texts: tf.Tensor) -> list[Spans]:
        """Tokenizes texts and finds each token's place."""
        return [Spans(*self.tokenizer.tokenize_with_offsets(text)) for text in texts]

    def to_explain(self, spans: Sequence[Spans], texts: Sequence[tf.Tensor]) -> Explained:
        """Returns what the model reads of texts, in the graph: one row for each answer.

        Args:
            spans: the tokens of each input.
            texts: the texts of each input, strings (batch,).
        """
        inputs, places = self._packed([one.ids for one in spans], numbered(spans))
        return Explained(inputs, explained_places(places, spans), tf.range(tf.size(texts[0])), {})

    def explain_label(self, label: tf.Tensor, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes each token's share of a score, in the graph; see `specs`.

        Args:
            label: which of `explained`, strings (batch,); "" for the answer's own.
            **texts: name in `explained_inputs` -> strings (batch,).
        """
        columns = [texts[name] for name in self.explained_inputs]
        with tf.device("CPU:0"):  # strings
            for column in columns:
                tf.debugging.assert_equal(
                    tf.size(column),
                    tf.size(label),
                    f"{', '.join(self.explained_inputs)} and label differ in number",
                )
            label = _checked(label, self.explained)
            spans = self.spans(*columns)
        read = self.to_explain(spans, columns)
        likeliest = self.explained_index(read.inputs)  # (rows,)
        with tf.device("CPU:0"):
            is_own = tf.gather(label == "", read.of)
            matches = label[:, None] == tf.constant(self.explained)  # (batch, names)
            index = tf.argmax(matches, axis=1, output_type=tf.int32)
            index = tf.where(is_own, likeliest, tf.gather(index, read.of))
            names = tf.gather(tf.constant(self.explained), index)  # (rows,)
        has_padding = not getattr(self.tokenizer, "pad_is_word", False)
        shares, score, baseline = integrated_gradients(
            self.model,
            self.tokenizer.pad_token_id if has_padding else None,
            read.inputs,
            read.places >= 0,
            lambda outputs, others: self.explained_score(outputs, others["index"], others),
            {**read.others, "index": index},
        )
        with tf.device("CPU:0"):
            batch = tf.size(label)
            return {
                **_by_token(shares, read, spans, columns),
                "label": tf.gather(names, _first_rows(read.of, batch)),
                "score": tf.math.unsorted_segment_mean(score, read.of, batch),
                "baseline_score": tf.math.unsorted_segment_mean(baseline, read.of, batch),
            }

    def explain_own(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes each token's share of the answer's own score; see `explain_label`."""
        with tf.device("CPU:0"):
            label = tf.fill(tf.shape(texts[self.explained_inputs[0]]), "")
        return self._explain(label=label, **texts)

    @shared
    def _explain(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return self.explain_label(**inputs)

    def explain_signatures(
        self, batches: Sequence[Mapping[str, np.ndarray]]
    ) -> dict[str, Signature]:
        """Returns `explain` and `explain_label`, with some rows of `batches` as their examples."""
        self.check_explained()
        inputs = dict.fromkeys(self.explained_inputs, tf.TensorSpec([None], tf.string))
        label = {"label": tf.TensorSpec([None], tf.string)}
        examples = self._explained_examples(batches)
        labelled = [
            {**batch, "label": strings([self.explained[-1]] * len(next(iter(batch.values()))))}
            for batch in examples
        ]
        return {
            "explain": Signature(self.explain_own, inputs, specs(), examples),
            "explain_label": Signature(self._explain, inputs | label, specs(), labelled),
        }

    def explain_rows(
        self, texts: Mapping[str, Sequence[str | bytes]], *, label: str | None = None
    ) -> list[dict[str, Any]]:
        """Explains rows of texts: a dict for each, as a client gets it from an export.

        Args:
            texts: name in `explained_inputs` -> strings.
            label: which of `explained`; the answer's own by default.

        Raises:
            ValueError: the inputs are others, or not strings; there is no such label; the tokenizer
                does not say where tokens are; or Keras does not run on TensorFlow.
        """
        self.check_explained()
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"explanations need Keras on TensorFlow, but it runs on "
                f"{keras.backend.backend()!r}: save the pipeline and explain it in a process with "
                "KERAS_BACKEND=tensorflow"
            )
        if set(texts) != set(self.explained_inputs):
            raise ValueError(
                f"explanations of {type(self).__name__} take "
                f"{', '.join(self.explained_inputs)}, not {', '.join(map(str, texts)) or 'nothing'}"
            )
        if label is not None and label not in self.explained:
            raise ValueError(f"label={label!r}: use one of {', '.join(self.explained)}")
        columns = {name: string_column(name, column) for name, column in texts.items()}
        counts = {name: len(column) for name, column in columns.items()}
        if len(set(counts.values())) != 1:
            raise ValueError(f"explanations need as many texts of each input, not {counts}")
        rows: list[dict[str, Any]] = []
        for row in zip(*columns.values(), strict=True):  # one by one: a row is a batch already
            batch = {name: tf.constant([text]) for name, text in zip(columns, row, strict=True)}
            with graph_errors.as_value_errors():
                outputs = self._explain_graph(label=tf.constant([label or ""]), **batch)
            rows += reading.rows({name: value.numpy() for name, value in outputs.items()}, [])
        return rows

    @functools.cached_property
    def _explain_graph(self) -> Callable[..., dict[str, Any]]:
        specs = {
            name: tf.TensorSpec([None], tf.string, name=name)
            for name in (*self.explained_inputs, "label")
        }
        return traced(self.explain_label, **specs)

    def check_explained(self) -> None:
        """Checks that the pipeline can be explained; ValueError with the remedy if not."""
        if not hasattr(self.tokenizer, "tokenize_with_offsets"):
            raise ValueError(
                f"{type(self.tokenizer).__name__} has no tokenize_with_offsets, by which "
                "explanations find a token's place: add it, as in tokenizers.WordPieceTokenizer"
            )

    def _packed(
        self, ids: Sequence[tf.RaggedTensor], numbers: Sequence[tf.RaggedTensor]
    ) -> tuple[Rows, tf.Tensor]:
        """Packs tokens; returns also the number at each position, -1 where no token is."""
        # Above the ids of special tokens, so that numbers tell tokens from these after packing.
        above = anatomy(self.model, "token_embedding").token_embedding.input_dim
        packed = self.pack([one.with_values(one.values + above) for one in numbers])
        return self.pack(ids), tf.maximum(packed["token_ids"] - above, -1)

    def _explained_examples(
        self, batches: Sequence[Mapping[str, np.ndarray]]
    ) -> list[dict[str, np.ndarray]]:
        """Returns a few rows: an explanation costs as much as many answers."""
        first = {name: batches[0][name][:_MOST_EXAMPLES] for name in self.explained_inputs}
        awkward = strings(["", b"\xff\xfe is no UTF-8 \x00"])
        return [
            first,
            dict.fromkeys(self.explained_inputs, awkward),
            dict.fromkeys(self.explained_inputs, strings([])),
        ]


def numbered(spans: Sequence[Spans]) -> list[tf.RaggedTensor]:
    """Returns each token's number among the tokens of all texts: int32, as the ids of `spans`."""
    numbers, start = [], tf.constant(0)
    for one in spans:
        count = tf.size(one.ids.values)
        numbers.append(one.ids.with_values(start + tf.range(count)))
        start += count
    return numbers


def explained_places(places: tf.Tensor, spans: Sequence[Spans]) -> tf.Tensor:
    """Returns the places (rows, length) with -1 for tokens of a prompt."""
    # One more, for a batch without tokens.
    is_part = tf.concat([*(one.ends.values > 0 for one in spans), [False]], axis=0)
    return tf.where(tf.gather(is_part, tf.maximum(places, 0)), places, -1)


def specs() -> dict[str, tf.TensorSpec]:
    """Returns what an explanation has: name -> tf.TensorSpec.

    tokens string, the text from starts to ends; text_index int32, the input that a token is from;
    starts, ends int32, in characters of that text; shares float32: each (batch, largest
    num_tokens). num_tokens int32; label string, the score that is explained; score,
    baseline_score float32, with the text's tokens and with padding: each (batch,).
    """
    tokens = {
        "tokens": tf.string,
        "text_index": tf.int32,
        "starts": tf.int32,
        "ends": tf.int32,
        "shares": tf.float32,
    }
    others = {
        "num_tokens": tf.int32,
        "label": tf.string,
        "score": tf.float32,
        "baseline_score": tf.float32,
    }
    return {
        **{name: tf.TensorSpec([None, None], dtype) for name, dtype in tokens.items()},
        **{name: tf.TensorSpec([None], dtype) for name, dtype in others.items()},
    }


def integrated_gradients(
    model: keras.Model,
    pad_token_id: int | None,
    inputs: Rows,
    is_text: tf.Tensor,
    score: Callable[[Rows, Rows], tf.Tensor],
    others: Rows,
    *,
    num_steps: int = NUM_STEPS,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Computes integrated gradients.

    Args:
        model: functional, and embeds tokens.
        pad_token_id: the token whose vector begins the path; None for zeros.
        inputs: its inputs, (rows, length).
        is_text: bool (rows, length), the positions whose vectors move along the path.
        score: from the model's outputs and `others` to one score per row, float32 (rows,).
        others: name -> tensor (rows, ...).
        num_steps: points of the path.

    Returns:
        The shares of the positions, float32 (rows, length), 0 where `is_text` is not; the score
        of each row, and the score at the start of its path, float32 (rows,).
    """
    embedding = anatomy(model, "token_embedding").token_embedding
    run = DIFFERENTIABLE.of(model) or functools.partial(run_through_graph, model)
    points, weights = np.polynomial.legendre.leggauss(num_steps)
    # The ends of the path, whose scores are wanted, are among the rows that the model computes.
    factors = np.array([*(points + 1) / 2, 0, 1], np.float32)
    count = len(factors)
    num_rows, length = tf.shape(is_text)[0], tf.shape(is_text)[1]

    def shift(factor: tf.Tensor) -> tf.Tensor:
        return tf.concat([tf.ones_like(factor[:, :1]), factor[:, :-1]], axis=1)

    def slopes(chunk: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        factor = tf.where(chunk["/is_text"], chunk["/factor"][:, None], 1.0)  # (rows, length)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(factor)
            shifted: list[tf.Tensor] = []  # the text as the model's decoder reads it

            def moved(layer: ShiftRight, *args: tf.Tensor) -> tf.Tensor:
                shifted.append(layer(*args))
                return shifted[-1]

            def scaled(ids: tf.Tensor, **options: Any) -> tf.Tensor:
                vectors = embedding(ids, **options)
                if options.get("reverse"):  # a projection with the same matrix
                    return vectors
                is_moved = any(ids is others for others in shifted)
                at_ids = shift(factor) if is_moved else factor
                weight = tf.cast(at_ids, vectors.dtype)[..., None]
                if pad_token_id is None:
                    return vectors * weight
                start = embedding(tf.constant([[pad_token_id]]))  # (1, 1, hidden)
                return start + (vectors - start) * weight

            def operation(layer: keras.layers.Layer) -> Callable[..., Any]:
                if isinstance(layer, ShiftRight):
                    return functools.partial(moved, layer)
                return scaled if layer is embedding else layer

            outputs = run({name: chunk[name] for name in inputs}, operation)
            value = score(outputs, {name: chunk[f"/{name}"] for name in others})
        # Along the path of one token's vector, the slope is the gradient by its factor.
        slope = tape.gradient(value, factor, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return {"slope": tf.where(chunk["/is_text"], slope, 0.0), "score": value}

    repeated = {name: tf.repeat(value, count, axis=0) for name, value in inputs.items()}
    repeated |= {f"/{name}": tf.repeat(value, count, axis=0) for name, value in others.items()}
    repeated["/is_text"] = tf.repeat(is_text, count, axis=0)
    repeated["/factor"] = tf.tile(tf.constant(factors), [num_rows])
    outputs = in_chunks(
        slopes,
        repeated,
        {
            "slope": tf.TensorSpec([None, None], tf.float32),
            "score": tf.TensorSpec([None], tf.float32),
        },
        size=tf.clip_by_value(_MOST_TOKENS // tf.maximum(length, 1), 1, _MOST_ROWS),
    )
    by_point = tf.reshape(outputs["slope"], (num_rows, count, length))
    shares = tf.einsum("rpl,p->rl", by_point[:, :num_steps], (weights / 2).astype(np.float32))
    scores = tf.reshape(outputs["score"], (num_rows, count))
    return shares, scores[:, -1], scores[:, -2]


def log_odds(logits: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """Returns log(p / (1 - p)), where p is the softmax of logits (rows, classes) at an index."""
    is_it = tf.one_hot(index, tf.shape(logits)[1], on_value=True, off_value=False)
    others = tf.reduce_logsumexp(tf.where(is_it, -np.inf, logits), axis=1)
    return tf.gather(logits, index, batch_dims=1) - others


def _checked(label: tf.Tensor, names: Sequence[str]) -> tf.Tensor:
    """Returns the labels after an assertion that they are "" or among the names."""
    wrong = ~tf.reduce_any(label[:, None] == tf.constant(["", *names]), axis=1)
    message = f"label must be one of {', '.join(names)}, or empty for the answer's own, not"
    check = tf.debugging.Assert(
        ~tf.reduce_any(wrong), [message, tf.boolean_mask(label, wrong)], summarize=5
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(label)


def _first_rows(of: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """Returns the first row of each answer, int32 (batch,)."""
    return tf.math.unsorted_segment_min(tf.range(tf.size(of)), of, batch)


def _by_token(
    shares: tf.Tensor, read: Explained, spans: Sequence[Spans], texts: Sequence[tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Returns what an explanation says of the tokens that the model has read; see `specs`.

    Args:
        shares: (rows, length). Rows that belong to one answer count as their mean.
        read: what the model has read.
        spans: the tokens of each input.
        texts: the texts of each input.
    """
    batch = tf.size(texts[0])
    num_rows = tf.math.unsorted_segment_sum(tf.ones_like(read.of), read.of, batch)  # (batch,)
    shares /= tf.cast(tf.gather(num_rows, read.of), tf.float32)[:, None]
    at = tf.where(read.places >= 0)  # (read tokens, 2)
    number = tf.gather_nd(read.places, at)
    numbers = tf.concat(numbered(spans), axis=1)  # (batch, None)
    count = tf.size(numbers.values)
    # The tokens of all texts, in the order of their numbers: text by text of the first input, then
    # of the second.
    by_number = {
        "shares": tf.math.unsorted_segment_sum(tf.gather_nd(shares, at), number, count),
        **{name: tf.concat(values, axis=0) for name, values in _columns(spans, texts).items()},
    }
    is_read = tf.math.unsorted_segment_sum(tf.ones_like(number), number, count) > 0
    kept = tf.ragged.boolean_mask(numbers, numbers.with_values(tf.gather(is_read, numbers.values)))
    rows = {
        name: kept.with_values(tf.gather(values, kept.values)).to_tensor()
        for name, values in by_number.items()
    }
    return {**rows, "num_tokens": tf.cast(kept.row_lengths(), tf.int32)}


def _columns(spans: Sequence[Spans], texts: Sequence[tf.Tensor]) -> dict[str, list[tf.Tensor]]:
    """Returns what there is to say of the tokens of each input, in the order of their numbers."""
    columns: dict[str, list[tf.Tensor]] = {}
    for index, (one, text) in enumerate(zip(spans, texts, strict=True)):
        starts, ends = (side.with_values(tf.maximum(side.values, 0)) for side in one[1:])
        for name, values in {
            "tokens": words.cut(text, starts, ends).values,
            "text_index": tf.fill(tf.shape(starts.values), index),
            "starts": to_characters(text, starts).values,
            "ends": to_characters(text, ends).values,
        }.items():
            columns.setdefault(name, []).append(values)
    return columns
