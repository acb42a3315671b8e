"""Edit distance between sequences, and the error rates of pronunciations that are built on it."""

import dataclasses
from collections.abc import Hashable, Sequence


def edit_distance(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """How many insertions, deletions and substitutions turn one sequence into the other.

    Levenshtein 1966, all three at the price of 1.

    Example:
        >>> edit_distance("kitten", "sitting")
        3
    """
    row = list(range(len(second) + 1))  # from nothing to each beginning of the second
    for i, left in enumerate(first, start=1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(second, start=1):
            substituted = diagonal + (left != right)
            diagonal = row[j]
            row[j] = min(substituted, row[j - 1] + 1, diagonal + 1)
    return row[-1]


@dataclasses.dataclass(frozen=True)
class PronunciationErrors:
    """Counts over words, each judged by the pronunciation that is closest to its hypothesis.

    Attributes:
        num_words: all words.
        num_wrong_words: whose hypothesis is none of their pronunciations.
        num_phonemes: of the closest pronunciations.
        num_edits: insertions, deletions and substitutions from those to the hypotheses.
    """

    num_words: int
    num_wrong_words: int
    num_phonemes: int
    num_edits: int

    @property
    def phoneme_error_rate(self) -> float:
        """Edits by phonemes, from 0; above 1 where much is inserted."""
        return self.num_edits / self.num_phonemes

    @property
    def word_error_rate(self) -> float:
        """Share of wrong words, 0 to 1."""
        return self.num_wrong_words / self.num_words


def pronunciation_errors(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> PronunciationErrors:
    """Compares pronunciations with those of a dictionary.

    Args:
        hypotheses: a pronunciation for each word, phonemes between spaces; it may be empty.
        references: all pronunciations of each word. The one with the fewest edits counts, of
            equals the first.

    Raises:
        ValueError: no words, another number of hypotheses than of references, or a word without a
            pronunciation or with an empty one.

    Example:
        >>> errors = pronunciation_errors(["T UW", "K AE"], [["T AH", "T UW"], ["K AE T"]])
        >>> errors.num_edits, errors.num_phonemes, errors.word_error_rate
        (1, 5, 0.5)
    """
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses for {len(references)} words: give one a word, in the "
            "same order"
        )
    if not hypotheses:
        raise ValueError("error rates of no words are not defined: is the dictionary empty?")
    num_wrong = num_phonemes = num_edits = 0
    for index, (hypothesis, pronunciations) in enumerate(zip(hypotheses, references, strict=True)):
        sequences = [pronunciation.split() for pronunciation in pronunciations]
        if not sequences or not all(sequences):
            raise ValueError(
                f"word {index} has the pronunciations {list(pronunciations)}: expected at least "
                "one, each of at least one phoneme"
            )
        found = hypothesis.split()
        distances = [edit_distance(found, sequence) for sequence in sequences]
        edits = min(distances)
        num_edits += edits
        num_phonemes += len(sequences[distances.index(edits)])
        num_wrong += edits > 0
    return PronunciationErrors(len(hypotheses), num_wrong, num_phonemes, num_edits)
