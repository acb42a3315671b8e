import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf
from graph_checks import meta_graph, string_nodes
from tensorflow.core.framework import types_pb2

from keras_transformers.pipelines import TextClassifier
from keras_transformers.saved_model.description import METADATA_FILE
from keras_transformers.saved_model.examples import decode_array

LABELS = ["negative", "positive"]


@pytest.fixture(scope="module")
def classify(pipelines):
    return pipelines("classification")


@pytest.fixture(scope="module")
def exported(exports):
    return exports("classification")


def records(*texts):
    feature = [tf.train.Feature(bytes_list=tf.train.BytesList(value=[text])) for text in texts]
    return [
        tf.train.Example(features=tf.train.Features(feature={"text": f})).SerializeToString()
        for f in feature
    ]


def test_answers_are_the_models(classify, tokenizer):
    texts = ["a good film", "", "very bad films", "!"]
    tokens = tokenizer(texts, max_sequence_length=16)
    probabilities = tf.nn.softmax(classify.model(tokens, training=False)["logits"]).numpy()
    answers = classify(texts)
    np.testing.assert_allclose([a.probabilities for a in answers], probabilities, atol=1e-5)
    assert [a.label_index for a in answers] == probabilities.argmax(-1).tolist()
    assert [a.label for a in answers] == [LABELS[a.label_index] for a in answers]
    assert len({a.label for a in answers}) == 2


def test_all_signatures_agree(run):
    texts = [b"a good film", b"very bad films", b"!"]
    text = run("classification", text=tf.constant(texts))
    assert text["label"].dtype == object
    assert text["probabilities"].dtype == np.float32
    assert text["label_index"].dtype == np.int32
    assert len({*text["label_index"].tolist()}) == 2
    ranked = run("classification", "classify", inputs=tf.constant(records(*texts)))
    np.testing.assert_allclose(ranked["scores"], text["probabilities"], atol=1e-6)
    assert ranked["classes"].tolist() == [[b"negative", b"positive"]] * 3
    tokens = run(
        "classification",
        "tokens",
        token_ids=tf.constant([[2, 5, 7, 6, 3]]),  # [CLS] a good film [SEP]
        segment_ids=tf.zeros([1, 5], tf.int32),
        padding_mask=tf.ones([1, 5], tf.bool),
    )
    # Not bit for bit: above, the row was padded, which changed the order of its sums.
    np.testing.assert_allclose(tokens["probabilities"], text["probabilities"][:1], atol=1e-5)
    assert tokens["label"][0] == text["label"][0]


@pytest.mark.parametrize("texts", [[], [""], [b"\xff\xfe\x00", b"\xc3("], ["long " * 3000]])
def test_any_text_has_an_answer(run, texts):
    count = len(texts)
    text = run("classification", text=tf.constant(texts, tf.string))
    encoded = records(*(t.encode() if isinstance(t, str) else t for t in texts))
    ranked = run("classification", "classify", inputs=tf.constant(encoded, tf.string))
    for answer, key in ((text, "probabilities"), (ranked, "scores")):
        assert answer[key].shape == (count, 2)
        np.testing.assert_allclose(answer[key].sum(-1), np.ones(count), atol=1e-5)
    assert text["label"].shape == text["label_index"].shape == (count,)
    assert ranked["classes"].shape == (count, 2)


def test_an_empty_batch_of_tokens_has_an_empty_answer(run):
    answer = run(
        "classification",
        "tokens",
        token_ids=tf.zeros([0, 4], tf.int32),
        segment_ids=tf.zeros([0, 4], tf.int32),
        padding_mask=tf.zeros([0, 4], tf.bool),
    )
    assert {name: value.shape for name, value in answer.items()} == {
        "label": (0,),
        "probabilities": (0, 2),
        "label_index": (0,),
    }


