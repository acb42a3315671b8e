"""CamemBERT's tokenizer against the `sentencepiece` library; the rest is XLM-RoBERTa's."""

import camembert_toy
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformers.tokenizers import CamembertTokenizer

TEXTS = ["a good film", "", " two  dogs\nrun\t", "Cafés in Zürich, 東京 🎬🎬!", "<s> is text </s>"]
FIRST = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"]


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return camembert_toy.tokenizer(tmp_path_factory.mktemp("camembert"))


@pytest.fixture(scope="module")
def theirs(ours):
    return sentencepiece.SentencePieceProcessor(model_proto=ours._model)


def test_ids_are_those_of_the_library_plus_four(ours, theirs):
    found = ours.tokenize(TEXTS).to_list()
    wanted = [[piece + 4 if piece else 3 for piece in theirs.encode(text)] for text in TEXTS]
    assert found == wanted
    assert ours.unknown_token_id in found[3]


def test_the_vocabulary_has_five_tokens_before_the_models(ours, theirs):
    pieces = [theirs.id_to_piece(piece) for piece in range(1, theirs.vocab_size())]
    assert ours.vocabulary == [*FIRST, *pieces, "<mask>"]
    assert ours.vocabulary_size == theirs.vocab_size() + 5
    special = (ours.start_token_id, ours.pad_token_id, ours.end_token_id, ours.mask_token_id)
    names = [ours.vocabulary[token_id] for token_id in special]
    assert names == ["<s>", "<pad>", "</s>", "<mask>"]


def test_pairs_are_packed_and_come_back(ours):
    packed = ours(["two dogs run"], ["a film"], max_sequence_length=40, pad_to_max_length=True)
    first, second = ours.tokenize(["two dogs run", "a film"]).to_list()
    ids = packed["token_ids"].numpy()[0]
    assert ids[packed["padding_mask"].numpy()[0]].tolist() == [5, *first, 6, 6, *second, 6]
    assert set(ids[~packed["padding_mask"].numpy()[0]]) == {1}
    assert ours.detokenize(packed["token_ids"]).numpy().tolist() == [b"two dogs run a film"]
    others = tf.ragged.constant([[0, 2, 4, 5, 6, ours.mask_token_id, ours.unknown_token_id]])
    assert ours.detokenize(others).numpy().tolist() == [" ⁇ ".encode()]


def test_it_is_saved_and_loaded(ours, tmp_path):
    ours.save(tmp_path)
    assert CamembertTokenizer.load(tmp_path, **ours.config()).vocabulary == ours.vocabulary
