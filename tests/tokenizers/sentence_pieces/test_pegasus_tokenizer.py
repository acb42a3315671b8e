"""PEGASUS's tokenizer: the SentencePiece model's ids, 103 further."""

import encoder_decoder_toys as toys
import pytest
import tensorflow as tf

from keras_transformers.tokenizers import PegasusTokenizer
from keras_transformers.tokenizers.packing import ends_of_sources

TEXTS = ["a small dog runs", "", "  two   dogs ", "Zürich: <mask_1>"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("pegasus") / "vocabulary"
    toys.pegasus_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def ours(folder):
    return PegasusTokenizer(folder)


def test_ids_are_those_of_the_model_and_103(ours):
    pieces = toys.t5_tokenizer(num_extra_ids=0).tokenize(TEXTS).to_list()
    assert ours.tokenize(TEXTS).to_list() == [[piece + 103 for piece in row] for row in pieces]
    added = ours.tokenize(TEXTS[:1], add_start=True, add_end=True).to_list()
    assert added == [[0, *(piece + 103 for piece in pieces[0]), 1]]
    assert ends_of_sources(ours) == ([], [1])


def test_the_vocabulary_has_the_tokens_of_the_pretraining(ours):
    vocabulary = ours.vocabulary
    assert len(vocabulary) == ours.vocabulary_size == toys.NUM_PIECES + 103
    assert vocabulary[:5] == ["<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk_2>"]
    assert vocabulary[104:106] == ["<unk_102>", "<unk>"]
    assert vocabulary[ours.unknown_token_id] == "<unk>"
    assert vocabulary[ours.mask_token_id] == ours.mask_token


def test_texts_come_back_without_special_tokens(ours, tmp_path):
    ids = ours.tokenize(TEXTS[:1], add_start=True, add_end=True)
    special = tf.constant([[2, 3, 50, 0, 0]])
    assert ours.detokenize(tf.concat([ids, special], axis=1)).numpy().tolist() == [
        b"a small dog runs"
    ]
    added = [{"id": ours.vocabulary_size, "content": "<n>", "special": False}]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    ours.save(tmp_path)
    more = PegasusTokenizer.load(tmp_path, added_tokens=[{**added[0], **flags}])
    again = PegasusTokenizer.load(tmp_path, **more.config())
    for tokenizer in (more, again):
        found = tokenizer.tokenize(["a small<n>dog"])
        assert added[0]["id"] in found.to_list()[0]
        assert tokenizer.vocabulary[-1] == "<n>"
        assert tokenizer.detokenize(found).numpy().tolist() == [b"a small <n> dog"]


def test_another_vocabulary_is_refused(tmp_path):
    files = toys.marian_folder(tmp_path)
    with pytest.raises(ValueError, match="the first pieces are .* PegasusTokenizer needs .*<pad>"):
        PegasusTokenizer(files / "source.spm")


@pytest.mark.reference
def test_ids_equal_transformers(ours, folder):
    import transformers

    theirs = transformers.PegasusTokenizer.from_pretrained(folder)
    texts = ["a small dog runs", "", "two   dogs", "Zürich: near the shore"]
    assert [[*ids, 1] for ids in ours.tokenize(texts).to_list()] == theirs(texts)["input_ids"]
    assert theirs.convert_ids_to_tokens(range(106)) == ours.vocabulary[:106]
