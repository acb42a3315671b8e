"""Makes kneser_ney.json with nltk.lm (pip install nltk).

    python tests/golden/make_kneser_ney.py

Log probabilities of nltk's interpolated Kneser-Ney, whose one discount is our three alike. Two
things are arranged from outside: n-grams that end in a mark of the begin are not counted, and
unigrams leave their discount to 1 / vocabulary_size, where nltk does not discount them.
"""

import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "kneser_ney.json"
DISCOUNT = 0.6
VOCABULARY_SIZE = 12
ORDERS = (2, 3, 4)
MARK = "<s>"


def sequences(num_sequences: int, seed: int) -> list[list[int]]:
    """Random ids of which some are frequent; the last of the vocabulary only in other texts."""
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, VOCABULARY_SIZE + 1)
    shares[-1] = 0 if seed == 0 else shares[-1]
    lengths = random.integers(1, 15, num_sequences)
    draws = [random.choice(VOCABULARY_SIZE, length, p=shares / shares.sum()) for length in lengths]
    return [ids.tolist() for ids in draws]


def marked(ids: list[int], order: int) -> list[str]:
    """The sequence as nltk is given it."""
    return [MARK] * (order - 1) + [str(token_id) for token_id in ids]


def log_probabilities(order: int) -> list[list[float]]:
    """Of each token of the sequences to measure."""
    from nltk.lm import NgramCounter, Vocabulary
    from nltk.lm.models import InterpolatedLanguageModel
    from nltk.lm.smoothing import KneserNey

    class DiscountedUnigrams(KneserNey):
        def unigram_score(self, word: str) -> float:
            count, total = self._continuation_counts(word)
            left = self.discount * len(self.counts.unigrams) / total
            return max(count - self.discount, 0) / total + left / VOCABULARY_SIZE

    grams = [
        [tuple(words[end - n : end]) for end in range(order, len(words) + 1) for n in lengths]
        for words in (marked(ids, order) for ids in sequences(60, 0))
        for lengths in [range(1, order + 1)]
    ]
    model = InterpolatedLanguageModel(
        DiscountedUnigrams,
        order,
        vocabulary=Vocabulary([str(i) for i in range(VOCABULARY_SIZE)]),
        counter=NgramCounter(grams),
        params={"order": order, "discount": DISCOUNT},
    )
    found = []
    for ids in sequences(10, 1):
        words = marked(ids, order)
        scores = [
            model.unmasked_score(words[i], tuple(words[i - order + 1 : i]))
            for i in range(order - 1, len(words))
        ]
        found.append(np.log(scores).tolist())
    return found


def golden() -> dict:
    """All of the file."""
    return {str(order): log_probabilities(order) for order in ORDERS}


def main() -> None:
    """Writes the file."""
    FILE.write_text(json.dumps(golden()) + "\n")


if __name__ == "__main__":
    main()
