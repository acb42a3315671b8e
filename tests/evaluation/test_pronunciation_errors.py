"""Error rates with several reference pronunciations."""

import functools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformers.evaluation.pronunciation import pronunciation_errors


@functools.cache
def edit_distance(first, second):
    if not first or not second:
        return len(first) + len(second)
    return min(
        edit_distance(first[1:], second) + 1,
        edit_distance(first, second[1:]) + 1,
        edit_distance(first[1:], second[1:]) + (first[0] != second[0]),
    )


@given(st.text("abc", max_size=7), st.text("abc", min_size=1, max_size=7))
def test_edits_are_those_of_the_definition(hypothesis, reference):
    found = pronunciation_errors([" ".join(hypothesis)], [[" ".join(reference)]])
    assert found.num_edits == edit_distance(hypothesis, reference)


@pytest.mark.parametrize(
    ("hypothesis", "reference", "edits"),
    [
        ("k i t t e n", "s i t t i n g", 3),
        ("", "a b c", 3),
        ("AH0 B", "AH1 B", 1),
        ("a b", "b a", 2),  # a swap counts as two edits
    ],
)
def test_known_edits(hypothesis, reference, edits):
    assert pronunciation_errors([hypothesis], [[reference]]).num_edits == edits


def test_each_word_is_judged_by_its_closest_pronunciation():
    references = [
        ["T AH M EY T OW", "T AH M AA T OW"],  # the second, exactly
        ["K AE T", "K AE T S AH N"],  # one edit from the first
        ["B IY"],  # an empty hypothesis: two deletions
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
        ([], [], "of no words are undefined"),
        (["A", "B"], [["A"], []], r"word 1 has the pronunciations \[\]"),
        (["A"], [["A", " "]], r"word 0 has the pronunciations \['A', ' '\]"),
    ],
)
def test_wrong_input_is_named(hypotheses, references, message):
    with pytest.raises(ValueError, match=message):
        pronunciation_errors(hypotheses, references)


def test_without_rapidfuzz_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(ImportError, match=r"needs rapidfuzz: pip install .*\[evaluation\]"):
        pronunciation_errors(["A"], [["A"]])
