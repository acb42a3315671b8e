"""Chooses the tokens of a large vocabulary that some texts need."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformers.tokenizers.tensors import texts_of

__all__ = ["frequent_tokens"]


def frequent_tokens(tokenizer: Any, texts: Sequence[str], *, size: int) -> list[int]:
    """Chooses the tokens of a smaller WordPiece vocabulary for these texts.

    These are the special tokens, every character in the texts, at the start of words and inside,
    and then the most frequent tokens. Other words are split into shorter pieces; no known word
    becomes unknown.

    Args:
        tokenizer: a `WordPieceTokenizer`.
        texts: the texts.
        size: the number of tokens to keep.

    Returns:
        Their ids in `tokenizer`, ascending.

    Raises:
        ValueError: `size` has no room for the special tokens and the characters.

    Example:
        >>> from keras_transformers.tokenizers import WordPieceTokenizer
        >>> names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "ab", "bb"]
        >>> frequent_tokens(WordPieceTokenizer(names), ["ab ab bb a"], size=9)
        [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """
    ids = tokenizer.tokenize(texts_of(list(texts))).values.numpy()
    counts = np.bincount(ids, minlength=tokenizer.vocabulary_size)
    special = set(tokenizer.special_names.values())
    tokens = tokenizer.vocabulary
    letters = {letter for i in np.flatnonzero(counts) for letter in tokens[i].removeprefix("##")}
    needed = [
        i
        for i, token in enumerate(tokens)
        if token in special or token.removeprefix("##") in letters
    ]
    if size < len(needed):
        raise ValueError(
            f"size={size}: the special tokens and the characters of these texts need {len(needed)}"
        )
    is_needed = np.zeros(len(tokens), bool)
    is_needed[needed] = True
    order = np.argsort(np.where(is_needed, np.iinfo(counts.dtype).max, counts), kind="stable")[::-1]
    return sorted(order[:size].tolist())
