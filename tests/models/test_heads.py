"""Heads for masked language models and embeddings; tests/models/test_bert.py has the others."""

import keras
import numpy as np
import pytest
from checks import bert_inputs, round_trip, same_outputs

import keras_transformers as kt
from keras_transformers.families.bert.model import bert

SMALL = {"vocabulary_size": 50, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}
POSITIONS = np.array([[1, 2], [0, 3], [8, 8]], "int32")


@pytest.fixture(scope="module")
def encoder():
    return bert(**SMALL, max_sequence_length=20, initializer_range=0.3)


def expected_embedding(encoder, inputs, pooling, normalize):
    """Computes the head in float64."""
    vectors = np.asarray(encoder(inputs, training=False)["sequence_output"], "float64")
    rows = [
        row[mask].mean(0) if pooling == "mean" else row[0]
        for row, mask in zip(vectors, inputs["padding_mask"], strict=True)
    ]
    return np.array([row / np.sqrt((row**2).sum()) if normalize else row for row in rows])


def test_the_masked_lm_is_the_pretrainers_less_next_sentence(encoder):
    model, both = kt.heads.masked_lm(encoder), kt.heads.pretrainer(encoder)
    names = {layer.name for layer in both.layers} - {layer.name for layer in model.layers}
    assert names == {"pooler", "next_sentence_logits"}
    pooler, next_sentence = 16 * 16 + 16, 2 * 16 + 2
    assert model.count_params() == both.count_params() - pooler - next_sentence
    for name in ("masked_lm_dense", "masked_lm_norm", "mask_logits"):
        both.get_layer(name).set_weights(model.get_layer(name).get_weights())
    inputs = {**bert_inputs(), "mask_positions": POSITIONS}
    one, other = model(inputs), both(inputs)
    assert set(one) == {"mask_logits"}
    assert one["mask_logits"].shape == (3, 2, 50)
    np.testing.assert_allclose(one["mask_logits"], other["mask_logits"], atol=1e-6)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings_equal_the_formula(encoder, pooling, normalize):
    model = kt.heads.embedder(encoder, pooling=pooling, normalize=normalize)
    inputs = bert_inputs()
    embedding = model(inputs, training=False)["embedding"].numpy()
    expected = expected_embedding(encoder, inputs, pooling, normalize)
    np.testing.assert_allclose(embedding, expected, atol=1e-5)
    lengths = np.linalg.norm(embedding, axis=-1)
    assert (np.abs(lengths - 1) < 1e-5).all() == normalize
    assert model.count_params() == encoder.count_params() - (16 * 16 + 16)  # without the pooler


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_padding_does_not_move_an_embedding(encoder, pooling):
    model = kt.heads.embedder(encoder, pooling=pooling)
    padded = {key: value[:1] for key, value in bert_inputs().items()}
    short = {key: value[:, :3] for key, value in padded.items()}
    assert padded["padding_mask"].sum() == 3
    np.testing.assert_allclose(model(padded)["embedding"], model(short)["embedding"], atol=1e-6)


def test_saving_without_custom_objects(encoder, tmp_path):
    inputs = bert_inputs()
    for pooling in ("mean", "cls"):
        model = kt.heads.embedder(encoder, pooling=pooling)
        loaded = round_trip(model, tmp_path)
        same_outputs(model(inputs, training=False), loaded(inputs, training=False))
    model = kt.heads.masked_lm(encoder)
    inputs["mask_positions"] = POSITIONS
    loaded = round_trip(model, tmp_path)
    same_outputs(model(inputs, training=False), loaded(inputs, training=False))


def test_in_bfloat16_the_answers_are_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        encoder = bert(**SMALL, max_sequence_length=20, initializer_range=0.3)
        models = [
            kt.heads.embedder(encoder, pooling=pooling, normalize=normalize)
            for pooling in ("mean", "cls")
            for normalize in (True, False)
        ]
        masked_lm = kt.heads.masked_lm(encoder)
    finally:
        keras.config.set_dtype_policy("float32")
    inputs = bert_inputs()
    for model in models:
        assert model(inputs)["embedding"].dtype == "float32"
    lengths = np.linalg.norm(models[0](inputs)["embedding"], axis=-1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)
    outputs = masked_lm({**inputs, "mask_positions": POSITIONS})
    assert outputs["mask_logits"].dtype == "float32"


def test_what_does_not_fit_is_refused(encoder):
    plain = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="has no output 'sequence_output'"):
        kt.heads.embedder(plain)
    with pytest.raises(ValueError, match="'median'.*mean"):
        kt.heads.embedder(encoder, pooling="median")
    bare = keras.Model(
        encoder.input, {"sequence_output": encoder.get_layer("encoder_layer_1").output}, name="bare"
    )
    assert kt.heads.masked_lm(bare).output["mask_logits"].shape == (None, None, 50)
    no_tokens = keras.Input((None, 16), name="vectors")
    odd = keras.Model({"vectors": no_tokens}, {"sequence_output": no_tokens * 2}, name="odd")
    with pytest.raises(ValueError, match="'odd'.*embedding"):
        kt.heads.masked_lm(odd)
    with pytest.raises(ValueError, match="'odd'.*'padding_mask'"):
        kt.heads.embedder(odd)
    assert kt.heads.embedder(odd, pooling="cls").output["embedding"].shape == (None, 16)
