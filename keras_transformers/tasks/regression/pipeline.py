"""Scores text: one text or a pair in, its score out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.tasks.long_texts import LongTextPipeline, LongTexts
from keras_transformers.tasks.pipeline import REGRESS, Signature
from keras_transformers.tasks.tf_examples import parsed, serialized
from keras_transformers.tasks.windows import Pooling
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__ = ["TextRegressor"]


class TextRegressor(LongTextPipeline):
    """Scores texts or pairs of texts.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,), with `pair` also text_b) -> score float32 (batch,).
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same. It takes
      only the inputs that the model has, and rejects ids beyond the vocabulary and lengths beyond
      the model's positions.
    - regress(inputs string (batch,), serialized tf.Example with the features text, text_b) ->
      outputs float32 (batch,): for TF Serving's Regress API.

    Args:
        model: functional, from token_ids, padding_mask and possibly segment_ids to score (batch,);
            see `heads.regressor`.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`.
        scale: the answer is `scale * score + offset`, for models trained on rescaled scores.
        offset: see `scale`.
        activation: "sigmoid" maps the model's score to 0 to 1 first, for models trained with a
            cross-entropy, such as sentence-transformers' CrossEncoders; "linear" leaves it as it
            is.
        max_sequence_length: maximum tokens in a packed row. Defaults to the model's number of
            positions; required if it has none.
        pair: whether a row is a pair of texts.
        long_texts: "cut" leaves out the end of longer rows. "windows" reads texts of any length, in
            windows of `max_sequence_length` tokens, each with its special tokens, and pools their
            scores, before the activation. Of a pair, the first text is cut into windows, and each
            has all of the second, up to half of its tokens. Train the model the same way.
        window_pooling: "mean" over the windows, or "max".
        window_overlap: tokens that a window shares with the next; an eighth of
            `max_sequence_length` by default.

    Raises:
        ValueError: model, tokenizer and length do not match; `scale` is 0; `scale` or `offset`
            is not finite; or `activation` is unknown.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> likeness = TextRegressor(kt.heads.regressor(encoder), tokenizer, scale=5.0, pair=True)
        >>> isinstance(likeness("Good films!", "film").score, float)
        True
    """

    task = "regression"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        *,
        scale: float = 1.0,
        offset: float = 0.0,
        activation: Literal["linear", "sigmoid"] = "linear",
        max_sequence_length: int | None = None,
        pair: bool = False,
        long_texts: LongTexts = "cut",
        window_pooling: Pooling = "mean",
        window_overlap: int | None = None,
    ) -> None:
        super().__init__(
            model,
            tokenizer,
            output="score",
            max_sequence_length=max_sequence_length,
            pair=pair,
            long_texts=long_texts,
            window_pooling=window_pooling,
            window_overlap=window_overlap,
        )
        if scale == 0 or not math.isfinite(scale) or not math.isfinite(offset):
            raise ValueError(
                f"scale={scale}, offset={offset}: expected finite numbers, and a scale other than 0"
            )
        if activation not in ("linear", "sigmoid"):
            raise ValueError(f"activation={activation!r}: use 'linear' or 'sigmoid'")
        self.scale, self.offset, self.activation = float(scale), float(offset), activation

    def interpret(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the score from the model's scores (batch,)."""
        score = output
        if self.activation == "sigmoid":
            score = tf.sigmoid(score)
        return {"score": self.scale * score + self.offset}

    @property
    def explained(self) -> tuple[str, ...]:
        """The score; with `activation="sigmoid"` explanations are of its log-odds, unscaled."""
        return ("score",)

    def explained_score(
        self, outputs: Mapping[str, tf.Tensor], index: tf.Tensor, others: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Computes the score, or its log-odds."""
        score = tf.cast(outputs["score"], tf.float32)
        return score if self.activation == "sigmoid" else self.scale * score + self.offset

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {"score": tf.TensorSpec([None], tf.float32)}

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `tokens`, and `regress` for TF Serving's Regress API."""
        regress = Signature(
            lambda inputs: {"outputs": self.answer(**parsed(inputs, self.text_names))["score"]},
            {"inputs": tf.TensorSpec([None], tf.string)},
            {"outputs": tf.TensorSpec([None], tf.float32)},
            [serialized(batch) for batch in batches],
            REGRESS,
        )
        return {**super().other_signatures(batches), "regress": regress}

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        activation = {} if self.activation == "linear" else {"activation": self.activation}
        return {"scale": self.scale, "offset": self.offset, **activation, **super().config()}
