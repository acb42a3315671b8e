"""Edit distance, and error rates against several pronunciations."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformers.evaluation.pronunciation import edit_distance, pronunciation_errors

WORDS = st.text("abc", max_size=7)


@functools.cache
def by_definition(first, second):
    if not first or not second:
        return len(first) + len(second)
    return min(
        by_definition(first[1:], second) + 1,
        by_definition(first, second[1:]) + 1,
        by_definition(first[1:], second[1:]) + (first[0] != second[0]),
    )


@given(WORDS, WORDS)
def test_the_distance_is_its_definition(first, second):
    assert edit_distance(first, second) == by_definition(first, second)


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("kitten", "sitting", 3),
        ("", "abc", 3),
        ("abc", "", 3),
        ("", "", 0),
        (["AH0", "B"], ["AH1", "B"], 1),
        ("ab", "ba", 2),  # a transposition is no edit of its own
    ],
)
def test_known_distances(first, second, distance):
    assert edit_distance(first, second) == distance


def test_each_word_is_judged_by_its_closest_pronunciation():
    references = [
        ["T AH M EY T OW", "T AH M AA T OW"],  # the second, exactly
        ["K AE T", "K AE T S AH N"],  # one edit from the first
        ["B IY"],  # nothing was said: two deletions
    ]
    found = pronunciation_errors(["T AH M AA T OW", "K AE D", ""], references)
    assert (found.num_words, found.num_wrong_words) == (3, 2)
    assert (found.num_phonemes, found.num_edits) == (6 + 3 + 2, 0 + 1 + 2)
    assert found.phoneme_error_rate == pytest.approx(3 / 11)
    assert found.word_error_rate == pytest.approx(2 / 3)


def test_phonemes_are_the_symbols_and_not_their_letters():
    found = pronunciation_errors(["AA B"], [["AH B"]])
    assert (found.num_edits, found.num_phonemes) == (1, 2)


def test_much_too_much_is_more_than_all_wrong():
    assert pronunciation_errors(["A B C D"], [["X"]]).phoneme_error_rate == 4.0


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (["A"], [["A"], ["B"]], "1 hypotheses for 2 words"),
        ([], [], "of no words are not defined"),
        (["A", "B"], [["A"], []], r"word 1 has the pronunciations \[\]"),
        (["A"], [["A", " "]], r"word 0 has the pronunciations \['A', ' '\]"),
    ],
)
def test_wrong_input_is_named(hypotheses, references, message):
    with pytest.raises(ValueError, match=message):
        pronunciation_errors(hypotheses, references)
