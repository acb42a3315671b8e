"""BLEU by the length of the source: what attention is for shows in long sentences."""

import bisect
from collections.abc import Sequence
from typing import Any

from keras_transformers.evaluation.token_metrics import bleu

# Of Multi30k's German test sentences (2016) each of the six classes has 75 to 234.
_LIMITS = (7, 9, 11, 13, 16)


def bleu_by_length(
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
    *,
    limits: Sequence[int] = _LIMITS,
) -> list[dict[str, Any]]:
    """Corpus BLEU of the translations of short sources, of longer ones, and so on.

    Bahdanau et al. 2014, figure 2, by words between spaces: they are the same whatever the
    vocabulary of a model is.

    Args:
        sources: detokenized.
        translations: of the sources.
        references: of the sources.
        limits: ascending; words of the longest source of each class but the last, which has none.

    Returns:
        For each class that has sentences: "words" ("8-9", "17+"), "mean_words" of its sources,
        "sentences", how many, and "bleu", 0 to 100 (cased, 13a).

    Raises:
        ImportError: sacrebleu is not installed.
        ValueError: the limits do not ascend, or there are unequal numbers of sentences.
    """
    if list(limits) != sorted(set(limits)) or not all(limit > 0 for limit in limits):
        raise ValueError(f"limits={list(limits)}: expected numbers of words that ascend from 1")
    lengths = [len(source.split()) for source in sources]
    rows = list(zip(lengths, translations, references, strict=True))
    found = []
    for index, first in enumerate((1, *(limit + 1 for limit in limits))):
        # A source without a word is one of the shortest.
        members = [row for row in rows if bisect.bisect_left(limits, row[0]) == index]
        if not members:
            continue
        counts, hypotheses, expected = zip(*members, strict=True)
        words = f"{first}-{limits[index]}" if index < len(limits) else f"{first}+"
        found.append(
            {
                "words": words,
                "mean_words": sum(counts) / len(counts),
                "sentences": len(members),
                "bleu": bleu(hypotheses, expected).score,
            }
        )
    return found
