"""Finds words in texts of any script; where no spaces part words, each character is a word."""

import re
from collections.abc import Iterable

_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_OTHERS = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff"  # Thai, Lao, Khmer, Japanese's kana

CHINESE = re.compile(f"[{_CHINESE}]")
NOT_CHINESE = re.compile(f"[{_OTHERS}]")
WITHOUT_SPACES = re.compile(f"[{_CHINESE}{_OTHERS}]")
WORD = re.compile(rf"[{_CHINESE}{_OTHERS}]|[^\s{_CHINESE}{_OTHERS}]+")


def words_of(text: str) -> list[str]:
    """Returns the words of a text, which end at white space.

    In Chinese, Japanese, Thai, Lao and Khmer, which are written without spaces between words, each
    character is a word.

    >>> words_of("She lives in 北京.")
    ['She', 'lives', 'in', '北', '京', '.']
    """
    return WORD.findall(text)


def share(script: re.Pattern[str], texts: Iterable[str]) -> float:
    """Returns the share of the words of texts, all taken together, that are a script's characters.

    Args:
        script: `CHINESE`, `NOT_CHINESE` or both, `WITHOUT_SPACES`.
        texts: any number of texts; without a word, the share is 0.
    """
    num_characters = num_words = 0
    for text in texts:
        num_characters += len(script.findall(text))
        num_words += len(words_of(text))
    return num_characters / max(1, num_words)
