"""Tagging: words, labels, exact offsets, and texts of any length."""

import json

import numpy as np
import pytest
import tensorflow as tf
from answer_checks import restored, same_answers, typed_answers
from graph_checks import (
    only_ops_that_stock_tf_serving_has,
    signatures_in_graphs,
    strings_are_pinned_to_the_cpu,
)
from pretrained_models import enlivened, lively_encoder

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.data.text import Sentences, TaggedBatches
from keras_transformers.pipelines import Tagger
from keras_transformers.results import Tags
from keras_transformers.runs import outputs_of
from keras_transformers.saved_model.checks import check
from keras_transformers.saved_model.description import METADATA_FILE

LABELS = ["O", "B-X", "I-X", "B-Y"]
HOSTILE = "🎬🎬 good-films, “very” e\u0301te\u0301 (bad) 中国 films\u200b!"


@pytest.fixture(scope="module")
def model():
    return enlivened(heads.tagger(lively_encoder(), len(LABELS)), seed=6)


@pytest.fixture(scope="module")
def tag(model, tokenizer):
    return Tagger(model, tokenizer, LABELS)


@pytest.fixture(scope="module")
def exported(tag, tmp_path_factory):
    """The pipeline's export: read only."""
    return kt.export(tag, tmp_path_factory.mktemp("tagger"), check=False)


@pytest.fixture(scope="module")
def run(tag):
    """Runs a signature: its name, tensors -> arrays."""
    return signatures_in_graphs(tag)


def sentences_of_words():
    random = np.random.default_rng(0)
    known = ["a", "film", "films", "good", "bads", "long", "very", "unknown"]
    # 500 words need more windows than one chunk has.
    return [[known[i] for i in random.integers(0, 8, count)] for count in (3, 1, 40, 500, 14)]


@pytest.mark.slow
def test_labels_are_those_of_validation_however_long_the_text(run, tag):
    sentences = sentences_of_words()
    batches = TaggedBatches(Sentences(sentences), tag, batch_size=16, shuffle=False)
    expected = batches.word_labels(outputs_of(tag.model, batches))
    assert len({label for row in expected for label in row}) == len(LABELS)
    texts = [" ".join(words) for words in sentences]
    assert [found.labels for found in tag(texts)] == expected
    answer = run(text=tf.constant(texts))
    assert answer["num_tokens"].tolist() == [len(words) for words in sentences]
    width = max(map(len, sentences))
    given = [words + [""] * (width - len(words)) for words in sentences]
    of_words = run("words", words=tf.constant(given))
    for row, (words, labels) in enumerate(zip(sentences, expected, strict=True)):
        count = len(words)
        assert [t.decode() for t in answer["tokens"][row][:count]] == words
        for found in (answer, of_words):
            assert [label.decode() for label in found["labels"][row][:count]] == labels
            assert set(found["labels"][row][count:]) <= {b""}
            assert (found["scores"][row][:count] > 1 / len(LABELS)).all()
            assert (found["scores"][row][count:] == 0).all()
        assert (answer["ends"][row][count:] == 0).all()
        np.testing.assert_allclose(of_words["scores"][row], answer["scores"][row], atol=1e-5)


