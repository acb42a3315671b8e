"""Computes phoneme and word error rates of pronunciations, from edit distances."""

import dataclasses
from collections.abc import Sequence

from keras_transformers.dependencies.extras import optional

__all__ = ["PronunciationErrors", "pronunciation_errors"]


@dataclasses.dataclass(frozen=True)
class PronunciationErrors:
    """Counts errors; each hypothesis is compared with the closest pronunciation of its word.

    Attributes:
        num_words: number of words.
        num_wrong_words: words whose hypothesis matches none of their pronunciations.
        num_phonemes: phonemes in the closest pronunciations.
        num_edits: insertions, deletions and substitutions from these to the hypotheses.
    """

    num_words: int
    num_wrong_words: int
    num_phonemes: int
    num_edits: int

    @property
    def phoneme_error_rate(self) -> float:
        """Edits per phoneme, 0 or more; above 1 if the hypotheses are much too long."""
        return self.num_edits / self.num_phonemes

    @property
    def word_error_rate(self) -> float:
        """The share of wrong words, 0 to 1."""
        return self.num_wrong_words / self.num_words


def pronunciation_errors(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> PronunciationErrors:
    """Compares pronunciations with those of a dictionary, by Levenshtein distance.

    Args:
        hypotheses: one pronunciation per word, phonemes separated by spaces; may be empty strings.
        references: all pronunciations of each word. The one with the fewest edits counts; of equal
            ones, the first.

    Raises:
        ModuleNotFoundError: rapidfuzz is not installed (the extra `evaluation`).
        ValueError: there are no words, the numbers of hypotheses and references differ, or a word
            has no pronunciation or an empty one.

    Example:
        >>> errors = pronunciation_errors(["T UW", "K AE"], [["T AH", "T UW"], ["K AE T"]])
        >>> errors.num_edits, errors.num_phonemes, errors.word_error_rate
        (1, 5, 0.5)
    """
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses for {len(references)} words: pass one per word, in the "
            "same order"
        )
    if not hypotheses:
        raise ValueError("error rates of no words are undefined: is the dictionary empty?")
    distance = optional("rapidfuzz.distance", extra="evaluation").Levenshtein.distance
    num_wrong = num_phonemes = num_edits = 0
    for index, (hypothesis, pronunciations) in enumerate(zip(hypotheses, references, strict=True)):
        sequences = [pronunciation.split() for pronunciation in pronunciations]
        if not sequences or not all(sequences):
            raise ValueError(
                f"word {index} has the pronunciations {list(pronunciations)}: pass at least one, "
                "each with at least one phoneme"
            )
        phonemes = hypothesis.split()
        distances = [distance(phonemes, sequence) for sequence in sequences]
        edits = min(distances)
        num_edits += edits
        num_phonemes += len(sequences[distances.index(edits)])
        num_wrong += edits > 0
    return PronunciationErrors(len(hypotheses), num_wrong, num_phonemes, num_edits)
