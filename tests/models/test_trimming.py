"""A smaller vocabulary for texts of a kind."""

import pytest

from keras_transformers.data.text import frequent_tokens
from keras_transformers.tokenizers import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *"abcz", *(f"##{x}" for x in "abcz"), "ab", "abc", "ca", "cab", "##ab"]
TEXTS = ["abc abc abc ab", "cab ca abc"]


@pytest.fixture(scope="module")
def large():
    return WordPieceTokenizer(VOCABULARY)


def test_the_most_frequent_tokens_and_all_characters_stay(large):
    kept = [VOCABULARY[i] for i in frequent_tokens(large, TEXTS, size=12)]
    assert kept == [*SPECIAL, *"abc", *(f"##{x}" for x in "abc"), "abc"]
    small = WordPieceTokenizer(kept)
    spelled = [[kept[i] for i in row] for row in small.tokenize(TEXTS).to_list()]
    assert spelled[1] == ["c", "##a", "##b", "c", "##a", "abc"]
    assert not any("[UNK]" in row for row in spelled)


def test_all_tokens_stay_if_there_is_room(large):
    assert frequent_tokens(large, TEXTS, size=100) == list(range(len(VOCABULARY)))


def test_too_little_room_is_an_error(large):
    with pytest.raises(ValueError, match="size=10: .* need 11"):
        frequent_tokens(large, TEXTS, size=10)
