"""MPNet's tokenizer against the `tokenizers` library, and its packing."""

import pytest
import tensorflow as tf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.processors import RobertaProcessing

from keras_transformers.tokenizers import MPNetTokenizer

VOCABULARY = (
    *("<s>", "<pad>", "</s>", "<unk>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("good", "film", "##s", "naive", "cafe", ",", "<", ">", "s", "/", "東", "京", "##e", "!"),
    "<mask>",
)
TEXTS = [
    *("Good films!", "", " film \n film", "naïve Cafés, 東京 🎬!", "<s> good </s>"),
    *("[UNK] <unk> <pad>", "goode filme"),
]


@pytest.fixture(scope="module")
def ours():
    return MPNetTokenizer(list(VOCABULARY))


@pytest.fixture(scope="module")
def theirs():
    ids = {token: token_id for token_id, token in enumerate(VOCABULARY)}
    found = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer(lowercase=True)
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return found


def rows(packed):
    return [
        ids[mask].tolist()
        for ids, mask in zip(
            packed["token_ids"].numpy(), packed["padding_mask"].numpy(), strict=True
        )
    ]


def test_ids_equal_the_library(ours, theirs):
    packed = ours(tf.constant(TEXTS), max_sequence_length=64)
    assert set(packed) == {"token_ids", "padding_mask"}
    assert rows(packed) == [theirs.encode(text).ids for text in TEXTS]
    assert packed["token_ids"].numpy()[~packed["padding_mask"].numpy()].tolist().count(1) > 5
    assert ours.lengths(TEXTS).numpy().tolist() == [len(row) for row in rows(packed)]


def test_pairs_have_two_separators_between_them(ours, theirs):
    packed = ours(TEXTS, TEXTS[::-1], max_sequence_length=64, pad_to_max_length=True)
    assert packed["token_ids"].shape == (len(TEXTS), 64)
    expected = [theirs.encode(a, b).ids for a, b in zip(TEXTS, TEXTS[::-1], strict=True)]
    assert rows(packed) == expected
    assert ours.lengths(TEXTS, TEXTS[::-1]).numpy().tolist() == list(map(len, expected))


def test_pairs_of_different_number_are_refused(ours):
    with pytest.raises(tf.errors.InvalidArgumentError, match="text_b.*number"):
        ours(["good"], ["good", "film"], max_sequence_length=64)


def test_special_tokens_are_no_text(ours):
    """ "[UNK]" stands for what is not in the vocabulary; "<unk>" is a token that no text has."""
    assert ours.unknown_token_id == VOCABULARY.index("[UNK]")
    ids = ours.tokenize(["<mask> <unk>"])[0].numpy()
    assert not {ours.mask_token_id, VOCABULARY.index("<unk>")} & set(ids.tolist())
    assert ours.split_at_masks(["a <mask> b"]).to_list() == [[b"a", b" b"]]


def test_texts_come_back_without_special_tokens(ours):
    packed = ours(["Good films!"], ["film"], max_sequence_length=16, pad_to_max_length=True)
    assert ours.detokenize(packed["token_ids"]).numpy().tolist() == [b"good films ! film"]


def test_a_learned_vocabulary_starts_with_its_special_tokens(tmp_path):
    (tmp_path / "text").write_text("good films and good film\n" * 3)
    learned = MPNetTokenizer.train([tmp_path / "text"], tmp_path / "vocab.txt", vocabulary_size=40)
    assert learned.vocabulary[:5] == ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    again = MPNetTokenizer.load(tmp_path, **learned.config())
    assert again.tokenize(["good films?"]).to_list() == learned.tokenize(["good films?"]).to_list()


@pytest.mark.parametrize("missing", ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"])
def test_a_vocabulary_without_a_special_token_is_refused(missing):
    with pytest.raises(ValueError, match="23 tokens;.*vocabulary"):
        MPNetTokenizer([token for token in VOCABULARY if token != missing])
