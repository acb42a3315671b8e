import pytest
import tensorflow as tf

from keras_transformers.families.static.files import bare_tokenizer
from keras_transformers.tokenizers import (
    BareTokenizer,
    BareWordPieceTokenizer,
    WordPieceTokenizer,
)

TOKENS = ["[UNK]", "good", "film", "##s", "über", "!"]


@pytest.fixture(scope="module")
def words():
    return BareWordPieceTokenizer(TOKENS, lowercase=False)


def test_no_special_tokens_and_no_unknown_ones(words):
    tokenizer = BareTokenizer(words)
    texts = ["good zebra films", "zebra", "", b"\xff!", "[UNK] good"]
    assert tokenizer.tokenize(texts).to_list() == [[1, 2, 3], [], [], [5], [1]]
    packed = tokenizer(texts, max_sequence_length=2)
    assert packed["token_ids"].shape == packed["segment_ids"].shape == (5, 2)
    lengths = tf.reduce_sum(tf.cast(packed["padding_mask"], tf.int32), axis=1)
    assert lengths.numpy().tolist() == [2, 0, 0, 1, 1]
    assert tokenizer.num_special_tokens(1) == tokenizer.num_special_tokens(2) == 0
    assert tokenizer.lengths(texts, texts).numpy().tolist() == [6, 0, 0, 2, 2]
    kept = BareTokenizer(words, drop_unknown=False)
    assert kept.tokenize(["good zebra films"]).to_list() == [[1, 0, 2, 3]]


def test_texts_are_cut_before_unknown_tokens_are_dropped(words):
    cut = BareTokenizer(words, max_tokens=2)
    assert cut.tokenize(["zebra good films", "good film"]).to_list() == [[1], [1, 2]]
    characters = BareTokenizer(words, max_characters=6)
    assert characters.tokenize(["über good", "gö good", "good"]).to_list() == [[4], [], [1]]
    for name in ("max_tokens", "max_characters"):
        with pytest.raises(ValueError, match=f"{name}=0.*at least 1"):
            BareTokenizer(words, **{name: 0})


def test_spans_are_those_of_the_tokens_that_are_left(words):
    tokenizer = BareTokenizer(words, max_tokens=4)
    text = "zebra über films!"
    ids, starts, ends = tokenizer.tokenize_with_offsets([text, "", "zebra"])
    assert ids.to_list() == tokenizer.tokenize([text, "", "zebra"]).to_list()
    spans = zip(starts[0].numpy(), ends[0].numpy(), strict=True)
    assert [text.encode()[start:end].decode() for start, end in spans] == ["über", "film", "s"]
    assert tokenizer.tokens(ids)[0].numpy().tolist() == ["über".encode(), b"film", b"##s"]


def test_saved_and_loaded(words, tmp_path):
    tokenizer = BareTokenizer(words, drop_unknown=True, max_tokens=7, max_characters=30)
    tokenizer.save(tmp_path)
    again = BareTokenizer.load(tmp_path, **tokenizer.config())
    assert again.config() == tokenizer.config()
    assert list(again.vocabulary) == list(tokenizer.vocabulary) == TOKENS
    with pytest.raises(LookupError, match="no tokenizer 'Other'"):
        BareTokenizer.load(tmp_path, **{**tokenizer.config(), "tokenizer": "Other"})


def test_bare_tokenizers_of_an_encoders():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    encoders = WordPieceTokenizer([*special, "good", "film"])
    tokenizer = bare_tokenizer(encoders, max_tokens=3)
    assert tokenizer.tokenize(["Good zebra film"]).to_list() == [[5, 6]]
    assert tokenizer.max_characters == 3 * 5  # the median of the tokens' lengths
    assert bare_tokenizer(tokenizer, max_tokens=3).config() == tokenizer.config()