def test_scores_are_probabilities_of_first_tokens(run, tag):
    (found,) = tag(["films good!"])
    tokens = run(
        "tokens",
        token_ids=tf.constant([[2, 6, 11, 7, 13, 3]]),  # [CLS] film ##s good ! [SEP]
        segment_ids=tf.zeros([1, 6], tf.int32),
        padding_mask=tf.ones([1, 6], tf.bool),
    )["probabilities"][0]
    np.testing.assert_allclose(tokens.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(found.scores, tokens[[1, 3, 4]].max(-1), atol=1e-5)
    assert found.labels == [LABELS[i] for i in tokens[[1, 3, 4]].argmax(-1)]


@pytest.mark.slow
def test_the_export_answers_as_the_pipeline_does(exported, tag):
    texts = [HOSTILE, "a film", "", "long " * 100, b"\xff\xfe \x00", b"a\xffb"]
    found = tag(texts)
    signatures = tf.saved_model.load(str(exported)).signatures
    outputs = signatures["serving_default"](text=tf.constant(texts))
    arrays = {name: value.numpy() for name, value in outputs.items()}
    same_answers(typed_answers(arrays, tag), found)
    words = tf.constant([["a", "film"], ["good", ""]])
    np.testing.assert_array_equal(
        signatures["words"](words=words)["labels"], tag.answer_words(words)["labels"]
    )


def test_a_batch_or_one_by_one(tag):
    texts = [HOSTILE, "a film", "", "long " * 100, b"\xff\xfe \x00", b"a\xffb"]
    found = tag(texts)
    assert all(isinstance(tags, Tags) for tags in found)
    same_answers([tag(text) for text in texts], found)


def test_it_comes_back_as_it_was(model, tokenizer, tmp_path):
    other = Tagger(model, tokenizer, LABELS, max_sequence_length=7, offset_unit="byte")
    again = restored(other, tmp_path / "saved", [HOSTILE, "a film", ""])
    assert (again.labels, again.max_sequence_length, again.offset_unit) == (
        tuple(LABELS),
        7,
        "byte",
    )


def test_offsets_are_exact_in_characters(tag):
    found, short, empty = tag([HOSTILE, "a film", ""])
    spans = zip(found.starts, found.ends, strict=True)
    assert [HOSTILE[start:end] for start, end in spans] == found.tokens
    assert found.tokens == [
        *("🎬🎬", "good-films", ",", "“", "very", "”", "e\u0301te\u0301"),
        *("(", "bad", ")", "中", "国", "films\u200b", "!"),
    ]
    assert len(found.labels) == len(found.scores) == 14
    assert (short.tokens, short.starts, short.ends) == (["a", "film"], [0, 2], [1, 6])
    assert empty == Tags([], [], [], [], [])


@pytest.mark.slow
def test_offsets_in_bytes_and_shorter_windows(tag, model, tokenizer):
    other = Tagger(model, tokenizer, LABELS, max_sequence_length=5, offset_unit="byte")
    found = other(HOSTILE)
    raw = HOSTILE.encode()
    spans = zip(found.starts, found.ends, strict=True)
    assert [raw[start:end].decode() for start, end in spans] == found.tokens
    assert found.tokens == tag(HOSTILE).tokens
    metadata = other.metadata()
    assert (metadata["offset_unit"], metadata["max_sequence_length"]) == ("byte", 5)


def test_awkward_texts_and_no_texts(run):
    texts = ["", b"\xff\xfe \x00", "long " * 700, " ", b"a\xffb"]
    answer = run(text=tf.constant(texts))
    assert answer["num_tokens"].tolist() == [0, 0, 700, 0, 1]
    assert answer["tokens"][4, 0] == b"a\xffb"
    assert (answer["starts"][4, 0], answer["ends"][4, 0]) == (0, 3)
    nothing = run(text=tf.constant([], tf.string))
    assert {n: v.shape for n, v in nothing.items()} == {
        **dict.fromkeys(("tokens", "labels", "starts", "ends", "scores"), (0, 0)),
        "num_tokens": (0,),
    }
    blank = run(text=tf.constant([""]))
    assert blank["labels"].shape == (1, 0)


def test_words_without_tokens_and_no_words(run, tag):
    words = tf.constant([["\u200b", "film", ""], ["", "", ""], ["", "film", "\u200b"]])
    answer = run("words", words=words)
    assert answer["labels"][0, 0] == answer["labels"][2, 2] == b"O"
    assert answer["scores"][0, 0] == answer["scores"][2, 2] == 0
    assert answer["labels"][0, 1] == answer["labels"][2, 1] == tag("film").labels[0].encode()
    assert answer["labels"][:2, 2].tolist() == [b"", b""]
    assert answer["labels"][1].tolist() == [b""] * 3
    for shape in ((0, 0), (2, 0), (0, 3)):
        empty = run("words", words=tf.zeros(shape, tf.string))
        assert empty["labels"].shape == empty["scores"].shape == shape


@pytest.mark.slow
def test_the_graph_and_what_it_tells(exported):
    only_ops_that_stock_tf_serving_has(exported)
    strings_are_pinned_to_the_cpu(exported)
    metadata = json.loads((exported / METADATA_FILE).read_text())
    assert (metadata["task"], metadata["labels"]) == ("tagging", LABELS)
    assert metadata["max_sequence_length"] == 16
    assert metadata["lengths"] == {"num_tokens": ["tokens", "labels", "starts", "ends", "scores"]}
    assert list(metadata["signatures"]) == [
        "serving_default",
        "entities",
        "words",
        "tokens",
        "tokenize",
    ]
    assert list(check.failures(str(exported))) == []


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (LABELS[:2], {}, r"2 labels .* for the 4 classes"),
        (LABELS, {"offset_unit": "bytes"}, "offset_unit='bytes': use 'character' or 'byte'"),
        (LABELS, {"max_sequence_length": 2}, "expected at least 3"),
    ],
)
def test_what_does_not_fit_is_refused(model, tokenizer, labels, options, message):
    with pytest.raises(ValueError, match=message):
        Tagger(model, tokenizer, labels, **options)


def test_a_classifier_of_texts_is_refused(tokenizer):
    model = heads.classifier(lively_encoder(), 4)
    with pytest.raises(ValueError, match="'bert_classifier'.*text"):
        Tagger(model, tokenizer, LABELS)
