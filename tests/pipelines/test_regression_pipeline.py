"""Export of regressors."""

import json

import numpy as np
import pytest
import tensorflow as tf
from graph_checks import (
    meta_graph,
    only_ops_that_stock_tf_serving_has,
    strings_are_pinned_to_the_cpu,
)
from keras_transformers.export import Predictor, regressor
from pretrained_models import enlivened, lively_encoder

from keras_transformers.models import heads
from keras_transformers.saved_model.description import METADATA_FILE

PAIRS = [("a film", "good"), ("good", "a film"), ("very bad films!", "a")]


@pytest.fixture(scope="module")
def model():
    return enlivened(heads.regressor(lively_encoder()), seed=5)


@pytest.fixture(scope="module")
def exported(model, tokenizer, tmp_path_factory):
    """A checked export of pairs, scores brought to another range: read only."""
    base = tmp_path_factory.mktemp("regressor")
    return regressor(
        model, tokenizer, base, pair=True, max_sequence_length=9, scale=2.5, offset=-1.0
    )


@pytest.fixture(scope="module")
def signatures(exported):
    loaded = tf.saved_model.load(str(exported))
    return {name: (loaded, function) for name, function in loaded.signatures.items()}


def run(signatures, name="serving_default", **inputs):
    return {key: value.numpy() for key, value in signatures[name][1](**inputs).items()}


def expected(model, tokenizer, pairs):
    tokens = tokenizer(*map(list, zip(*pairs, strict=True)), max_sequence_length=9)
    return 2.5 * model(tokens, training=False)["score"].numpy() - 1.0


def test_scores_are_the_models_in_the_range_asked_for(signatures, model, tokenizer):
    text, text_b = map(list, zip(*PAIRS, strict=True))
    answer = run(signatures, text=tf.constant(text), text_b=tf.constant(text_b))
    assert set(answer) == {"score"}
    assert answer["score"].dtype == np.float32
    wanted = expected(model, tokenizer, PAIRS)
    np.testing.assert_allclose(answer["score"], wanted, atol=1e-5)
    assert np.ptp(wanted) > 0.05
    assert abs(wanted[0] - wanted[1]) > 1e-3  # which text comes first matters


def test_records_and_tokens_give_the_same(signatures, exported):
    example = tf.train.Example()
    for name, text in zip(("text", "text_b"), PAIRS[0], strict=True):
        example.features.feature[name].bytes_list.value.append(text.encode())
    records = run(signatures, "regress", inputs=tf.constant([example.SerializeToString()]))
    text, text_b = ([text] for text in PAIRS[0])
    whole = run(signatures, text=tf.constant(text), text_b=tf.constant(text_b))
    np.testing.assert_allclose(records["outputs"], whole["score"], atol=1e-6)
    tokens = run(
        signatures,
        "tokens",
        token_ids=tf.constant([[2, 5, 6, 3, 7, 3]]),  # [CLS] a film [SEP] good [SEP]
        segment_ids=tf.constant([[0, 0, 0, 0, 1, 1]]),
        padding_mask=tf.ones([1, 6], tf.bool),
    )
    np.testing.assert_allclose(tokens["score"], whole["score"], atol=1e-6)
    definition = meta_graph(exported).signature_def["regress"]
    assert definition.method_name == "tensorflow/serving/regress"
    assert (list(definition.inputs), list(definition.outputs)) == (["inputs"], ["outputs"])


def test_awkward_texts_and_no_texts(signatures):
    texts = tf.constant(["", b"\xff\x00", "long " * 500])
    answer = run(signatures, text=texts, text_b=texts[::-1])
    assert np.isfinite(answer["score"]).all()
    nothing = tf.constant([], tf.string)
    assert run(signatures, text=nothing, text_b=nothing)["score"].shape == (0,)
    ids = tf.constant([[2, 14]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="beyond the 14 tokens"):
        run(signatures, "tokens", token_ids=ids, segment_ids=0 * ids, padding_mask=ids > 0)


def test_predict_gives_plain_numbers(exported, model, tokenizer):
    predictor = Predictor(exported)
    assert predictor.text_names == ("text", "text_b")
    columns = dict(zip(predictor.text_names, map(list, zip(*PAIRS, strict=True)), strict=True))
    rows = predictor(columns)
    wanted = expected(model, tokenizer, PAIRS)
    assert [row["score"] for row in rows] == pytest.approx(wanted.tolist(), abs=1e-5)


def test_the_graph_and_what_it_tells(exported, model):
    only_ops_that_stock_tf_serving_has(exported)
    strings_are_pinned_to_the_cpu(exported)
    metadata = json.loads((exported / METADATA_FILE).read_text())
    assert metadata["task"] == "regression"
    assert (metadata["pair"], metadata["scale"], metadata["offset"]) == (True, 2.5, -1.0)
    assert metadata["model"]["num_parameters"] == model.count_params()
    assert metadata["max_sequence_length"] == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0.0}, r"scale=0.0, .* the scale not 0"),
        ({"offset": float("inf")}, "give finite numbers"),
        ({"max_sequence_length": 17}, "at most 16"),
        ({"examples": [("a", "b")]}, "examples must be strings"),
    ],
)
def test_what_does_not_fit_is_refused(model, tokenizer, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        regressor(model, tokenizer, tmp_path / "new", **options)
    with pytest.raises(ValueError, match="and return score"):
        regressor(lively_encoder(), tokenizer, tmp_path / "new")
    assert not (tmp_path / "new").exists()
