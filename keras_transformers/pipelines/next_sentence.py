"""Export of BERT's next-sentence prediction: two texts in, whether the second follows out."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.pipelines import token_inputs as text
from keras_transformers.saved_model.writing import Signature, write


def next_sentence(
    model: keras.Model,
    tokenizer: Any,
    path: str | os.PathLike[str],
    *,
    max_sequence_length: int | None = None,
    examples: Sequence[tuple[str, str]] | None = None,
    scores: Mapping[str, float] | None = None,
    check: bool = True,
) -> Path:
    """Exports next-sentence prediction as a SavedModel for TF Serving that takes strings.

    Its signatures, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text_a, text_b string (batch,)) -> probability float32 (batch,): that text_b
      follows text_a.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same; ids
      beyond the vocabulary and lengths beyond the model's positions are refused.

    Args:
        model: functional, inputs token_ids, segment_ids, padding_mask, output
            next_sentence_logits (batch, 2), class 0 for a pair that follows, as
            `models.heads.pretrainer` makes it, of which that part is exported.
        tokenizer: turns texts into the model's inputs, a `tokenizers.WordPieceTokenizer`.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next one.
        max_sequence_length: of the packed tokens; longer pairs are trimmed as the tokenizer does
            it. The model's number of positions by default.
        examples: pairs of texts to check the export with; they are stored in it with their
            answers, so give none that are secret. Plain sentences by default.
        scores: what the model reached, stored in the export: figure -> value, the data in the
            figure's name, such as {"accuracy on SST-2 dev": 0.91}.
        check: reload the export in a fresh process and compare before it is published.

    Returns:
        The version folder, BASE/<number>.

    Raises:
        FileExistsError: the version exists.
        ValueError: model, tokenizer, length or examples do not fit each other.
        RuntimeError: the written export does not repeat the model's outputs.
    """
    model = text.part(model, tokenizer, "next_sentence_logits")
    length = text.checked_length(model, max_sequence_length, pair=True)
    batches = text.example_batches(examples, length, pair=True)
    graph = _Graph(model, tokenizer, length)
    strings = tf.TensorSpec([None], tf.string)
    answer = {"probability": tf.TensorSpec([None], tf.float32)}
    pairs = [{"text_a": batch["text"], "text_b": batch["text_b"]} for batch in batches]
    tokens: list[dict[str, np.ndarray]] = [
        text.tokenized(tokenizer, batch, length) for batch in batches
    ]
    return write(
        path,
        {
            "serving_default": Signature(
                graph.from_text, {"text_a": strings, "text_b": strings}, answer, pairs
            ),
            "tokens": Signature(graph.from_tokens, text.token_specs(), answer, tokens),
        },
        variables=model.weights,
        trackables=[tokenizer],
        metadata={"task": "next_sentence"} | text.metadata(model, tokenizer, length),
        tolerance=text.tolerance(model),
        scores=scores,
        check=check,
    )


@dataclass(frozen=True)
class _Graph:
    """The functions behind the signatures."""

    model: keras.Model
    tokenizer: Any
    max_sequence_length: int

    def from_text(self, text_a: Any, text_b: Any) -> dict[str, Any]:
        columns = {"text": text_a, "text_b": text_b}
        return self._answer(text.tokenize(self.tokenizer, columns, self.max_sequence_length))

    def from_tokens(self, **tokens: Any) -> dict[str, Any]:
        return self._answer(text.checked_tokens(self.model, tokens))

    def _answer(self, tokens: dict[str, Any]) -> dict[str, Any]:
        logits = self.model(tokens, training=False)["next_sentence_logits"]  # (batch, 2)
        return {"probability": tf.nn.softmax(tf.cast(logits, tf.float32))[:, 0]}
