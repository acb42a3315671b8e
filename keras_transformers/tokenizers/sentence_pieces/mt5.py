"""mT5's tokenizer: T5's, whose SentencePiece model has the extra ids."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformers.tokenizers.sentence_pieces.t5 import T5Tokenizer

__all__ = ["MT5Tokenizer"]


class MT5Tokenizer(T5Tokenizer):
    """SentencePiece as mT5 uses it (Xue et al. 2021, arXiv:2010.11934).

    Ids equal those of Hugging Face's MT5Tokenizer. It is T5's tokenizer, but the SentencePiece
    model for 101 languages has the extra ids itself, among its own pieces.

    Args:
        path: a SentencePiece model, or a folder with `spiece.model`.
        num_extra_ids: number of extra ids that the model lacks (Hugging Face: extra_ids).
        vocabulary_size: number of tokens of the model that uses this tokenizer; the last ones,
            without text, only pad its matrices. By default there are none.
        added_tokens: more tokens, after the extra ids; see `T5Tokenizer`.
        name: name of the module.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: as in `T5Tokenizer`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        num_extra_ids: int = 0,
        vocabulary_size: int | None = None,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "mt5_tokenizer",
    ) -> None:
        super().__init__(
            path,
            num_extra_ids=num_extra_ids,
            vocabulary_size=vocabulary_size,
            added_tokens=added_tokens,
            name=name,
        )
