"""Export of span extractors: a question and a context in, the answer and where it stands out."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import keras
import tensorflow as tf

from keras_transformers.pipelines import token_inputs as text
from keras_transformers.pipelines.bounded_memory import in_chunks
from keras_transformers.saved_model.writing import Signature, write
from keras_transformers.tokenizers import offsets, windows

_EXAMPLES = (
    ("Where was Ada Lovelace born?", "Ada Lovelace (1815-1852) was born in London."),
    ("What is it?", "Straße, “naïve”, 東京 🎬!"),
)
_KEY_BASE = 2**31  # above every offset: int32


def question_answerer(
    model: keras.Model,
    tokenizer: Any,
    path: str | os.PathLike[str],
    *,
    max_sequence_length: int = 384,
    doc_stride: int = 128,
    max_question_length: int = 64,
    max_answer_length: int = 30,
    no_answer_threshold: float | None = None,
    offset_unit: Literal["character", "byte"] = "character",
    examples: Sequence[tuple[str, str]] | None = None,
    scores: Mapping[str, float] | None = None,
    check: bool = True,
) -> Path:
    """Exports a span extractor as a SavedModel for TF Serving that takes strings.

    Its signatures, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(question, context string (batch,)) -> answer string, score float32, start,
      end int32, null_score float32, each (batch,). The answer stands in the context from `start`
      to `end` (exclusive). Where there is none, because the context has no tokens or by
      `no_answer_threshold`, it is "", `start` and `end` are -1, and `score` is `null_score`.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> start_logits,
      end_logits float32 (batch, length); ids beyond the vocabulary and lengths beyond the model's
      positions are refused.

    A context of any length is read whole, in windows (`tokenizers.windows.question_windows`). The
    answer is the span of at most `max_answer_length` tokens with the highest `score`, start logit
    of the first plus end logit of the last, over all windows; of equal ones the first, then the
    shortest. `null_score` is that of [CLS], in the window where it is lowest. It is the rule of
    `data.question_predictions.answers_from_logits`.

    Args:
        model: functional, inputs token_ids, segment_ids, padding_mask, outputs start_logits and
            end_logits (batch, length), as `models.heads.span_extractor` makes it.
        tokenizer: turns texts into the model's inputs, a `tokenizers.WordPieceTokenizer`.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next one.
        max_sequence_length: of a window, in tokens, question, [CLS] and two [SEP] included.
        doc_stride: tokens of the context from one window's start to the next one's.
        max_question_length: in tokens; the end of a longer question is cut off.
        max_answer_length: in tokens.
        no_answer_threshold: there is no answer where `null_score` is more than so much above the
            best span's score (SQuAD 2.0). None: always the best span (SQuAD 1.1).
        offset_unit: of `start` and `end`: "character" counts Unicode code points, as Python and
            SQuAD do; "byte" bytes of the UTF-8 text.
        examples: pairs of question and context to check the export with; they are stored in it
            with their answers, so give none that are secret. Two plain ones by default.
        scores: what the model reached, stored in the export: figure -> value, the data in the
            figure's name, such as {"accuracy on SST-2 dev": 0.91}.
        check: reload the export in a fresh process and compare before it is published.

    Returns:
        The version folder, BASE/<number>.

    Raises:
        FileExistsError: the version exists.
        ValueError: model, tokenizer, lengths or examples do not fit each other, or an option is
            out of its range.
        RuntimeError: the written export does not repeat the model's outputs. Of a bfloat16 model,
            whose graph rounds elsewhere, spans of nearly the same score may change places.
    """
    for output in ("start_logits", "end_logits"):
        text.check_model(model, tokenizer, output)
    length = text.checked_length(model, max_sequence_length, pair=True)
    windows.check_question_windows(
        max_sequence_length=length, doc_stride=doc_stride, max_question_length=max_question_length
    )
    _check_answers(max_answer_length, no_answer_threshold)
    text.check_offset_unit(offset_unit)
    batches = text.example_batches(_EXAMPLES if examples is None else examples, length, pair=True)
    graph = _Graph(
        model,
        tokenizer,
        {
            "max_sequence_length": length,
            "doc_stride": doc_stride,
            "max_question_length": max_question_length,
        },
        max_answer_length,
        no_answer_threshold,
        offset_unit,
    )
    strings, numbers = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int32)
    floats = tf.TensorSpec([None], tf.float32)
    answer = {
        "answer": strings,
        "score": floats,
        "start": numbers,
        "end": numbers,
        "null_score": floats,
    }
    logits = tf.TensorSpec([None, None], tf.float32)
    return write(
        path,
        {
            "serving_default": Signature(
                graph.from_text,
                {"question": strings, "context": strings},
                answer,
                [{"question": batch["text"], "context": batch["text_b"]} for batch in batches],
            ),
            "tokens": Signature(
                graph.from_tokens,
                text.token_specs(),
                {"start_logits": logits, "end_logits": logits},
                [text.tokenized(tokenizer, batch, length) for batch in batches],
            ),
        },
        variables=model.weights,
        trackables=[tokenizer],
        metadata={
            "task": "question_answering",
            "max_answer_length": max_answer_length,
            "no_answer_threshold": no_answer_threshold,
            "offset_unit": offset_unit,
        }
        | graph.window_lengths
        | text.metadata(model, tokenizer, length),
        tolerance=text.tolerance(model),
        scores=scores,
        check=check,
    )


@dataclass(frozen=True)
class _Graph:
    """The functions behind the signatures. Strings stay on the CPU, where alone they can be."""

    model: keras.Model
    tokenizer: Any
    window_lengths: dict[str, Any]  # arguments of `question_windows`
    max_answer_length: int
    no_answer_threshold: float | None
    offset_unit: str

    def from_text(self, question: Any, context: Any) -> dict[str, Any]:
        with tf.device("CPU:0"):
            found = windows.question_windows(
                self.tokenizer, question, context, **self.window_lengths
            )
            rows = found.pop("rows")  # (windows,)
            tokens = text.widened(found)
            missing = tf.shape(tokens["token_ids"])[1] - tf.shape(found["starts"])[1]
            bounds = {
                name: tf.pad(found[name], [[0, 0], [0, missing]], constant_values=-1)
                for name in ("starts", "ends")
            }
        score, numbers = tf.TensorSpec([None], tf.float64), tf.TensorSpec([None], tf.int32)
        spans = in_chunks(
            self._best_spans,
            tokens | bounds,
            {"score": score, "start": numbers, "end": numbers, "null_score": score},
        )
        with tf.device("CPU:0"):
            return self._answers(context, rows, spans)

    def from_tokens(self, **tokens: Any) -> dict[str, Any]:
        outputs = self.model(text.checked_tokens(self.model, tokens), training=False)
        return {name: tf.cast(outputs[name], tf.float32) for name in ("start_logits", "end_logits")}

    def _best_spans(self, window: dict[str, Any]) -> dict[str, Any]:
        """The best span of each window and the score of [CLS], (windows,); bytes of the context.

        In float64, where the sum of two float32 numbers is exact enough to tell ties.
        """
        starts, ends = window.pop("starts"), window.pop("ends")
        outputs = self.model(window, training=False)
        first, last = (
            tf.cast(outputs[name], tf.float64) for name in ("start_logits", "end_logits")
        )  # (windows, length)
        null_score = first[:, 0] + last[:, 0]
        nothing = tf.constant(-math.inf, tf.float64)
        first, last = (tf.where(starts >= 0, logits, nothing) for logits in (first, last))
        num_lengths = self.max_answer_length
        length = tf.shape(first)[1]
        ahead = tf.range(length)[:, None] + tf.range(num_lengths)  # (length, lengths of a span)
        last = tf.pad(last, [[0, 0], [0, num_lengths - 1]], constant_values=nothing)
        scores = first[..., None] + tf.gather(last, ahead, axis=1)  # (windows, length, lengths)
        scores = tf.reshape(scores, [-1, length * num_lengths])
        best = tf.reduce_max(scores, axis=1)
        # The first of equals, which tf.argmax does not promise on every device.
        candidates = tf.where(scores == best[:, None], tf.range(length * num_lengths), tf.int32.max)
        at = tf.reduce_min(candidates, axis=1)
        from_token, num_more = at // num_lengths, at % num_lengths
        return {
            "score": best,
            "start": tf.gather(starts, from_token, batch_dims=1),
            "end": tf.gather(ends, from_token + num_more, batch_dims=1),
            "null_score": null_score,
        }

    def _answers(self, context: Any, rows: Any, spans: dict[str, Any]) -> dict[str, Any]:
        """The best of each row's windows."""
        batch = tf.shape(context)[0]
        score = tf.math.unsorted_segment_max(spans["score"], rows, batch)
        null_score = tf.math.unsorted_segment_min(spans["null_score"], rows, batch)
        # Of equals the first, then the shortest. No span is -1 to -1.
        start, end = (tf.cast(spans[name] + 1, tf.int64) for name in ("start", "end"))
        key = start * _KEY_BASE + end
        key = tf.where(spans["score"] == tf.gather(score, rows), key, tf.int64.max)
        key = tf.math.unsorted_segment_min(key, rows, batch)
        start, end = (tf.cast(part, tf.int32) - 1 for part in (key // _KEY_BASE, key % _KEY_BASE))
        answered = start >= 0
        if self.no_answer_threshold is not None:
            answered &= null_score - score <= self.no_answer_threshold
        start, end = (tf.where(answered, offset, 0) for offset in (start, end))
        answer = tf.strings.substr(context, start, end - start)
        if self.offset_unit == "character":
            pairs = tf.RaggedTensor.from_tensor(tf.stack([start, end], axis=1))
            pairs = tf.reshape(offsets.to_characters(context, pairs).values, [-1, 2])
            start, end = pairs[:, 0], pairs[:, 1]
        return {
            "answer": answer,
            "score": tf.cast(tf.where(answered, score, null_score), tf.float32),
            "start": tf.where(answered, start, -1),
            "end": tf.where(answered, end, -1),
            "null_score": tf.cast(null_score, tf.float32),
        }


def _check_answers(max_answer_length: int, no_answer_threshold: float | None) -> None:
    if max_answer_length < 1:
        raise ValueError(f"max_answer_length={max_answer_length}: give 1 token or more")
    if no_answer_threshold is not None and not math.isfinite(no_answer_threshold):
        raise ValueError(
            f"no_answer_threshold={no_answer_threshold}: give a finite number, or None to answer "
            "every question"
        )
