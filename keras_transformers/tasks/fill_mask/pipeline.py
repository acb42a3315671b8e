"""Fills masks: a text with masks in, the most likely tokens for each mask out."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.tasks.texts import strings
from keras_transformers.tasks.token_inputs import TextPipeline
from keras_transformers.tokenizers.protocols import MaskTokenizer

__all__ = ["MaskFiller"]


class MaskFiller(TextPipeline):
    """Finds the most likely tokens for each mask in a text.

    A mask is the tokenizer's `mask_token`, such as "[MASK]", with exactly this spelling, anywhere
    in a text ("un[MASK]able"), as in Hugging Face's tokenizers. Unlike there, other special tokens
    are plain text. Masks that are cut off with the end of a long text are neither filled nor
    counted.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,)) -> tokens string (batch, masks, top_k), probabilities
      float32 (batch, masks, top_k), num_masks int32 (batch,). `masks` is the largest of
      `num_masks`, 0 if no text in the batch has a mask; after a row's `num_masks`, tokens are ""
      and probabilities 0. The best token comes first; probabilities are over the whole vocabulary.
      Tokens are spelled as in the vocabulary: in WordPiece, "##" marks the continuation of a word.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same. It takes
      only the inputs that the model has, and rejects ids beyond the vocabulary and lengths beyond
      the model's positions.

    Args:
        model: functional, from token_ids, padding_mask, mask_positions and possibly segment_ids to
            mask_logits (batch, masks, vocabulary); see `heads.masked_lm`. The other head of a model
            from `heads.pretrainer` is removed.
        tokenizer: turns texts into the model's inputs and has a `mask_token`, such as a
            `tokenizers.WordPieceTokenizer`.
        top_k: number of tokens for each mask.
        max_sequence_length: maximum tokens in a packed text; longer texts are truncated. Defaults
            to the model's number of positions; required if it has none.

    Raises:
        ValueError: model, tokenizer, `top_k` and length do not match.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> fill = MaskFiller(kt.heads.masked_lm(encoder), tokenizer, top_k=3)
        >>> [len(tokens) for tokens in fill("Good [MASK][MASK]").tokens]
        [3, 3]
    """

    task = "fill_mask"
    tokenizer: MaskTokenizer

    def __init__(
        self,
        model: keras.Model,
        tokenizer: MaskTokenizer,
        *,
        top_k: int = 5,
        max_sequence_length: int | None = None,
    ) -> None:
        super().__init__(
            model,
            tokenizer,
            outputs=("mask_logits",),
            extra_inputs=("mask_positions",),
            max_sequence_length=max_sequence_length,
        )
        if not hasattr(tokenizer, "mask_token"):
            raise ValueError(
                f"{type(tokenizer).__name__} has no mask_token: use the tokenizer that the model "
                "was pretrained with"
            )
        if not 1 <= top_k <= tokenizer.vocabulary_size:
            raise ValueError(
                f"top_k={top_k}: expected 1 to {tokenizer.vocabulary_size}, the size of the "
                "vocabulary"
            )
        self.top_k = int(top_k)
        self._vocabulary = list(tokenizer.vocabulary)

    def tokenize(self, *texts: tf.Tensor) -> list[tf.RaggedTensor]:
        """Tokenizes texts, turning each mask into one token; adds no special tokens.

        The tokenizer alone would split a mask as text.

        Args:
            *texts: strings (batch,).

        Returns:
            int32 (batch, None), one tensor per text.
        """
        with tf.device("CPU:0"):  # string ops run only on the CPU
            return [self._tokenize(tf.convert_to_tensor(text, tf.string)) for text in texts]

    def decode(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes tokens, probabilities and num_masks from the model's inputs."""
        is_real = tokens.get("padding_mask", True)
        positions = _positions(is_real & (tokens["token_ids"] == self.tokenizer.mask_token_id))
        mask_positions = positions.to_tensor()  # (batch, masks)
        outputs = self.run_model({**tokens, "mask_positions": mask_positions})
        # The model's matrix may have more rows than there are tokens.
        logits = outputs["mask_logits"][..., : self.tokenizer.vocabulary_size]
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))
        probabilities, token_ids = tf.math.top_k(probabilities, self.top_k)  # (batch, masks, top_k)
        num_masks = tf.cast(positions.row_lengths(), tf.int32)
        answered = tf.sequence_mask(num_masks, tf.shape(mask_positions)[1])[..., None]
        with tf.device("CPU:0"):
            names = tf.where(answered, tf.gather(tf.constant(self._vocabulary), token_ids), "")
        return {
            "tokens": names,
            "probabilities": tf.where(answered, probabilities, 0.0),
            "num_masks": num_masks,
        }

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {
            "tokens": tf.TensorSpec([None, None, self.top_k], tf.string),
            "probabilities": tf.TensorSpec([None, None, self.top_k], tf.float32),
            "num_masks": tf.TensorSpec([None], tf.int32),
        }

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns the usual batches, and one with masks in awkward places, one of them cut off."""
        mask, length = self.tokenizer.mask_token, self.max_sequence_length
        plain = (
            f"A sentence to {mask} the model with.",
            f"{mask} another one, which is {mask} longer!",
        )
        nearly = f"{mask.lower()} {mask[:-1]}"
        awkward = strings([mask, mask * 3, f"{'long ' * length}{mask}", nearly, ""])
        batches = super().example_batches(plain if examples is None else examples)
        return [*batches, {"text": awkward}]

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {"top_k": self.top_k, "max_sequence_length": self.max_sequence_length}

    def _tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        pieces = self.tokenizer.split_at_masks(text)  # (batch, None)
        tokens = self.tokenizer.tokenize(pieces.values)  # (pieces, None)
        masks = tf.fill([tokens.nrows(), 1], self.tokenizer.mask_token_id)
        # A mask after each piece, except after the last of each text.
        rows = pieces.with_values(tf.concat([tokens, masks], axis=1))  # (batch, None, None)
        return rows.merge_dims(1, 2)[:, :-1]


def _positions(mask: tf.Tensor) -> tf.RaggedTensor:
    """Returns where booleans (batch, length) are True: int32 (batch, None)."""
    places = tf.where(mask)  # (chosen, 2), row by row
    return tf.RaggedTensor.from_value_rowids(
        tf.cast(places[:, 1], tf.int32),
        places[:, 0],
        nrows=tf.shape(mask, tf.int64)[0],
        validate=False,
    )
