"""Adam, AdamW and LAMB: what they decay, and each update against float64."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.training.optimizers import AdamW, Lamb, adam, adamw, lamb

OPTIMIZERS = {"adamw": adamw, "lamb": lamb}


def small_model():
    inputs = keras.Input((3,), dtype="int32")
    x = keras.layers.Embedding(7, 4, name="token_embedding")(inputs)
    x = keras.layers.LayerNormalization(name="embedding_norm")(x)
    x = keras.layers.MultiHeadAttention(2, 2, name="attention")(x, x)
    x = keras.layers.RMSNormalization(name="attention_norm")(x)
    return keras.Model(inputs, keras.layers.Dense(2, name="output")(x))


def decayed_names(model, make):
    """Returns the names of the variables that a zero gradient still moves."""
    model.optimizer = make(1.0, weight_decay=0.5)
    model.optimizer.build(model.trainable_variables)
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    model.optimizer.apply([ops.zeros(v.shape) for v in model.trainable_variables])
    moved = {v.path for v in model.trainable_variables if not np.all(np.array(v) == 1.0)}
    kept = {v.path for v in model.trainable_variables} - moved
    return moved, kept


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_biases_and_norms_are_not_decayed(make):
    moved, kept = decayed_names(small_model(), make)
    assert {path.split("/")[-1] for path in moved} == {"kernel", "embeddings"}
    assert {path.split("/")[-1] for path in kept} == {"bias", "gamma", "beta", "scale"}
    assert "embedding_norm/gamma" in kept
    assert "output/kernel" in moved


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_bert_decays_its_matrices_only(make):
    from keras_transformers.families.bert.model import bert

    model = bert(vocabulary_size=11, num_layers=1, num_heads=2, hidden_dim=8)
    moved, kept = decayed_names(model, make)
    shapes = {v.path: v.shape for v in model.trainable_variables}
    assert {len(shapes[path]) for path in kept} == {1}
    assert {len(shapes[path]) for path in moved} == {2}


BETA_1, BETA_2, EPSILON, DECAY, CLIP_NORM = 0.8, 0.9, 1e-3, 0.2, 1.5


def start():
    """Returns a kernel, a kernel of zeros, a norm's gain and a bias."""
    random = np.random.default_rng(0)
    return {
        "kernel": random.normal(size=(3, 2)),
        "zero/kernel": np.zeros((2, 2)),
        "norm/gamma": random.normal(size=3),
        "bias": random.normal(size=2),
    }


def gradients_of(step):
    """Returns gradients from far above the clipping norm to below; the kernel's is 0 at first."""
    random = np.random.default_rng(step)
    scale = {1: 10.0, 2: 1.0}.get(step, 0.05)
    found = {name: scale * random.normal(size=w.shape) for name, w in start().items()}
    if step == 1:
        found["kernel"] *= 0.0
    return found


def clipped(gradients):
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    return {name: g * min(1.0, CLIP_NORM / norm) for name, g in gradients.items()}, norm


def adamw_update(w, m, v, t, rate, decays):
    if decays:
        w = w * (1 - rate * DECAY)
    return w - rate * np.sqrt(1 - BETA_2**t) / (1 - BETA_1**t) * m / (np.sqrt(v) + EPSILON)


def lamb_update(w, m, v, t, rate, decays):
    u = m / (1 - BETA_1**t) / (np.sqrt(v / (1 - BETA_2**t)) + EPSILON)
    ratio = 1.0
    if decays:
        u = u + DECAY * w
        norms = np.linalg.norm(w), np.linalg.norm(u)
        ratio = norms[0] / norms[1] if min(norms) > 0 else 1.0
    return w - rate * ratio * u


def adam_without_decay(learning_rate, *, weight_decay, **options):
    return adam(learning_rate, **options)


def adam_update(w, m, v, t, rate, decays):
    return adamw_update(w, m, v, t, rate, decays=False)


