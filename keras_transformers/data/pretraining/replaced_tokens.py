"""Makes batches for ELECTRA from BERT's pretraining records."""

from typing import Any, Self

import tensorflow as tf

from keras_transformers.data.batching import Batches
from keras_transformers.data.pretraining.batches import PretrainingBatches, RecordFiles
from keras_transformers.data.pretraining.masking import unmask

__all__ = ["ReplacedTokenBatches"]


class ReplacedTokenBatches(Batches):
    """Batches for `heads.electra_pretrainer`, for `runs.Run.prepare`.

    Of the tokens that the records, or a `Masker`, choose for BERT, 85 % become [MASK] and 15 % stay
    unchanged, as in Google's code for Clark et al. 2020. All are predicted. There is no next
    sentence. An element is `(inputs, targets, sample_weights)`:
      - inputs: see `pretraining_dataset`.
      - targets: `mask_logits`, the ids of the chosen tokens, int32 (batch, chosen), and `replaced`,
        the ids of all tokens before masking, int32 (batch, seq).
      - sample_weights: `mask_logits` float32 (batch, chosen), 1 at chosen tokens and 0 after
        them, and `replaced` float32 (batch, seq), 1 at real tokens.

    Args:
        batches: batches for BERT.
        mask_token_id: id of [MASK].
    """

    def __init__(self, batches: PretrainingBatches, mask_token_id: int) -> None:
        self._batches = batches
        self._mask_token_id = mask_token_id
        self.num_rows = batches.num_rows
        self.mean_lengths = batches.mean_lengths
        self.other_lengths = batches.other_lengths

    def __len__(self) -> int:
        return len(self._batches)

    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """Returns the batches: endless with `steps_per_epoch`, otherwise one pass in order."""
        return self._batches.dataset(skip=skip).map(
            self._element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )

    def of(self, examples: RecordFiles) -> Self:
        """Returns batches of other records, in order, with the positions in the files."""
        return type(self)(self._batches.of(examples), self._mask_token_id)

    def damage(self) -> str | None:
        """Returns the damaged record and its file; None if all are intact."""
        return self._batches.damage()

    def _element(
        self, inputs: dict[str, Any], targets: dict[str, Any], weights: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        positions, mask_ids = inputs["mask_positions"], targets["mask_logits"]
        is_real = weights["mask_logits"]
        original = unmask(inputs["token_ids"], positions, mask_ids, is_real)
        # BERT's masking keeps 10 % and replaces 10 % with a random token, of which half are even.
        drawn = tf.gather(inputs["token_ids"], positions, batch_dims=1)
        is_even_random = (drawn != self._mask_token_id) & (drawn % 2 == 0)
        is_kept = (drawn == mask_ids) | is_even_random
        chosen = tf.where(is_kept, mask_ids, self._mask_token_id)
        # Rows that only complete a batch have no next sentence either.
        is_token = tf.cast(inputs["padding_mask"], tf.float32)
        counted = is_token * weights["next_sentence_logits"][:, None]
        token_ids = tf.ensure_shape(
            unmask(original, positions, chosen, is_real), inputs["token_ids"].shape
        )
        return (
            {**inputs, "token_ids": token_ids},
            {"mask_logits": mask_ids, "replaced": original},
            {"mask_logits": is_real, "replaced": counted},
        )
