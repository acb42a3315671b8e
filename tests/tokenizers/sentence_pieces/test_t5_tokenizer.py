"""T5's tokenizer: extra ids in reverse order, ids as transformers' (tests/convert), bad files."""

import encoder_decoder_toys as toys
import pytest
import tensorflow as tf
from encoder_decoder_toys import NUM_PIECES

from keras_transformers.tokenizers import T5Tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return toys.t5_tokenizer(padded_to=64)


def test_special_tokens_and_sizes(tokenizer):
    found = tokenizer.vocabulary
    assert found[:3] == ["<pad>", "</s>", "<unk>"]
    assert found[NUM_PIECES] == "<extra_id_9>"
    assert found[NUM_PIECES + 9] == "<extra_id_0>"
    assert found[NUM_PIECES + 10 :] == [f"<unused_{index}>" for index in range(43, 64)]
    assert len(found) == tokenizer.vocabulary_size == 64
    ids = tokenizer.tokenize(["", "a"], add_start=True, add_end=True).to_list()
    assert (ids[0], ids[1][0], ids[1][-1]) == ([0, 1], 0, 1)


def test_extra_ids_stand_between_ordinary_tokens(tokenizer):
    text = "a <extra_id_0> dog<extra_id_9>"
    ids = tokenizer.tokenize([text, "a", "dog", "<extra_id_10> </s>"]).to_list()
    assert ids[0] == [*ids[1], NUM_PIECES + 9, *ids[2], NUM_PIECES]
    # There are ten extra ids, and other special tokens' names are ordinary text.
    assert all(2 <= number < NUM_PIECES for number in ids[3])
    assert 1 not in ids[3]


def test_texts_come_back(tokenizer):
    texts = ["a small dog <extra_id_3> the shore", "<extra_id_0> <extra_id_1>", "two dogs", ""]
    ids = tokenizer.tokenize(texts, add_start=True, add_end=True)
    expected = [text.encode() for text in texts]
    assert tokenizer.detokenize(ids).numpy().tolist() == expected
    padded = ids.to_tensor(tokenizer.pad_token_id)
    assert tokenizer.detokenize(padded[:, None]).numpy().tolist() == [[text] for text in expected]
    unused = tf.concat([padded, tf.fill([4, 1], 63)], axis=1)
    assert tokenizer.detokenize(unused).numpy().tolist() == expected
    assert tokenizer.detokenize(tf.zeros((0, 3), tf.int32)).shape == (0,)
    assert tokenizer.detokenize(tf.zeros((2, 0), tf.int32)).numpy().tolist() == [b"", b""]


def test_awkward_texts_have_ids_of_the_vocabulary(tokenizer):
    texts = [
        b"\xff",
        b"\x00 a",
        b"\xff\xfe\xff<extra_id_0>",
        "<extra_id_",
        "<extra_id_0",
        "\n",
        "é",
    ]
    flat = tokenizer.tokenize(texts).flat_values.numpy()
    assert ((flat >= 2) & (flat < NUM_PIECES + 10)).all()


def test_without_extra_ids_their_names_are_text():
    plain = toys.t5_tokenizer(num_extra_ids=0)
    assert plain.vocabulary_size == NUM_PIECES
    ids = plain.tokenize(["a <extra_id_0>"])
    assert plain.detokenize(ids).numpy()[0].startswith(b"a")
    assert ids.flat_values.numpy().max() < NUM_PIECES


def test_saved_and_loaded(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    loaded = T5Tokenizer.load(tmp_path, **tokenizer.config())
    assert loaded.vocabulary == tokenizer.vocabulary
    assert loaded.config() == {"num_extra_ids": 10, "vocabulary_size": 64}


def test_files_and_sizes_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="spiece.model: no such file"):
        T5Tokenizer(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"no model")
    with pytest.raises(ValueError, match="spiece.model:.*SentencePiece model"):
        T5Tokenizer(tmp_path)
    with pytest.raises(ValueError, match="33 tokens.*10 extra.*40: use"):
        toys.t5_tokenizer(padded_to=40)
    with pytest.raises(ValueError, match="num_extra_ids=-1: expected.*0.*more"):
        toys.t5_tokenizer(num_extra_ids=-1)


def test_a_model_with_other_special_tokens_is_refused(tmp_path):
    from tiny import sentence_pieces

    sentence_pieces().save(tmp_path)
    with pytest.raises(ValueError, match=r"\['<pad>', '<unk>', '<s>'\], T5's"):
        T5Tokenizer(tmp_path / "vocabulary.model")
