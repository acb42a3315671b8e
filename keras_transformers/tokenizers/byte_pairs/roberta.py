"""RoBERTa's tokenizer: GPT-2's byte-level byte pairs between BERT-like special tokens."""

from collections.abc import Sequence
from typing import Any, ClassVar

import tensorflow as tf

from keras_transformers.tokenizers import packing
from keras_transformers.tokenizers.byte_pairs.tokenizer import BytePairTokenizer

__all__ = ["RobertaTokenizer"]


class RobertaTokenizer(BytePairTokenizer):
    """Byte-level byte-pair encoding as RoBERTa uses it (Liu et al. 2019, arXiv:1907.11692).

    Ids equal those of Hugging Face's RobertaTokenizer, special tokens in the text split
    (`split_special_tokens=True`). One text is packed as <s> a </s>, a pair as <s> a </s></s> b
    </s>.

    Args:
        path: a folder with `vocab.json` and `merges.txt`.
        name: name of the module.

    Attributes:
        mask_token: "<mask>".
        mask_token_id: its id; likewise `start_token_id` of "<s>", `end_token_id` of "</s>",
            `pad_token_id` of "<pad>", `unknown_token_id` of "<unk>".

    Raises:
        FileNotFoundError: the folder or one of the two files does not exist.
        ValueError: the files contain no vocabulary, or a special token is missing.
    """

    special_names: ClassVar[dict[str, str]] = {
        "start": "<s>",
        "pad": "<pad>",
        "end": "</s>",
        "unknown": "<unk>",
        "mask": "<mask>",
    }
    # GPT-2's special token, and fairseq's padding of the vocabulary: no text contains them.
    unused_tokens: ClassVar[Sequence[str]] = (
        "<|endoftext|>",
        *(f"madeupword{number:04}" for number in range(3)),
    )
    mask_token = "<mask>"
    mask_token_id: int
    unknown_token_id: int

    def __call__(
        self, text: Any, text_b: Any = None, *, max_sequence_length: int
    ) -> dict[str, tf.Tensor]:
        """Converts texts or pairs of texts to the inputs of an encoder; see `pack`.

        Args:
            text: strings (batch,).
            text_b: the second texts, strings (batch,).
            max_sequence_length: number of tokens, with the special ones.
        """
        texts = [text] if text_b is None else [text, text_b]
        segments = [self.tokenize(given) for given in texts]
        return self.pack(segments, max_sequence_length=max_sequence_length)

    def pack(
        self,
        segments: Sequence[tf.RaggedTensor],
        *,
        max_sequence_length: int,
        pad_to_max_length: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Packs the tokens of texts or pairs of texts into the inputs of an encoder.

        Args:
            segments: one or two ragged tensors from `tokenize`, int32 (batch, None).
            max_sequence_length: number of tokens, with the special ones; longer rows are cut at
                the end, pairs in the longer text first.
            pad_to_max_length: pad to that length, not to the longest row.

        Returns:
            token_ids int32 and padding_mask bool, each (batch, length).

        Raises:
            ValueError: `max_sequence_length` leaves no room for the special tokens.
        """
        num_added = self.num_special_tokens(len(segments))
        if max_sequence_length < num_added:
            raise ValueError(
                f"max_sequence_length={max_sequence_length}: special tokens take {num_added} "
                "already; increase it"
            )
        packed = packing.pack(
            packing.trim_longest_first(segments, max_sequence_length - num_added),
            special_tokens=self.special_tokens(len(segments)),
            pad_token_id=self.pad_token_id,
            length=max_sequence_length if pad_to_max_length else None,
        )
        return {name: packed[name] for name in ("token_ids", "padding_mask")}

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids that `pack` puts around segments: <s> a </s></s> b </s>."""
        between = [[self.end_token_id, self.end_token_id]] * (num_segments - 1)
        return [[self.start_token_id], *between, [self.end_token_id]]

    def split_at_masks(self, text: Any) -> tf.RaggedTensor:
        """Splits strings (batch,) at the mask token into pieces (batch, None).

        A mask stands for a word and the white space before it, so that is removed.
        """
        text = tf.strings.regex_replace(text, rf"[\s\pZ]*{self.mask_token}", self.mask_token)
        return tf.strings.split(text, self.mask_token)
