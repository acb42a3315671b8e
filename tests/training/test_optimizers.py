"""AdamW: what it decays, and one update after another against float64."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.training.optimizers import AdamW, adamw


def small_model():
    inputs = keras.Input((3,), dtype="int32")
    x = keras.layers.Embedding(7, 4, name="token_embedding")(inputs)
    x = keras.layers.LayerNormalization(name="embedding_norm")(x)
    x = keras.layers.MultiHeadAttention(2, 2, name="attention")(x, x)
    x = keras.layers.RMSNormalization(name="attention_norm")(x)
    return keras.Model(inputs, keras.layers.Dense(2, name="output")(x))


def decayed_names(model):
    """Names of the variables that a zero gradient still moves."""
    model.optimizer = adamw(1.0, weight_decay=0.5)
    model.optimizer.build(model.trainable_variables)
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    model.optimizer.apply([ops.zeros(v.shape) for v in model.trainable_variables])
    moved = {v.path for v in model.trainable_variables if not np.all(np.array(v) == 1.0)}
    kept = {v.path for v in model.trainable_variables} - moved
    return moved, kept


def test_biases_and_norms_are_not_decayed():
    moved, kept = decayed_names(small_model())
    assert {path.split("/")[-1] for path in moved} == {"kernel", "embeddings"}
    assert {path.split("/")[-1] for path in kept} == {"bias", "gamma", "beta", "scale"}
    assert "embedding_norm/gamma" in kept
    assert "output/kernel" in moved


def test_bert_decays_its_matrices_only():
    from keras_transformers.models.bert import bert

    model = bert(vocabulary_size=11, num_layers=1, num_heads=2, hidden_dim=8)
    moved, kept = decayed_names(model)
    shapes = {v.path: v.shape for v in model.trainable_variables}
    assert {len(shapes[path]) for path in kept} == {1}
    assert {len(shapes[path]) for path in moved} == {2}


def test_updates_equal_the_formula_in_float64():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3, 2))
    b = rng.normal(size=2)
    variables = [
        keras.Variable(w.astype("float32"), name="kernel"),
        keras.Variable(b.astype("float32"), name="bias"),
    ]
    optimizer = adamw(0.1, weight_decay=0.2, beta_1=0.8, beta_2=0.9, epsilon=1e-3, clip_norm=1.5)
    m, v = [0.0, 0.0], [0.0, 0.0]
    weights = [w, b]
    for t in (1, 2, 3):
        gradients = [rng.normal(size=(3, 2)), rng.normal(size=2)]
        optimizer.apply([ops.convert_to_tensor(g, "float32") for g in gradients], variables)
        norm = np.sqrt(sum((g**2).sum() for g in gradients))
        assert norm > 1.5  # else clipping is not exercised
        for i, gradient in enumerate(gradients):
            g = gradient * 1.5 / norm
            if i == 0:
                weights[i] = weights[i] * (1 - 0.1 * 0.2)
            m[i] = 0.8 * m[i] + 0.2 * g
            v[i] = 0.9 * v[i] + 0.1 * g**2
            rate = 0.1 * np.sqrt(1 - 0.9**t) / (1 - 0.8**t)
            weights[i] = weights[i] - rate * m[i] / (np.sqrt(v[i]) + 1e-3)
            np.testing.assert_allclose(np.array(variables[i]), weights[i], rtol=2e-6, atol=2e-6)


def test_the_exclusion_survives_saving(tmp_path):
    model = small_model()
    model.compile(optimizer=adamw(1.0, weight_decay=0.5), loss="mse")
    model.fit(np.ones((2, 3), "int32"), np.ones((2, 3, 2)), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert isinstance(again, AdamW)
    gamma = keras.Variable(np.ones(2), name="gamma")
    kernel = keras.Variable(np.ones(2), name="kernel")
    assert not again._use_weight_decay(gamma)
    assert again._use_weight_decay(kernel)
    assert again.get_config()["global_clipnorm"] == 1.0


def test_no_clipping_on_request():
    assert adamw(0.1, clip_norm=None).global_clipnorm is None
    with pytest.raises(ValueError, match=r"clip_norm is -1\.0"):
        adamw(0.1, clip_norm=-1.0)
