"""The byte-level byte pairs of Llama 3, Qwen and SmolLM2: their files name the special tokens."""

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from keras_transformers.tokenizers.byte_pairs.tokenizer import BytePairTokenizer

__all__ = ["LlamaBytePairTokenizer"]

_HASHES = 2**63 - 1


class LlamaBytePairTokenizer(BytePairTokenizer):
    """Byte-level byte-pair encoding whose special tokens are arguments.

    Ids equal those of the `tokenizers` library, also where a text has the name of a special token:
    that is the token, as in transformers. How texts are split, `parts` says.

    Args:
        path: a folder with `vocab.json` and `merges.txt`.
        special_names: the special tokens for "start", "end" and "pad", among the vocabulary or the
            added tokens of `parts`. Without "start" the one for "end" stands before documents.
        starts_texts: whether the start token stands before every text, as Llama's does and Qwen's
            does not.
        whole_words: whether a word that is a token is that token, whatever the merges make of it
            (Llama 3; `ignore_merges` in a tokenizer.json).
        parts: see `BytePairTokenizer`.
        name: name of the module.

    Raises:
        FileNotFoundError: the folder or one of the two files does not exist.
        ValueError: the files are not a valid vocabulary, or a special token is missing.
    """

    follows_file = True  # whatever the class that tokenizer_config.json names
    matches_special = True
    drops_bytes = True  # SmolLM2's vocabulary has 235 of them

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        special_names: Mapping[str, str] | None = None,
        starts_texts: bool = False,
        whole_words: bool = False,
        parts: Mapping[str, Any] | None = None,
        name: str = "llama_byte_pair_tokenizer",
    ) -> None:
        given = dict(special_names or {})
        if "end" not in given or not set(given) <= {"start", "end", "pad"}:
            raise ValueError(
                f"special_names={given}: give the token for 'end', and perhaps for 'start' and "
                "'pad'"
            )
        self._given_names = {
            purpose: token
            for purpose, token in given.items()
            if purpose == "end" or token != given["end"]
        }
        self.special_names = {  # type: ignore[misc]
            "start": given.get("start", given["end"]),
            "end": given["end"],
            "pad": given.get("pad", given["end"]),
        }
        self.starts_texts = starts_texts
        self.whole_words = whole_words
        super().__init__(path, parts=parts, name=name)
        with tf.device("CPU:0"):
            names = self._token_bytes
            hashes = tf.strings.to_hash_bucket_fast(names, _HASHES)
            order = tf.argsort(hashes)
            self._hashes, self._hashed_ids = tf.gather(hashes, order), order

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids that `pack` puts around segments: a start token before each, if any."""
        return [*[[self.start_token_id] if self.starts_texts else []] * num_segments, []]

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {
            "special_names": self._given_names,
            "starts_texts": self.starts_texts,
            "whole_words": self.whole_words,
            **super().config(),
        }

    def _encode(self, words: tf.Tensor) -> tf.RaggedTensor:
        if not self.whole_words:
            return super()._encode(words)
        hashes = tf.strings.to_hash_bucket_fast(words, _HASHES)
        place = tf.minimum(tf.searchsorted(self._hashes, hashes), tf.size(self._hashes) - 1)
        token_ids = tf.gather(self._hashed_ids, place)
        whole = (tf.gather(self._token_bytes, token_ids) == words) & (words != "")
        rest = super()._encode(tf.where(whole, "", words))
        found = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(token_ids, whole), tf.cast(whole, tf.int64), validate=False
        )
        return tf.concat([rest, found], axis=1)
