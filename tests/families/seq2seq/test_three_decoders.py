"""What a recurrent decoder reads: its start alone, the context, or the context and its own words.

And what the context is: the encoder's last state, or a function of it or of all states.
"""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from checks import round_trip, same_outputs

from keras_transformers.families.seq2seq.model import num_parameters
from keras_transformers.layers.recurrent.cells import Recurrent

SMALL = {
    "vocabulary_size": 30,
    "cell": "rnn",
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "embedding_dim": 8,
    "hidden_dim": 12,
    "encoder_hidden_dim": 6,
    "attention": None,
}
STATE = {"context": "initial_state", "bridge": "copy", "feed_tokens": False}
CONTEXT = {"context": "input", "bridge": "zeros", "feed_tokens": False}
TOKENS = {"context": "input", "bridge": "zeros"}
FORMS = {
    "state": STATE,
    "context": CONTEXT,
    "tokens": TOKENS,
    "state, a function": STATE | {"cell": "lstm", "bridge": "dense", "num_decoder_layers": 2},
    "state, of all": STATE | {"cell": "gru", "context_from": "mean"},
    "state, a function of all": STATE
    | {"cell": "lstm", "context_from": "mean", "context_dim": 12, "num_encoder_layers": 2}
    | {"num_decoder_layers": 2},
    "state, attention": STATE
    | {"cell": "gru", "attention": "general", "bridge": "dense", "readout_dim": 5},
    "state, input feeding": STATE
    | {"cell": "lstm", "attention": "dot", "input_feeding": True, "readout_dim": 5}
    | {"bridge": "dense", "context_from": "mean", "context_dim": 4},
    "context, a function": CONTEXT
    | {"cell": "gru", "context": "input_and_output", "context_dim": 7, "readout_dim": 8}
    | {"weight_tying": "decoder"},
    "context, attention": CONTEXT | {"cell": "lstm", "attention": "additive"},
    "tokens, a function of all": TOKENS
    | {"context": "input_and_output", "context_from": "mean", "context_dim": 7, "bridge": "dense"},
    "tokens, attention": TOKENS | {"cell": "gru", "attention": "general"},
}
DAILY = ("state", "context", "tokens", "state, input feeding")  # the others are slow
RANDOM = np.random.default_rng(0)
SOURCES = np.array([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0], [3, 2, 0, 0, 0]], "int32")
TARGETS = RANDOM.integers(3, 30, (3, 6)).astype("int32")


@functools.cache
def built(form):
    """Builds one model per form, shared by all tests; its weights are large, to show every path."""
    keras.utils.set_random_seed(1)
    model = tiny.seq2seq(**(SMALL | FORMS[form]))
    for weight in model.weights:
        weight.assign(weight * 1.5 + keras.random.normal(weight.shape, stddev=0.1))
    return model


@pytest.fixture(
    params=[n if n in DAILY else pytest.param(n, marks=pytest.mark.slow) for n in FORMS]
)
def form(request):
    return request.param


@pytest.fixture
def model(form):
    return built(form)


def logits_of(model, sources=SOURCES, targets=TARGETS):
    inputs = {"source_token_ids": sources, "target_token_ids": targets}
    return model(inputs, training=False)["logits"].numpy()


def test_arithmetic_equals_what_is_built(form, model):
    assert model.count_params() == num_parameters(**(SMALL | FORMS[form]))


def test_the_three_decoders_differ_by_the_matrices_of_what_they_read():
    v, e, n, m = 30, 8, 12, 12
    encoder = v * e + 2 * (e * 6 + 6 * 6 + 6)
    state = n * n + n  # its matrix and its bias
    logits = n * v + v
    counts = {
        "state": encoder + state + logits,
        "context": encoder + state + m * n + logits,
        "tokens": encoder + state + m * n + e * n + v * e + logits,
    }
    assert {name: num_parameters(**(SMALL | FORMS[name])) for name in counts} == counts


def test_target_tokens_count_only_where_they_are_fed(form, model):
    changed = TARGETS.copy()
    changed[:, 2] = (changed[:, 2] - 3 + 1) % 27 + 3
    before, after = logits_of(model), logits_of(model, targets=changed)
    if not FORMS[form].get("feed_tokens", True):
        np.testing.assert_array_equal(before, after)
        names = {layer.name for layer in model.layers}
        assert ("target_token_embedding" in names) == ("weight_tying" in FORMS[form])
    else:
        np.testing.assert_allclose(before[:, :2], after[:, :2], atol=1e-6)
        assert (np.abs(before[:, 2:] - after[:, 2:]).max(-1) > 1e-6).all()
    # Each step differs from the one before it, even if all of them see the same.
    assert (np.abs(np.diff(before, axis=1)).max(-1) > 1e-6).all()


@pytest.mark.parametrize("num_beams", [1, 3])
def test_steps_with_a_cache_equal_the_whole_sequence(model, num_beams):
    targets = RANDOM.integers(3, 30, (3 * num_beams, 6)).astype("int32")
    whole = logits_of(model, np.repeat(SOURCES, num_beams, 0), targets)
    step, cache = model.start_decoding(SOURCES)
    cache = tf.nest.map_structure(lambda leaf: tf.repeat(leaf, num_beams, axis=0), cache)
    for index in range(6):
        logits, cache = step(tf.constant(targets[:, index]), tf.constant(index), cache)
        np.testing.assert_allclose(logits, whole[:, index], atol=2e-5, err_msg=str(index))


def test_source_padding_changes_nothing(model):
    longer = np.pad(SOURCES, ((0, 0), (0, 4)))
    np.testing.assert_allclose(logits_of(model), logits_of(model, longer), atol=1e-5)
    alone = logits_of(model, SOURCES[1:2, :3], TARGETS[1:2])
    np.testing.assert_allclose(logits_of(model)[1:2], alone, atol=1e-5)


