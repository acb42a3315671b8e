"""Words in any script, and how much of texts is written in one."""

import pytest

from keras_transformers.tokenizers.scripts import NOT_CHINESE, WITHOUT_SPACES, share, words_of


def test_words_end_at_spaces_or_are_characters():
    assert words_of("  two dogs\tran. ") == ["two", "dogs", "ran."]
    assert words_of("我爱TensorFlow 2。") == ["我", "爱", "TensorFlow", "2。"]
    assert words_of("") == []


@pytest.mark.parametrize(
    ("texts", "not_chinese", "without_spaces"),
    [
        (["我在看 LibreOffice。", "a"], 0, 3 / 5),  # all texts count together
        (["犬がソファで寝ています"], 9 / 11, 1),
        (["สุนัข"], 1, 1),
        (["zwei Hunde"], 0, 0),
        ([], 0, 0),
    ],
)
def test_the_share_of_a_script_is_of_all_words(texts, not_chinese, without_spaces):
    assert share(NOT_CHINESE, texts) == not_chinese
    assert share(WITHOUT_SPACES, texts) == without_spaces