@pytest.mark.parametrize(
    ("token_ids", "changes", "text"),
    [
        ([[2, 14, 3]], {}, "token_ids beyond the 14 tokens"),
        ([[2, -1, 3]], {}, "token_ids below 0"),
        ([[2] * 17], {}, "token_ids are longer than the 16 positions"),
        ([[]], {}, "token_ids have length 0"),
        ([[2, 3]], {"padding_mask": [[True]]}, "padding_mask and token_ids differ in shape"),
        ([[2, 3]], {"segment_ids": [[0], [0]]}, "segment_ids and token_ids differ in shape"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(run, token_ids, changes, text):
    given = {
        "token_ids": token_ids,
        "segment_ids": np.zeros_like(token_ids),
        "padding_mask": np.ones_like(token_ids),
    } | changes
    dtypes = {"token_ids": tf.int32, "segment_ids": tf.int32, "padding_mask": tf.bool}
    tensors = {name: tf.cast(tf.constant(given[name]), dtype) for name, dtype in dtypes.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        run("classification", "tokens", **tensors)


def test_an_example_without_text_is_refused(run):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"text.*required"):
        run("classification", "classify", inputs=tf.constant([b""]))


def test_classify_has_the_name_and_the_shapes_that_tf_serving_asks_for(exported):
    definition = meta_graph(exported).signature_def["classify"]
    assert definition.method_name == "tensorflow/serving/classify"
    assert list(definition.inputs) == ["inputs"]
    assert sorted(definition.outputs) == ["classes", "scores"]
    for output, dtype in (("classes", types_pb2.DT_STRING), ("scores", types_pb2.DT_FLOAT)):
        assert definition.outputs[output].dtype == dtype
        assert [d.size for d in definition.outputs[output].tensor_shape.dim] == [-1, 2]
    for name in ("serving_default", "tokens"):
        method_name = meta_graph(exported).signature_def[name].method_name
        assert method_name == "tensorflow/serving/predict"


def test_no_stale_fingerprint(exported):
    with pytest.raises(FileNotFoundError):
        tf.saved_model.experimental.read_fingerprint(str(exported))


def test_many_nodes_handle_strings(exported):
    assert len(list(string_nodes(exported))) > 10  # another test checks that all are on the CPU


def test_metadata_tell_what_was_exported(exported, classify, tmp_path):
    metadata = json.loads((exported / METADATA_FILE).read_text())
    assert metadata["task"] == "classification"
    assert metadata["labels"] == LABELS
    assert metadata["model"]["name"] == "bert_classifier"
    assert metadata["model"]["num_parameters"] == classify.model.count_params()
    assert metadata["max_sequence_length"] == 16
    assert metadata["vocabulary_size"] == 14
    awkward = metadata["signatures"]["serving_default"]["examples"][1]["inputs"]["text"]
    assert decode_array(awkward).tolist()[1] == b"\xff\xfe is no UTF-8 \x00"
    classify.tokenizer.save(tmp_path)
    vocabulary = (tmp_path / "vocab.txt").read_bytes()
    assert metadata["vocabulary_sha256"] == hashlib.sha256(vocabulary).hexdigest()


def test_pairs(pipelines, tokenizer):
    classify = pipelines("pairs")
    text, text_b = ["a film", "good"], ["good", "a film"]
    tokens = tokenizer(text, text_b, max_sequence_length=9)
    expected = tf.nn.softmax(classify.model(tokens, training=False)["logits"]).numpy()
    found = [answer.probabilities for answer in classify(text, text_b)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert abs(expected[0] - expected[1]).max() > 1e-3  # the order of the texts matters
    example = tf.train.Example()
    for name, value in (("text", b"a film"), ("text_b", b"good")):
        example.features.feature[name].bytes_list.value.append(value)
    signatures = classify.signatures([("a film", "good")])
    ranked = signatures["classify"].function(inputs=tf.constant([example.SerializeToString()]))
    np.testing.assert_allclose(ranked["scores"], expected[:1], atol=1e-5)
    assert ranked["classes"].numpy().tolist() == [[b"entailment", b"neutral", b"contradiction"]]


def test_longer_texts_are_trimmed_to_the_length_asked_for(pipelines):
    classify = pipelines("pairs")
    assert classify.metadata()["max_sequence_length"] == 9
    first, second = classify(["a film " * 2, "a film " * 3], ["good " * 3] * 2)
    np.testing.assert_allclose(first.probabilities, second.probabilities, atol=1e-6)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (["negative"], r"1 labels \['negative'\] for the 2 classes of model 'bert_classifier'"),
        (["a", "b", "c"], "3 labels .* for the 2 classes"),
        (["same", "same"], r"labels \['same'\] occur more than once"),
        (["a", ""], r"non-empty strings, not \[''\]"),
        ([0, 1], r"must be non-empty strings, not \[0, 1\]"),
        ("no", "non-empty strings, not 'no'"),
    ],
)
def test_labels_that_do_not_fit(classify, tokenizer, labels, text):
    with pytest.raises(ValueError, match=text):
        TextClassifier(classify.model, tokenizer, labels)
