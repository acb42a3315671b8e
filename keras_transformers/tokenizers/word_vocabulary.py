"""Learns, reads and writes vocabularies of whole words, for models that predict words."""

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
    from frequent to rare. A word's id is the number of lines before it. A word in a text that is
    spelled like a mark is unknown.

    Args:
        words: words in the order of their ids, starting with the three marks.
        source: where the words come from, for error messages.

    Attributes:
        words: the words by id.

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
                f"{', '.join(MARKS)}: use the file that came with the weights"
            )
        self._ids: dict[str, int] = {}
        for index, word in enumerate(self.words):
            first = self._ids.setdefault(word, index)
            if not word or first != index:
                trouble = f"repeats line {first + 1}" if word else "is empty"
                raise ValueError(
                    f"{source}:{index + 1}: {word!r} {trouble}, but a word's id is its line: "
                    "download the file again"
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
        """Selects the most frequent words of a text; equally frequent ones alphabetically.

        Args:
            words: the distinct words of the text.
            counts: how often each occurs.
            vocabulary_size: maximum number of words, including the marks.
            min_frequency: words that occur less often are unknown. With 1, and room for all words,
                a model would never see an unknown word.

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
                f"none of {len(words)} words occurs {min_frequency} times: use more text or a "
                "smaller min_frequency"
            )
        return cls([*MARKS, *(word for _, word in rows[: vocabulary_size - len(MARKS)])])

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "WordVocabulary":
        """Reads a file with one word per line.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: it is not UTF-8 or not a valid vocabulary; the message names the line.
        """
        return cls(list(read_lines(Path(path))), source=os.fspath(path))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a file with one word per line, atomically.

        Raises:
            FileExistsError: the file exists.
            FileNotFoundError: its folder does not exist.
        """
        vocabulary_files.write(self.words, Path(path))

    def __len__(self) -> int:
        return len(self.words)

    def ids(self, words: Iterable[str]) -> np.ndarray:
        """Returns the ids of a text's words: int32 (words,)."""
        spelled = (UNKNOWN if word in MARKS else word for word in words)
        return np.array([self._ids.get(word, UNKNOWN_ID) for word in spelled], np.int32)
