"""Whole words and their ids, from frequent to rare, for language models that predict words."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from keras_transformers.files import read_lines
from keras_transformers.tokenizers import vocabulary as vocabulary_files

BEGIN, END, UNKNOWN = MARKS = ("<S>", "</S>", "<UNK>")
BEGIN_ID, END_ID, UNKNOWN_ID = range(3)


class WordVocabulary:
    """The words that a language model predicts, and a mark for all others, as in bilm-tf.

    Its file has one word per line: <S> and </S>, which start and end a sentence, <UNK>, then words
    from frequent to rare. The id of a word is the number of lines before it. A word in a text that
    is spelled like a mark is unknown.

    Args:
        words: in the order of their ids, the three marks first.
        source: where the words come from, for messages.

    Attributes:
        words: as given.

    Raises:
        ValueError: the marks are missing, or a word is empty or repeated.

    Example:
        >>> vocabulary = WordVocabulary(["<S>", "</S>", "<UNK>", "the", "cat"])
        >>> vocabulary.ids(["the", "dog", "</S>"])
        array([3, 2, 2], dtype=int32)
    """

    def __init__(self, words: Sequence[str], *, source: str = "vocabulary") -> None:
        self.words = list(words)
        if tuple(self.words[: len(MARKS)]) != MARKS:
            raise ValueError(
                f"{source}: starts with {self.words[: len(MARKS)]}, not with the lines "
                f"{', '.join(MARKS)}: take the file that came with the weights"
            )
        self._ids: dict[str, int] = {}
        for index, word in enumerate(self.words):
            first = self._ids.setdefault(word, index)
            if not word or first != index:
                trouble = f"repeats line {first + 1}" if word else "is empty"
                raise ValueError(
                    f"{source}:{index + 1}: {word!r} {trouble}, and each line is a word's id: take "
                    "the file from its source again"
                )

    @classmethod
    def learn(
        cls,
        words: Sequence[str],
        counts: Sequence[int] | np.ndarray,
        *,
        vocabulary_size: int,
        min_frequency: int = 2,
    ) -> "WordVocabulary":
        """Takes the most frequent words of a text; equally frequent ones in alphabetical order.

        Args:
            words: each word of the text once.
            counts: how often each occurs.
            vocabulary_size: the most words, the marks included.
            min_frequency: words that occur less often are unknown. With 1, and room for all words,
                a model would never see an unknown one.

        Raises:
            ValueError: there is no room for a word, or no word is frequent enough.
        """
        if vocabulary_size <= len(MARKS):
            raise ValueError(
                f"vocabulary_size={vocabulary_size}: {', '.join(MARKS)} take {len(MARKS)} already"
            )
        rows = sorted(
            (-int(count), word)
            for word, count in zip(words, counts, strict=True)
            if count >= min_frequency and word not in MARKS
        )
        if not rows:
            raise ValueError(
                f"no word occurs {min_frequency} times among {len(words)} different ones: give "
                "more text, or a smaller min_frequency"
            )
        return cls([*MARKS, *(word for _, word in rows[: vocabulary_size - len(MARKS)])])

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "WordVocabulary":
        """Reads a file of one word per line.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not UTF-8 or not such a vocabulary; the message names the line.
        """
        return cls(list(read_lines(Path(path))), source=os.fspath(path))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of one word per line, whole or not at all.

        Raises:
            FileExistsError: the file exists.
            FileNotFoundError: its folder does not.
        """
        vocabulary_files.write(self.words, Path(path))

    def __len__(self) -> int:
        return len(self.words)

    def ids(self, words: Iterable[str]) -> np.ndarray:
        """The ids of the words of a text: int32 (words,)."""
        spelled = (UNKNOWN if word in MARKS else word for word in words)
        return np.array([self._ids.get(word, UNKNOWN_ID) for word in spelled], np.int32)
