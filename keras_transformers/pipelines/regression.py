"""Export of regressors: one text or a pair in, its score out."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.pipelines import token_inputs as text
from keras_transformers.saved_model.writing import REGRESS, Signature, write


def regressor(
    model: keras.Model,
    tokenizer: Any,
    path: str | os.PathLike[str],
    *,
    max_sequence_length: int | None = None,
    pair: bool = False,
    scale: float = 1.0,
    offset: float = 0.0,
    examples: Sequence[str] | Sequence[tuple[str, str]] | None = None,
    scores: Mapping[str, float] | None = None,
    check: bool = True,
) -> Path:
    """Exports a regressor as a SavedModel for TF Serving that takes strings.

    Its signatures, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,), with `pair` also text_b) -> score float32 (batch,).
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same; ids
      beyond the vocabulary and lengths beyond the model's positions are refused.
    - regress(inputs string (batch,), serialized tf.Example with the features text, text_b) ->
      outputs float32 (batch,): for TF Serving's Regress API.

    Args:
        model: functional, inputs token_ids, segment_ids, padding_mask, output score (batch,), as
            `models.heads.regressor` makes it.
        tokenizer: turns texts into the model's inputs, a `tokenizers.WordPieceTokenizer`.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next one.
        max_sequence_length: of the packed tokens; longer texts are trimmed as the tokenizer does
            it. The model's number of positions by default.
        pair: the model takes two texts.
        scale: what is served is `scale * score + offset`: for a model that was trained on scores
            brought to another range.
        offset: see `scale`.
        examples: texts, or pairs of texts, to check the export with; they are stored in it with
            their scores, so give none that are secret. Two plain sentences by default.
        scores: what the model reached, stored in the export: figure -> value, the data in the
            figure's name, such as {"accuracy on SST-2 dev": 0.91}.
        check: reload the export in a fresh process and compare before it is published.

    Returns:
        The version folder, BASE/<number>.

    Raises:
        FileExistsError: the version exists.
        ValueError: model, tokenizer, length, scale or examples do not fit each other.
        RuntimeError: the written export does not repeat the model's outputs.
    """
    model = text.part(model, tokenizer, "score")
    if scale == 0 or not math.isfinite(scale) or not math.isfinite(offset):
        raise ValueError(f"scale={scale}, offset={offset}: give finite numbers, the scale not 0")
    length = text.checked_length(model, max_sequence_length, pair=pair)
    batches = text.example_batches(examples, length, pair=pair)
    graph = _Graph(model, tokenizer, length, tuple(batches[0]), scale, offset)
    strings, floats = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.float32)
    tokens = [text.tokenized(tokenizer, batch, length) for batch in batches]
    records = [text.serialized(batch) for batch in batches]
    text_specs = dict.fromkeys(graph.text_names, strings)
    return write(
        path,
        {
            "serving_default": Signature(graph.from_text, text_specs, {"score": floats}, batches),
            "tokens": Signature(graph.from_tokens, text.token_specs(), {"score": floats}, tokens),
            "regress": Signature(
                graph.from_records, {"inputs": strings}, {"outputs": floats}, records, REGRESS
            ),
        },
        variables=model.weights,
        trackables=[tokenizer],
        metadata={"task": "regression", "pair": pair, "scale": scale, "offset": offset}
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
    max_sequence_length: int
    text_names: tuple[str, ...]
    scale: float
    offset: float

    def from_text(self, **columns: Any) -> dict[str, Any]:
        return self._answer(text.tokenize(self.tokenizer, columns, self.max_sequence_length))

    def from_tokens(self, **tokens: Any) -> dict[str, Any]:
        return self._answer(text.checked_tokens(self.model, tokens))

    def from_records(self, inputs: Any) -> dict[str, Any]:
        with tf.device("CPU:0"):
            features = dict.fromkeys(self.text_names, tf.io.FixedLenFeature([], tf.string))
            columns = tf.io.parse_example(inputs, features)
        return {"outputs": self.from_text(**columns)["score"]}

    def _answer(self, tokens: dict[str, Any]) -> dict[str, Any]:
        score = tf.cast(self.model(tokens, training=False)["score"], tf.float32)  # (batch,)
        return {"score": self.scale * score + self.offset}
