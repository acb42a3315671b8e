"""Words in any script, and what texts are mostly written in."""

import pytest

from keras_transformers.tokenizers.scripts import CHINESE, WITHOUT_SPACES, mostly, words_of


def test_words_end_at_spaces_or_are_characters():
    assert words_of("  two dogs\tran. ") == ["two", "dogs", "ran."]
    assert words_of("我爱TensorFlow 2。") == ["我", "爱", "TensorFlow", "2。"]
    assert words_of("") == []


@pytest.mark.parametrize(
    ("texts", "chinese", "without_spaces"),
    [
        (["我在看 LibreOffice。", "a"], True, True),  # all texts count together
        (["我", "two dogs run"], False, False),
        (["犬がソファで寝ています"], False, True),
        (["สุนัข"], False, True),
        (["zwei Hunde"], False, False),
        ([], False, False),
    ],
)
def test_most_words_decide(texts, chinese, without_spaces):
    assert mostly(CHINESE, texts) == chinese
    assert mostly(WITHOUT_SPACES, texts) == without_spaces
