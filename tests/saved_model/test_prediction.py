import json

import numpy as np
import other_libraries
import pytest
import tensorflow as tf

from keras_transformers.saved_model import Predictor, predict


@pytest.fixture(scope="module")
def predictor(exported):
    return Predictor(exported)


@pytest.fixture(scope="module")
def exported_pair(tmp_path_factory):
    """A SavedModel that compares two texts, and numbers by another signature: read only."""
    strings, numbers = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.int32)

    @tf.function(autograph=False)
    def texts(text, text_b):
        return {
            "label": tf.where(
                tf.strings.length(text) < tf.strings.length(text_b), "shorter", "longer"
            )
        }

    @tf.function(autograph=False)
    def tokens(token_ids, padding_mask):
        return {"total": tf.reduce_sum(token_ids * tf.cast(padding_mask, tf.int32), -1)}

    @tf.function(autograph=False)
    def joined(text, choices):
        return {"joined": tf.strings.join([text, tf.strings.reduce_join(choices, -1)])}

    lists = tf.TensorSpec([None, None], tf.string)
    mask = tf.TensorSpec([None, None], tf.bool)
    signatures = {
        "serving_default": texts.get_concrete_function(text=strings, text_b=strings),
        "tokens": tokens.get_concrete_function(token_ids=numbers, padding_mask=mask),
        "joined": joined.get_concrete_function(text=strings, choices=lists),
    }
    folder = tmp_path_factory.mktemp("base") / "7"
    tf.saved_model.save(tf.Module(), str(folder), signatures=signatures)
    return folder


def test_rows_of_json_from_the_newest_version(exported, classify):
    texts = ["a good film", "", "very bad films", "good\udcff", "é"]
    rows = predict(exported.parent, {"text": texts})
    assert json.loads(json.dumps(rows)) == rows
    assert list(rows[0]) == ["label", "label_index", "probabilities"]
    tokens = classify.tokenizer(
        [t.encode("utf-8", "surrogateescape") for t in texts], max_sequence_length=16
    )
    logits = classify.model(tokens, training=False)["logits"].numpy()
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose([row["probabilities"] for row in rows], probabilities, atol=1e-5)
    assert [row["label_index"] for row in rows] == probabilities.argmax(-1).tolist()
    assert [row["label"] for row in rows] == [
        ["negative", "positive"][i] for i in probabilities.argmax(-1)
    ]
    assert len({row["label"] for row in rows}) == 2  # the example is not trivial


def test_the_same_rows_as_the_pipelines(predictor, classify):
    columns = {"text": ["a good film", "", "very bad films"]}
    for row, expected in zip(predictor(columns), classify.rows(columns), strict=True):
        assert (row["label"], row["label_index"]) == (expected["label"], expected["label_index"])
        np.testing.assert_allclose(row["probabilities"], expected["probabilities"], atol=1e-5)


def test_lists_are_cut_to_the_length_of_their_row(tmp_path):
    """In any SavedModel, the names of the outputs decide."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def words(text):
        words = tf.strings.split(text)
        return {"tokens": words.to_tensor(""), "num_tokens": words.row_lengths()}

    tf.saved_model.save(tf.Module(), str(tmp_path), signatures={"serving_default": words})
    assert Predictor(tmp_path)({"text": ["one two", "", "three"]}) == [
        {"num_tokens": 2, "tokens": ["one", "two"]},
        {"num_tokens": 0, "tokens": []},
        {"num_tokens": 1, "tokens": ["three"]},
    ]


def test_rows_may_hold_lists_of_strings(exported_pair):
    predictor = Predictor(exported_pair, signature="joined")
    assert predictor.text_names == ("text", "choices")
    rows = predictor({"text": ["a", "b"], "choices": [["c"], ["d", "é"]]}, batch_size=1)
    assert rows == [{"joined": "ac"}, {"joined": "bdé"}]
    assert predictor({"text": ["a"], "choices": [[]]}) == [{"joined": "a"}]
    for wrong in (["c"], [["c", 1]], "c", [None]):
        with pytest.raises(ValueError, match="choices .*list of strings"):
            predictor({"text": ["a"], "choices": wrong})


def test_batches_change_nothing(predictor):
    texts = ["a good film"] * 3 + ["very bad"] * 4
    whole = predictor({"text": texts})
    parts = predictor({"text": texts}, batch_size=2)
    assert [row["label"] for row in whole] == [row["label"] for row in parts]
    np.testing.assert_allclose(
        [row["probabilities"] for row in whole], [row["probabilities"] for row in parts], atol=1e-6
    )


def test_no_rows_no_answers(predictor):
    assert predictor({"text": []}) == []


def test_pairs_and_other_signatures(exported_pair):
    rows = predict(exported_pair, {"text": ["a", "abc"], "text_b": ["bc", "a"]})
    assert rows == [{"label": "shorter"}, {"label": "longer"}]
    tokens = {"token_ids": [[2, 5, 3]], "padding_mask": [[True, True, False]]}
    assert predict(exported_pair, tokens, signature="tokens") == [{"total": 7}]


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"texts": ["a"]}, "text .*rows, not texts"),
        ({}, "takes text"),
        ({"text": "a bare string"}, "list of strings, not 'a bare string'"),
        ({"text": ["a", 3]}, "list of strings"),
    ],
)
def test_inputs_that_do_not_fit(predictor, inputs, text):
    with pytest.raises(ValueError, match=text):
        predictor(inputs)


@pytest.mark.parametrize("kind", other_libraries.KINDS)
def test_a_table_has_the_columns_of_inputs(exported_pair, kind):
    columns = {"text": ["a good film", "bad"], "text_b": ["a", "b"]}
    run = Predictor(exported_pair)
    assert run(other_libraries.table(kind, columns)) == run(columns)
    with pytest.raises(ValueError, match="text, text_b .*rows"):
        run(other_libraries.table(kind, columns | {"label": [1, 0]}))
    with pytest.raises(ValueError, match="text .*list of strings, not a .* columns text"):
        run({"text": other_libraries.table(kind, columns), "text_b": ["a", "b"]})
    with pytest.raises(ValueError, match=r"text_b\[1\] .*surrogate"):
        run(columns | {"text_b": ["a", "\ud83d"]})


def test_columns_of_different_lengths(exported_pair):
    with pytest.raises(ValueError, match=r"\{'text': 2, 'text_b': 1\}"):
        predict(exported_pair, {"text": ["a", "b"], "text_b": ["c"]})


def test_no_export_and_no_signature(exported, tmp_path):
    with pytest.raises(FileNotFoundError, match="no export at"):
        predict(tmp_path, {"text": ["a"]})
    with pytest.raises(ValueError, match="'n_best';.*serving_default"):
        Predictor(exported, signature="n_best")
