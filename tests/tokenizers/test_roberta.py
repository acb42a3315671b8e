"""RoBERTa's tokenizer against the `tokenizers` library, and its packing."""

import json

import pytest
import roberta_toy
import tensorflow as tf
from tokenizers import ByteLevelBPETokenizer
from tokenizers.processors import RobertaProcessing

import keras_transformers as kt
from keras_transformers.tokenizers import RobertaTokenizer

TEXTS = [
    *("a good film", "", " two  dogs\nrun", "naïve cafés, 東京 🎬!", "<s> is text </s>"),
    *("Ada Lovelace was born in London.", "it's 42"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("roberta") / "vocabulary"
    roberta_toy.tokenizer(path)
    return path


@pytest.fixture(scope="module")
def ours(folder):
    return RobertaTokenizer(folder)


@pytest.fixture(scope="module")
def theirs(folder):
    found = ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    ids = {name: found.token_to_id(name) for name in ("<s>", "</s>")}
    found.post_processor = RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=True, add_prefix_space=False
    )
    return found


def rows(packed):
    return [
        ids[mask].tolist()
        for ids, mask in zip(
            packed["token_ids"].numpy(), packed["padding_mask"].numpy(), strict=True
        )
    ]


def test_ids_equal_the_library(ours, theirs):
    found = rows(ours(tf.constant(TEXTS), max_sequence_length=64))
    assert found == [theirs.encode(text).ids for text in TEXTS]


def test_pairs_have_two_separators_between_them(ours, theirs):
    found = rows(ours(tf.constant(TEXTS), tf.constant(TEXTS[::-1]), max_sequence_length=99))
    assert found == [theirs.encode(a, b).ids for a, b in zip(TEXTS, TEXTS[::-1], strict=True)]


@pytest.mark.parametrize("length", [4, 5, 7, 12])
def test_what_is_too_long_is_trimmed_as_the_library_does(ours, theirs, length):
    theirs.enable_truncation(length, strategy="longest_first")
    try:
        one, other = "a good film in Zürich", "two dogs"
        found = rows(ours(tf.constant([one]), tf.constant([other]), max_sequence_length=length))
        assert found == [theirs.encode(one, other).ids]
    finally:
        theirs.no_truncation()


def test_offsets_equal_the_library(ours, theirs):
    text = "Ada  Lovelace, in Zürich: 東京!"
    ids, starts, ends = ours.tokenize_with_offsets(tf.constant([text]))
    encoding = theirs.encode(text, add_special_tokens=False)
    assert ids[0].numpy().tolist() == encoding.ids
    in_bytes = [len(text[:at].encode()) for at in range(len(text) + 1)]
    wanted = [(in_bytes[a], in_bytes[b]) for a, b in encoding.offsets if b > a]
    spans = zip(starts[0].numpy().tolist(), ends[0].numpy().tolist(), strict=True)
    assert [span for span in spans if span[1] > span[0]] == wanted


def test_a_mask_takes_the_white_space_before_it(ours):
    pieces = ours.split_at_masks(
        tf.constant(["a <mask> film", "<mask>", "no mask", "x \u00a0<mask>"])
    )
    assert pieces.to_list() == [[b"a", b" film"], [b"", b""], [b"no mask"], [b"x", b""]]


def test_it_is_saved_and_loaded(ours, tmp_path):
    ours.save(tmp_path)
    again = RobertaTokenizer.load(tmp_path, **ours.config())
    assert again.vocabulary == ours.vocabulary
    assert again.special_tokens(2) == ours.special_tokens(2)


def test_a_vocabulary_without_its_special_tokens_is_refused(folder, tmp_path):
    ids = json.loads((folder / "vocab.json").read_text())
    ids["<other>"] = ids.pop("<mask>")
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    (tmp_path / "merges.txt").write_text((folder / "merges.txt").read_text())
    with pytest.raises(ValueError, match="<mask>"):
        RobertaTokenizer(tmp_path)
    with pytest.raises(ValueError, match="special tokens take 4"):
        kt.tokenizers.RobertaTokenizer(folder)(["a"], ["b"], max_sequence_length=3)
