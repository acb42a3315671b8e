"""Predicts next sentences as BERT does: two texts in, the probability that they follow out."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.tasks.confidence import Confidence
from keras_transformers.tasks.explaining import ExplainedPipeline, log_odds
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__ = ["NextSentenceClassifier"]


class NextSentenceClassifier(ExplainedPipeline):
    """Estimates how likely one text is to follow another.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text, text_b string (batch,)) -> probability float32 (batch,) that text_b
      follows text.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same. It takes
      only the inputs that the model has, and rejects ids beyond the vocabulary and lengths beyond
      the model's positions.

    Args:
        model: functional, from token_ids, segment_ids and padding_mask to next_sentence_logits
            (batch, 2), where class 0 means that text_b follows; see `heads.pretrainer`. Its other
            head is removed.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`.
        max_sequence_length: maximum tokens in a packed pair; the tokenizer truncates longer ones.
            Defaults to the model's number of positions; required if it has none.
        temperature: divides the logits; above 1, probabilities are less sure. `fit` finds it with
            `calibrate=True`.
        abstain_below: adds the output `abstained` bool (batch,): whether the likelier of both
            answers is less probable than this.

    Raises:
        ValueError: model, tokenizer and length do not match, or an option is out of range.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> follows = NextSentenceClassifier(kt.heads.pretrainer(encoder), tokenizer)
        >>> 0 < follows("A film.", "Good!").probability < 1
        True
    """

    task = "next_sentence"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        *,
        max_sequence_length: int | None = None,
        temperature: float = 1.0,
        abstain_below: float | None = None,
    ) -> None:
        super().__init__(
            model,
            tokenizer,
            outputs=("next_sentence_logits",),
            max_sequence_length=max_sequence_length,
            pair=True,
        )
        self.temperature, self.abstain_below = temperature, abstain_below
        self._confidence = Confidence(temperature, abstain_below)

    def decode(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the probability from the model's inputs."""
        logits = self.run_model(tokens)["next_sentence_logits"]  # (batch, 2)
        probabilities = tf.nn.softmax(self._confidence.calibrated(logits))
        abstention = self._confidence.abstention(tf.reduce_max(probabilities, axis=1))
        return {"probability": probabilities[:, 0], **abstention}

    @property
    def explained(self) -> tuple[str, ...]:
        """The probability: explanations are of its log-odds."""
        return ("probability",)

    def explained_score(
        self, outputs: Mapping[str, tf.Tensor], index: tf.Tensor, others: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Computes the log-odds of the probability."""
        return log_odds(self._confidence.calibrated(outputs["next_sentence_logits"]), index)

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {"probability": tf.TensorSpec([None], tf.float32), **self._confidence.specs()}

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {"max_sequence_length": self.max_sequence_length, **self._confidence.config()}
