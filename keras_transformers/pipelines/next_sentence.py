"""BERT's next-sentence prediction: two texts in, whether the second follows the first out."""

from typing import Any

import keras
import tensorflow as tf

from keras_transformers.pipelines.token_inputs import TextPipeline

__all__ = ["NextSentenceClassifier"]


class NextSentenceClassifier(TextPipeline):
    """Says how likely one text follows another.

    Signatures of its export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text, text_b string (batch,)) -> probability float32 (batch,): that text_b
      follows text.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same; ids
      beyond the vocabulary and lengths beyond the model's positions are refused. Only those inputs
      that the model takes.

    Args:
        model: functional, inputs token_ids, segment_ids, padding_mask, output
            next_sentence_logits (batch, 2), class 0 for a pair that follows, as `heads.pretrainer`
            makes it; its other head is left out.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`.
        max_sequence_length: of the packed tokens; longer pairs are trimmed as the tokenizer does
            it. The model's number of positions by default; required where it has none.

    Raises:
        ValueError: model, tokenizer and length do not fit each other.

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
        self, model: keras.Model, tokenizer: Any, *, max_sequence_length: int | None = None
    ) -> None:
        super().__init__(
            model,
            tokenizer,
            outputs=("next_sentence_logits",),
            max_sequence_length=max_sequence_length,
            pair=True,
        )

    def decode(self, tokens: dict[str, Any]) -> dict[str, Any]:
        """The model's inputs to the probability."""
        logits = self.model(tokens, training=False)["next_sentence_logits"]  # (batch, 2)
        return {"probability": tf.nn.softmax(tf.cast(logits, tf.float32))[:, 0]}

    def answer_specs(self) -> dict[str, Any]:
        """The outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {"probability": tf.TensorSpec([None], tf.float32)}

    def config(self) -> dict[str, Any]:
        """The keyword arguments that make this pipeline again, as JSON values."""
        return {"max_sequence_length": self.max_sequence_length}
