"""Words of OpenNMT-tf's vocabularies."""

import pytest

import keras_transformers as kt

WORDS = ["<blank>", "<s>", "</s>", "a", "dog", "ein"]


def test_ids_are_lines_and_unknown_words_the_last():
    tokenizer = kt.tokenizers.OpenNMTTokenizer(WORDS)
    assert tokenizer.vocabulary == [*WORDS, "<unk>"]
    ids = tokenizer.tokenize(["a  dog", "", "ein\tcat"], add_start=True, add_end=True)
    assert ids.to_list() == [[1, 3, 4, 2], [1, 2], [1, 5, 6, 2]]
    assert tokenizer.detokenize(ids).numpy().tolist() == [b"a dog", b"", b"ein <unk>"]
    assert tokenizer.special_tokens(1) == ([], [])


def test_saved_and_restored(tmp_path):
    tokenizer = kt.tokenizers.OpenNMTTokenizer(WORDS)
    tokenizer.save(tmp_path)
    assert kt.tokenizers.OpenNMTTokenizer.load(tmp_path).vocabulary == tokenizer.vocabulary


@pytest.mark.parametrize(
    ("words", "message"),
    [(["a", "b"], r"starts with \['a', 'b'\], not with <blank>"), ([*WORDS, "dog"], "'dog' twice")],
)
def test_other_vocabularies(words, message):
    with pytest.raises(ValueError, match=message):
        kt.tokenizers.OpenNMTTokenizer(words)
