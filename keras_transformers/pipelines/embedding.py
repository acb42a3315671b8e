"""Export of text embedders: a text in, its vector out."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import keras
import tensorflow as tf

from keras_transformers.models import heads
from keras_transformers.pipelines import token_inputs as text
from keras_transformers.saved_model.writing import Signature, write


def embedder(
    model: keras.Model,
    tokenizer: Any,
    path: str | os.PathLike[str],
    *,
    pooling: Literal["mean", "cls"] | None = None,
    normalize: bool | None = None,
    max_sequence_length: int | None = None,
    examples: Sequence[str] | None = None,
    scores: Mapping[str, float] | None = None,
    check: bool = True,
) -> Path:
    """Exports a text embedder as a SavedModel for TF Serving that takes strings.

    Its signatures, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,)) -> embedding float32 (batch, hidden).
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same; ids
      beyond the vocabulary, lengths beyond the model's positions and rows of padding alone are
      refused.

    Args:
        model: an encoder, inputs token_ids, segment_ids, padding_mask, output sequence_output
            (batch, length, hidden); or what `models.heads.embedder` made of one.
        tokenizer: turns texts into the model's inputs, a `tokenizers.WordPieceTokenizer`.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next one.
        pooling: of an encoder, see `models.heads.embedder`; "mean" by default.
        normalize: vectors of an encoder to length 1; True by default.
        max_sequence_length: of the packed tokens; longer texts lose their end. The model's number
            of positions by default.
        examples: texts to check the export with; they are stored in it with their embeddings, so
            give none that are secret. Two plain sentences by default.
        scores: what the model reached, stored in the export: figure -> value, the data in the
            figure's name, such as {"accuracy on SST-2 dev": 0.91}.
        check: reload the export in a fresh process and compare before it is published.

    Returns:
        The version folder, BASE/<number>.

    Raises:
        FileExistsError: the version exists.
        ValueError: model, tokenizer, length or examples do not fit each other; or `pooling` or
            `normalize` is given for a model that has its own.
        RuntimeError: the written export does not repeat the model's outputs.
    """
    model = text.part(_embedder(model, pooling, normalize), tokenizer, "embedding")
    length = text.checked_length(model, max_sequence_length, pair=False)
    batches = text.example_batches(examples, length, pair=False)
    graph = _Graph(model, tokenizer, length)
    hidden_dim = model.output["embedding"].shape[-1]
    answer = {"embedding": tf.TensorSpec([None, hidden_dim], tf.float32)}
    tokens = [text.tokenized(tokenizer, batch, length) for batch in batches]
    strings = {"text": tf.TensorSpec([None], tf.string)}
    return write(
        path,
        {
            "serving_default": Signature(graph.from_text, strings, answer, batches),
            "tokens": Signature(graph.from_tokens, text.token_specs(), answer, tokens),
        },
        variables=model.weights,
        trackables=[tokenizer],
        metadata={"task": "embedding", "embedding_dim": hidden_dim}
        | text.metadata(model, tokenizer, length),
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

    def from_text(self, **columns: Any) -> dict[str, Any]:
        return self._answer(text.tokenize(self.tokenizer, columns, self.max_sequence_length))

    def from_tokens(self, **tokens: Any) -> dict[str, Any]:
        tokens = text.checked_tokens(self.model, tokens)
        real = tf.reduce_any(tokens["padding_mask"], axis=1)  # (batch,)
        with tf.device("CPU:0"):  # the message is a string
            check = tf.debugging.Assert(tf.reduce_all(real), ["a row is padding alone"])
        with tf.control_dependencies([] if check is None else [check]):
            return self._answer({name: tf.identity(value) for name, value in tokens.items()})

    def _answer(self, tokens: dict[str, Any]) -> dict[str, Any]:
        embedding = self.model(tokens, training=False)["embedding"]  # (batch, hidden)
        return {"embedding": tf.cast(embedding, tf.float32)}


def _embedder(
    model: keras.Model, pooling: Literal["mean", "cls"] | None, normalize: bool | None
) -> keras.Model:
    """The model where it returns embeddings, else a head on it."""
    outputs: Any = getattr(model, "output", None)
    if not (isinstance(outputs, dict) and "embedding" in outputs):
        normalize = True if normalize is None else normalize
        return heads.embedder(
            model, pooling=pooling or "mean", normalize=normalize, name=model.name
        )
    if pooling is not None or normalize is not None:
        raise ValueError(
            f"pooling={pooling!r} and normalize={normalize!r} for model {model.name!r}, which "
            "pools already: leave them out, or give its encoder"
        )
    return model
