import json

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.pipelines import TextRegressor
from keras_transformers.saved_model.description import METADATA_FILE

PAIRS = [("a film", "good"), ("good", "a film"), ("very bad films!", "a")]


@pytest.fixture(scope="module")
def score(pipelines):
    return pipelines("regression")


def columns(pairs):
    return list(map(list, zip(*pairs, strict=True)))


def test_scores_are_the_models_in_the_range_asked_for(score, run, tokenizer):
    text, text_b = columns(PAIRS)
    answer = run("regression", text=tf.constant(text), text_b=tf.constant(text_b))
    assert set(answer) == {"score"}
    assert answer["score"].dtype == np.float32
    tokens = tokenizer(text, text_b, max_sequence_length=9)
    wanted = 2.5 * score.model(tokens, training=False)["score"].numpy() - 1.0
    np.testing.assert_allclose(answer["score"], wanted, atol=1e-5)
    assert np.ptp(wanted) > 0.05
    assert abs(wanted[0] - wanted[1]) > 1e-3  # the order of the texts matters
    found = [one.score for one in score(text, text_b)]
    assert found == pytest.approx(wanted.tolist(), abs=1e-5)


@pytest.mark.slow
def test_records_and_tokens_give_the_same(run, score):
    example = tf.train.Example()
    for name, text in zip(("text", "text_b"), PAIRS[0], strict=True):
        example.features.feature[name].bytes_list.value.append(text.encode())
    records = run("regression", "regress", inputs=tf.constant([example.SerializeToString()]))
    text, text_b = ([text] for text in PAIRS[0])
    whole = run("regression", text=tf.constant(text), text_b=tf.constant(text_b))
    np.testing.assert_allclose(records["outputs"], whole["score"], atol=1e-6)
    tokens = run(
        "regression",
        "tokens",
        token_ids=tf.constant([[2, 5, 6, 3, 7, 3]]),  # [CLS] a film [SEP] good [SEP]
        segment_ids=tf.constant([[0, 0, 0, 0, 1, 1]]),
        padding_mask=tf.ones([1, 6], tf.bool),
    )
    np.testing.assert_allclose(tokens["score"], whole["score"], atol=1e-6)
    regress = score.signatures()["regress"]
    assert regress.method_name == "tensorflow/serving/regress"
    assert (list(regress.inputs), list(regress.outputs)) == (["inputs"], ["outputs"])


def test_awkward_texts_and_no_texts(run):
    texts = tf.constant(["", b"\xff\x00", "long " * 500])
    answer = run("regression", text=texts, text_b=texts[::-1])
    assert np.isfinite(answer["score"]).all()
    nothing = tf.constant([], tf.string)
    assert run("regression", text=nothing, text_b=nothing)["score"].shape == (0,)
    ids = tf.constant([[2, 14]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="beyond the 14 tokens"):
        run("regression", "tokens", token_ids=ids, segment_ids=0 * ids, padding_mask=ids > 0)


@pytest.mark.slow
def test_metadata_tell_what_was_exported(exports, score):
    metadata = json.loads((exports("regression") / METADATA_FILE).read_text())
    assert metadata["task"] == "regression"
    assert (metadata["pair"], metadata["scale"], metadata["offset"]) == (True, 2.5, -1.0)
    assert metadata["model"]["num_parameters"] == score.model.count_params()
    assert metadata["max_sequence_length"] == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [({"scale": 0.0}, r"scale=0.0, .* a scale other than 0"), ({"offset": float("inf")}, "finite")],
)
def test_ranges_that_do_not_fit(score, tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        TextRegressor(score.model, tokenizer, **options)


def test_numbers_of_any_kind_are_saved_as_numbers(score, tokenizer):
    options = {"scale": np.float32(0.5), "offset": 3, "max_sequence_length": np.int64(9)}
    config = TextRegressor(score.model, tokenizer, **options).config()
    wanted = {"scale": 0.5, "offset": 3.0, "max_sequence_length": 9, "pair": False}
    assert json.loads(json.dumps(config)) == wanted
