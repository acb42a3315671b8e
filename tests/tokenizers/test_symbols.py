"""Characters and phonemes as tokens."""

import pytest
import tensorflow as tf

from keras_transformers.tokenizers.symbols import SymbolTokenizer

SYMBOLS = ["'", "AY", "HH", "a", "h", "i", "é"]


@pytest.fixture(scope="module")
def letters():
    return SymbolTokenizer(SYMBOLS, lowercase=True)


@pytest.fixture(scope="module")
def phonemes():
    return SymbolTokenizer(SYMBOLS, cut_at_spaces=True)


def test_letters_and_phonemes_share_their_ids(letters, phonemes):
    assert letters.vocabulary == ["<pad>", "<unk>", "<s>", "</s>", *SYMBOLS]
    assert letters.vocabulary_size == 11
    assert letters.tokenize(["hi", "h'é"]).to_list() == [[8, 9], [8, 4, 10]]
    assert phonemes.tokenize(["HH AY"]).to_list() == [[6, 5]]
    ends = phonemes.tokenize(["HH", ""], add_start=True, add_end=True)
    assert ends.to_list() == [[2, 6, 3], [2, 3]]
    assert ends.dtype == tf.int32


def test_odd_texts(letters, phonemes):
    texts = ["", "  ", " HI\n", "É", b"h\xffi", "h i", "x", "AY"]
    expected = [[], [], [8, 9], [10], [8, 1, 9], [8, 1, 9], [1], [7, 1]]
    assert letters.tokenize(texts).to_list() == expected
    odd = ["", "  ", "\tHH  AY ", "HHAY", b"\xff AY", "hh"]
    assert phonemes.tokenize(odd).to_list() == [[], [], [6, 5], [1], [1, 5], [1]]
    assert letters.tokenize(tf.constant([], tf.string)).to_list() == []


def test_ids_back_to_text(letters, phonemes):
    rows = [[6, 5, 3, 0], [3, 0, 0, 0], [1, 5, 3, 0]]
    assert phonemes.detokenize(rows).numpy().tolist() == [b"HH AY", b"", b"<unk> AY"]
    assert phonemes.detokenize(tf.ragged.constant([[6, 5], []])).numpy().tolist() == [b"HH AY", b""]
    assert letters.detokenize([[[8, 9, 3], [10, 3, 0]]]).numpy().tolist() == [[b"hi", "é".encode()]]
    for shape in ((0, 3), (2, 0), (2, 3, 0)):
        found = phonemes.detokenize(tf.zeros(shape, tf.int32))
        assert found.shape == shape[:-1]
    assert phonemes.tokens([[6, 0]]).numpy().tolist() == [[b"HH", b"<pad>"]]
    with pytest.raises(tf.errors.InvalidArgumentError):
        phonemes.detokenize([[11]])


def test_there_and_back_in_a_saved_graph(letters, phonemes, tmp_path):
    module = tf.Module()
    module.parts = [letters, phonemes]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def both(text):
        ids = letters.tokenize(text, add_end=True).to_tensor(letters.pad_token_id)
        return {"ids": ids, "text": letters.detokenize(ids)}

    tf.saved_model.save(module, str(tmp_path), signatures=both)
    found = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](
        tf.constant(["Hi", ""])
    )
    assert found["ids"].numpy().tolist() == [[8, 9, 3], [3, 0, 0]]
    assert found["text"].numpy().tolist() == [b"hi", b""]


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        (["a", "b", "a"], "symbol 'a', 2 times"),
        (["a", ""], "symbol '', 1 times"),
        (["a b"], "symbol 'a b', 1 times"),
        (["</s>"], "symbol '</s>', 2 times"),
    ],
)
def test_symbols_that_could_not_be_told_apart_are_refused(symbols, message):
    with pytest.raises(ValueError, match=message):
        SymbolTokenizer(symbols)