def test_every_source_token_counts(model):
    sources = np.repeat(SOURCES[:1], 6, axis=0)  # one as it is, then each with one token changed
    sources[np.arange(1, 6), np.arange(5)] = 20
    logits = logits_of(model, sources, np.repeat(TARGETS[:1], 6, axis=0))
    assert (np.abs(logits[1:] - logits[0]).max((1, 2)) > 1e-5).all()


def test_all_weights_are_trained(model):
    inputs = {"source_token_ids": SOURCES, "target_token_ids": TARGETS}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        loss = loss(TARGETS, model(inputs, training=True)["logits"])
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.path
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, variable.path


def test_saving_keeps_the_numbers(model, tmp_path):
    loaded = round_trip(model, tmp_path)
    same_outputs(logits_of(model), logits_of(loaded))
    loaded.start_decoding(SOURCES)


def test_no_target_is_no_error(model):
    assert logits_of(model, targets=TARGETS[:, :0]).shape == (3, 0, 30)
    assert logits_of(model, SOURCES[:0], TARGETS[:0]).shape == (0, 6, 30)


def run(inputs, weights, prefix, hidden, steps=None):
    """Returns the states of `tanh(W x + U h + b)`, step by step in NumPy."""
    states = []
    for index in range(len(inputs) if steps is None else steps):
        gates = weights[f"{prefix}/input_projection/bias"]
        if inputs is not None:
            gates = gates + inputs[index] @ weights[f"{prefix}/input_projection/kernel"]
        if "decoder/context_projection/kernel" in weights and prefix.startswith("decoder"):
            gates = gates + weights["c"] @ weights["decoder/context_projection/kernel"]
        hidden = np.tanh(gates + hidden @ weights[f"{prefix}/recurrent_kernel"])
        states.append(hidden)
    return np.array(states)


@pytest.mark.parametrize("form", ["state", "context", "tokens"])
@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("context_dim", [None, 12])
def test_the_three_decoders_are_their_formulas(form, pooling, context_dim):
    keras.utils.set_random_seed(2)
    options = {"context_from": pooling, "context_dim": context_dim}
    model = tiny.seq2seq(**(SMALL | FORMS[form] | options))
    w = {
        weight.path.removeprefix("seq2seq/"): weight.numpy() + 0.1
        for weight in model.trainable_weights
    }
    model.set_weights(list(w.values()))
    scale = 8**0.5  # of the embeddings
    source = scale * w["source_token_embedding/embeddings"][SOURCES[1, :3]]
    forward = run(source, w, "encoder/forward_0/cell", np.zeros(6))
    backward = run(source[::-1], w, "encoder/backward_0/cell", np.zeros(6))[::-1]
    states = np.concatenate([forward, backward], axis=-1)  # h_1 .. h_T
    last = np.concatenate([forward[-1], backward[0]])
    c = last if pooling == "last" else states.mean(axis=0)
    if context_dim:
        c = np.tanh(c @ w["encoder/context/kernel"] + w["encoder/context/bias"])
    w["c"] = c
    start = c if form == "state" else np.zeros(12)
    tokens = None
    if form == "tokens":
        tokens = scale * w["target_token_embedding/embeddings"][TARGETS[1]]
    hidden = run(tokens, w, "decoder/cell_0", start, steps=6)
    expected = hidden @ w["output_projection/kernel"] + w["output_projection/bias"]
    np.testing.assert_allclose(logits_of(model)[1], expected, atol=1e-5)


def test_the_plain_cell_is_its_formula_and_that_of_keras():
    ours = Recurrent("rnn", 5)
    inputs = RANDOM.normal(size=(2, 7, 3)).astype("float32")
    lengths = np.array([7, 4])
    mask = np.arange(7) < lengths[:, None]
    outputs, (final,) = ours(inputs, mask)
    w = {weight.path.split("/", 2)[-1]: weight.numpy() for weight in ours.weights}
    assert {name: weight.shape for name, weight in w.items()} == {
        "input_projection/kernel": (3, 5),
        "input_projection/bias": (5,),
        "recurrent_kernel": (5, 5),
    }
    for row, length in enumerate(lengths):
        named = {f"cell/{name}": weight for name, weight in w.items()}
        states = run(inputs[row, :length], named, "cell", np.zeros(5))
        np.testing.assert_allclose(outputs[row, :length], states, atol=1e-6)
        np.testing.assert_allclose(final[row], states[-1], atol=1e-6)
        assert not np.any(outputs[row, length:])
    theirs = keras.layers.SimpleRNN(5, return_sequences=True)
    theirs.build(inputs.shape)
    theirs.set_weights(
        [w["input_projection/kernel"], w["recurrent_kernel"], w["input_projection/bias"]]
    )
    expected = theirs(inputs, mask=mask).numpy() * mask[:, :, None]
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context_from": "first"}, "context_from='first' .*'last' or 'mean'"),
        ({"bridge": "zeros"}, "bridge='zeros' without attention .* leaves the source unread"),
        (STATE | {"teacher_forcing": 0.5}, "teacher_forcing=0.5 with feed_tokens=False: no token"),
        (STATE | {"hidden_dim": 11}, "bridge='copy' .*widths"),
        (
            TOKENS | {"attention": "general", "context_dim": 3},
            "context_dim .* with attention .* nothing reads this vector",
        ),
    ],
)
def test_choices_that_exclude_each_other_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        tiny.seq2seq(**(SMALL | change))


def test_options_of_the_lstm_are_refused_by_a_plain_cell():
    with pytest.raises(ValueError, match="cell='rnn'.*cell_clip: use cell='lstm'"):
        Recurrent("rnn", 3, cell_clip=1.0)
