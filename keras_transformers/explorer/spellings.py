"""How a tokenizer cuts a text, step by step: WordPiece, byte pairs and SentencePiece.

The tokenizers run in graphs and show no steps. These functions take the same steps in Python, from
the tokenizers' results: each word's last step is checked against its tokens.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformers.tasks.token_inputs import one_row
from keras_transformers.tokenizers.byte_pairs.tokenizer import BytePairTokenizer
from keras_transformers.tokenizers.sentencepiece import SentencePieceTokenizer
from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

__all__ = ["spell"]

_SPACE = "\u2581"  # SentencePiece's
_CONTINUES = "##"


def spell(tokenizer: Any, text: str) -> dict[str, Any]:
    """Returns the steps from a text to its tokens.

    Returns:
        `kind`: "wordpiece", "byte_pairs", "sentencepiece" or "tokens"; `tokens` and `ids`; and
        `words`, each with its `steps`: lists of strings, the last of which are its tokens. For
        WordPiece a step is what is found, then `tried`, the longer pieces that the vocabulary does
        not have. Words whose steps are unknown have one step, their tokens.
    """
    ids = tokenizer.tokenize(one_row("text", text))[0].numpy().tolist()
    vocabulary = list(tokenizer.vocabulary)
    tokens = [vocabulary[i] for i in ids]
    kind, words = "tokens", [[token] for token in tokens]
    steps: list[dict[str, Any]] = []
    if isinstance(tokenizer, WordPieceTokenizer):
        kind, words = "wordpiece", _words(tokens, lambda token: not token.startswith(_CONTINUES))
        pieces = set(vocabulary)
        steps = [{"tokens": word, "found": _longest_matches(word, pieces)} for word in words]
    elif isinstance(tokenizer, BytePairTokenizer):
        kind, words = "byte_pairs", _words(tokens, lambda token: token.startswith("Ġ"))
        ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges)}
        steps = [{"tokens": word, "steps": _merges(word, ranks)} for word in words]
    elif isinstance(tokenizer, SentencePieceTokenizer):
        kind, words = "sentencepiece", _words(tokens, lambda token: token.startswith(_SPACE))
        order = {token: i for i, token in enumerate(vocabulary)}
        steps = [{"tokens": word, "steps": _joins(word, order)} for word in words]
    else:
        steps = [{"tokens": word} for word in words]
    return {"kind": kind, "tokens": tokens, "ids": ids, "words": steps}


def _words(tokens: Sequence[str], starts: Any) -> list[list[str]]:
    words: list[list[str]] = []
    for token in tokens:
        if not words or starts(token):
            words.append([])
        words[-1].append(token)
    return words


def _longest_matches(word: Sequence[str], vocabulary: set[str]) -> list[dict[str, Any]]:
    """Returns each piece of a word with the longer pieces that are not in the vocabulary."""
    rest = "".join(piece.removeprefix(_CONTINUES) for piece in word)
    matches, prefix = [], ""
    for piece in word:
        length = len(piece.removeprefix(_CONTINUES))
        longer = [prefix + rest[:end] for end in range(len(rest), length, -1)]
        matches.append(
            {
                "piece": piece,
                "tried": [candidate for candidate in longer if candidate not in vocabulary],
            }
        )
        rest, prefix = rest[length:], _CONTINUES
    return matches


def _merges(word: Sequence[str], ranks: Mapping[tuple[str, str], int]) -> list[list[str]]:
    """Returns a word's symbols after each merge, the earliest of the vocabulary first."""
    symbols = list("".join(word))
    steps = [symbols]
    while True:
        pairs = [pair for pair in itertools.pairwise(symbols) if pair in ranks]
        if not pairs:
            break
        best = min(pairs, key=ranks.__getitem__)
        symbols = _merged(symbols, best)
        steps.append(symbols)
    return steps if symbols == list(word) else [list(word)]


def _joins(word: Sequence[str], order: Mapping[str, int]) -> list[list[str]]:
    """Returns a word's symbols after each join; pieces are in the order in which they were learned.

    Of a unigram model, and where bytes stand for unknown characters, it returns the tokens alone.
    """
    symbols = list("".join(word))
    steps = [symbols]
    while True:
        joined = [left + right for left, right in itertools.pairwise(symbols)]
        places = [place for place, symbol in enumerate(joined) if symbol in order]
        if not places:
            break
        place = min(places, key=lambda place: (order[joined[place]], place))
        symbols = [*symbols[:place], joined[place], *symbols[place + 2 :]]
        steps.append(symbols)
    return steps if symbols == list(word) else [list(word)]


def _merged(symbols: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Returns the symbols with every occurrence of a pair as one."""
    result: list[str] = []
    place = 0
    while place < len(symbols):
        if tuple(symbols[place : place + 2]) == pair:
            result.append("".join(pair))
            place += 2
        else:
            result.append(symbols[place])
            place += 1
    return result
