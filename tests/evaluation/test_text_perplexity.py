import math

import pytest

from keras_transformers.evaluation.text_perplexity import LogProbabilityOfTokens, TextPerplexity


def test_the_three_figures_of_a_text():
    """A text whose every byte costs 2 bits: 100 bytes in 25 tokens and 20 words."""
    figures = TextPerplexity(200 * math.log(2), num_tokens=25, num_words=20, num_bytes=100)
    assert figures.figures("model") == pytest.approx(
        {
            "model, perplexity per token": 2.0**8,
            "model, perplexity per word": 2.0**10,
            "model, bits per byte": 2.0,
        }
    )


def test_a_word_beyond_all_numbers():
    assert TextPerplexity(1e4, num_tokens=100, num_words=1, num_bytes=100).per_word == math.inf


@pytest.mark.parametrize("counts", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nothing_to_measure_by_is_refused(counts):
    with pytest.raises(ValueError, match="nothing to measure a text by"):
        TextPerplexity(1.0, *counts)


def test_the_callback_adds_what_is_highest_where_perplexity_is_lowest():
    callback, logs = LogProbabilityOfTokens(), {"val_perplexity": math.e**2}
    callback.on_epoch_end(0, logs)
    assert logs["val_log_probability"] == pytest.approx(-2.0)
    with pytest.raises(ValueError, match=r"no 'val_perplexity' in the logs .*\(they have loss\)"):
        callback.on_epoch_end(0, {"loss": 1.0})
