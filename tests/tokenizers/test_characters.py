import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.tokenizers.characters import CharacterTokenizer

TEXTS = ["I am  here .", "über\tnaïve 日本語", "", " \n ", "x" * 60 + " ok", "<S> a</S>"]


def bilm_word(word: bytes, max_characters: int) -> list[int]:
    """bilm-tf's UnicodeCharsVocabulary._convert_word_to_char_ids, reimplemented from its docs."""
    code = [260] * max_characters  # pad_char
    code[0] = 258  # bow_char
    word = word[: max_characters - 2]
    for place, byte in enumerate(word, start=1):
        code[place] = byte
    code[len(word) + 1] = 259  # eow_char
    return code


def bilm_text(text: str, max_characters: int = 50) -> np.ndarray:
    """A row of bilm-tf's Batcher before padding: with markers, and 1 added to every id."""
    markers = [[258, mark, 259] + [260] * (max_characters - 3) for mark in (256, 257)]
    words = [bilm_word(word.encode(), max_characters) for word in text.split()]
    return np.array([markers[0], *words, markers[1]]) + 1


@pytest.mark.parametrize("max_characters", [50, 7, 3])
def test_ids_are_those_of_bilm(max_characters):
    ids = CharacterTokenizer(max_characters=max_characters)(tf.constant(TEXTS))["character_ids"]
    assert ids.dtype == tf.int32
    for row, text in zip(ids.numpy(), TEXTS, strict=True):
        expected = bilm_text(text, max_characters)
        np.testing.assert_array_equal(row[: len(expected)], expected)
        assert not row[len(expected) :].any()
    assert ids.shape[1:] == (6, max_characters)


def test_written_out_by_hand():
    ids = CharacterTokenizer(max_characters=6)(["ab"])["character_ids"].numpy()
    assert ids.tolist() == [
        [
            [259, 257, 260, 261, 261, 261],
            [259, 98, 99, 260, 261, 261],
            [259, 258, 260, 261, 261, 261],
        ]
    ]


def test_empty_batches_words_and_any_bytes():
    tokenizer = CharacterTokenizer()
    assert tokenizer(tf.constant([], tf.string))["character_ids"].shape == (0, 0, 50)
    empty = tokenizer.encode(tf.ragged.constant([["", "a"]]))[0].numpy()
    assert empty[1, :3].tolist() == [259, 260, 261]
    odd = tokenizer.encode_words(tf.constant([b"\xff\x00\xfe"]))[0, :5].numpy()
    assert odd.tolist() == [259, 256, 1, 255, 260]
    assert tokenizer.encode(tf.ragged.constant([[]], dtype=tf.string)).shape == (1, 2, 50)


def test_cut_words_are_counted():
    tokenizer = CharacterTokenizer()
    words = tokenizer.words(["x" * 48, "y" * 49 + " z", "é" * 25])
    assert int(tokenizer.num_cut(words)) == 2
    whole, cut, _, _ = tokenizer.encode_words(words.values).numpy()
    assert whole[-1] == cut[-1] == 260


def test_the_same_in_a_graph_and_after_saving(tmp_path):
    tokenizer = CharacterTokenizer()
    module = tf.Module()
    module.tokenizer = tokenizer
    module.run = tf.function(tokenizer, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    expected = tokenizer(tf.constant(TEXTS))["character_ids"]
    np.testing.assert_array_equal(loaded.run(tf.constant(TEXTS))["character_ids"], expected)


def test_too_few_characters_are_refused():
    with pytest.raises(ValueError, match="max_characters=2:.*word.*3 ids"):
        CharacterTokenizer(max_characters=2)