@pytest.mark.parametrize(
    ("make", "update"),
    [(adam_without_decay, adam_update), (adamw, adamw_update), (lamb, lamb_update)],
)
@pytest.mark.parametrize("scheduled", [False, True])
def test_updates_equal_the_formula_in_float64(make, update, scheduled):
    weights = start()
    variables = []
    for name, weight in weights.items():
        *scopes, last = name.split("/")
        with keras.name_scope(scopes[0] if scopes else ""):
            variables.append(keras.Variable(weight.astype("float32"), name=last))
    rates = [0.1, 0.05, 0.025, 0.0125, 0.00625] if scheduled else [0.1] * 5
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1, 2, 3], rates)
    optimizer = make(
        schedule if scheduled else 0.1,
        weight_decay=DECAY,
        beta_1=BETA_1,
        beta_2=BETA_2,
        epsilon=EPSILON,
        clip_norm=CLIP_NORM,
    )
    m, v = dict.fromkeys(weights, 0.0), dict.fromkeys(weights, 0.0)
    clips = []
    for t, rate in enumerate(rates, start=1):
        gradients = gradients_of(t)
        optimizer.apply(
            [ops.convert_to_tensor(g, "float32") for g in gradients.values()], variables
        )
        gradients, norm = clipped(gradients)
        clips.append(norm > CLIP_NORM)
        for name, variable in zip(weights, variables, strict=True):
            g = gradients[name]
            m[name] = BETA_1 * m[name] + (1 - BETA_1) * g
            v[name] = BETA_2 * v[name] + (1 - BETA_2) * g**2
            weights[name] = update(weights[name], m[name], v[name], t, rate, "kernel" in name)
            np.testing.assert_allclose(
                np.array(variable), weights[name], rtol=5e-6, atol=5e-6, err_msg=f"{name}, {t}"
            )
    assert set(clips) == {True, False}


def test_keras_own_lamb_is_not_the_papers():
    """If this fails, Keras includes the decay in the ratio of norms: drop our class."""
    results = []
    for optimizer in (lamb(0.1, weight_decay=0.5), keras.optimizers.Lamb(0.1, weight_decay=0.5)):
        kernel = keras.Variable(np.arange(1.0, 5.0, dtype="float32"), name="kernel")
        optimizer.apply([ops.ones(4)], [kernel])
        results.append(np.array(kernel))
    assert np.abs(results[0] - results[1]).max() > 1e-2


def test_lamb_moves_a_matrix_by_its_share_of_the_norm_whatever_the_gradient():
    for scale in (1e-3, 1e3):
        kernel = keras.Variable(np.full((4, 4), 2.0, "float32"), name="kernel")
        lamb(0.01, clip_norm=None, epsilon=1e-12).apply([ops.ones((4, 4)) * scale], [kernel])
        moved = np.linalg.norm(np.array(kernel) - 2.0)
        assert moved == pytest.approx(0.01 * 8.0, rel=1e-4)


@pytest.mark.one_case
@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("make", [adam, adamw, lamb])
def test_a_row_that_is_looked_up_twice_has_one_gradient(make, clip_norm):
    """Looked-up rows, against the same rows from a product with one-hot vectors."""
    ids = np.array([[1, 1, 2, 1]])
    table = np.random.default_rng(0).normal(size=(4, 2)).astype("float32")
    factors = np.random.default_rng(1).normal(size=(1, 4, 2)).astype("float32")
    results = []
    for layer, inputs in (
        (keras.layers.Embedding(4, 2, name="rows"), ids),
        (keras.layers.Dense(2, use_bias=False, name="rows"), np.eye(4)[ids]),
    ):
        model = keras.Sequential([keras.Input(inputs.shape[1:]), layer])
        model.set_weights([table])
        model.compile(
            make(0.1, clip_norm=clip_norm), lambda y, x: keras.ops.sum(y * x), jit_compile=False
        )
        for _ in range(2):
            model.train_on_batch(inputs, factors)
        results.append(model.get_weights()[0])
    np.testing.assert_allclose(*results, atol=1e-6)
    assert np.abs(results[0] - table).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("make", "kind"), [(adamw, AdamW), (lamb, Lamb)])
def test_the_exclusion_survives_saving(make, kind, tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(make(1.0, weight_decay=0.5), "mse", jit_compile=False)
    model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert isinstance(again, kind)
    gamma = keras.Variable(np.ones(2), name="gamma")
    kernel = keras.Variable(np.ones(2), name="kernel")
    assert not again._use_weight_decay(gamma)
    assert again._use_weight_decay(kernel)
    assert again.get_config()["global_clipnorm"] == 1.0
    assert again.get_config()["weight_decay"] == 0.5


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_no_clipping_on_request(make):
    assert make(0.1, clip_norm=None).global_clipnorm is None
    for wrong in (-1.0, float("nan"), float("inf")):  # the last two would make every weight NaN
        with pytest.raises(ValueError, match=f"clip_norm is {wrong}"):
            make(0.1, clip_norm=wrong)
