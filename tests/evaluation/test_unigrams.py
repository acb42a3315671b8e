"""The unigram baseline against values computed by hand."""

import numpy as np
import pytest

from keras_transformers.evaluation.unigrams import unigram_baseline


def test_frequencies_of_one_text_measured_on_another():
    # Tokens 0 to 3 have the probabilities 1/8, 2/8, 4/8, 1/8; the most frequent is 2.
    baseline = unigram_baseline(np.array([0, 1, 3, 0]), np.array([2, 1, 1, 0]))
    assert baseline.accuracy == 1 / 4
    assert baseline.perplexity == pytest.approx(2 ** ((3 + 3 + 2 + 1) / 4))


def test_what_cannot_be_measured_is_refused():
    for train, dev in (([1, 2], [1, 2, 3]), ([1, 2], [0, 0])):
        with pytest.raises(ValueError, match="pass one count per token"):
            unigram_baseline(np.array(train), np.array(dev))
