import functools
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from checks import compile_toy, round_trip, same_outputs

import keras_transformers as kt
from keras_transformers.decoding import beam_search, greedy_search, sample
from keras_transformers.families.seq2seq.model import (
    MODELS,
    num_parameters,
)
from keras_transformers.layers.recurrent.cells import Recurrent

ROOT = Path(__file__).parents[2]
SMALL = {
    "vocabulary_size": 30,
    "num_encoder_layers": 1,
    "num_decoder_layers": 2,
    "embedding_dim": 8,
    "hidden_dim": 12,
    "encoder_hidden_dim": 6,
}
FORMS = {
    "luong": {"cell": "gru", "readout_dim": 8, "weight_tying": "all"},
    "feeding": {"cell": "lstm", "attention": "dot", "input_feeding": True, "readout_dim": 7},
    "bahdanau": {
        "cell": "gru",
        "attention": "additive",
        "attention_dim": 5,
        "context": "input_and_output",
        "readout_dim": 7,
        "readout_activation": "maxout",
    },
    "location": {"cell": "lstm", "attention": "location", "context": "input"},
    "state alone": {"cell": "lstm", "attention": None},
    "context": {"cell": "gru", "attention": None, "context": "input"},
    "context and output": {"cell": "gru", "attention": None, "context": "input_and_output"},
    "copied": {
        "cell": "lstm",
        "attention": None,
        "bidirectional": False,
        "encoder_hidden_dim": 12,
        "num_encoder_layers": 2,
        "bridge": "copy",
    },
}
DAILY = ("feeding", "bahdanau")  # the others are slow


def forms(names):
    return [n if n in DAILY else pytest.param(n, marks=pytest.mark.slow) for n in names]


ATTENDING = [name for name, form in FORMS.items() if form.get("attention", "general")]
RANDOM = np.random.default_rng(0)
SOURCES = np.array([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0], [3, 2, 0, 0, 0]], "int32")
TARGETS = RANDOM.integers(3, 30, (3, 6)).astype("int32")
INPUTS = {"source_token_ids": SOURCES, "target_token_ids": TARGETS}
LOSS = {"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}


@functools.cache
def built(form):
    """Builds one model per form, shared by all tests; its weights are large, to show every path."""
    keras.utils.set_random_seed(1)
    model = tiny.seq2seq(**(SMALL | FORMS[form]))
    for weight in model.weights:
        weight.assign(weight * 2 + keras.random.normal(weight.shape, stddev=0.1))
    return model


@pytest.fixture(params=forms(FORMS))
def model(request):
    return built(request.param)


def logits_of(model, sources=SOURCES, targets=TARGETS):
    inputs = {"source_token_ids": sources, "target_token_ids": targets}
    return model(inputs, training=False)["logits"].numpy()


def test_exact_counts_of_the_named_models():
    """Adds up the papers' matrices and biases, without reading figures from the registry.

    tests/models/test_registry.py builds the models.
    """
    gru, lstm = 3, 4
    n, m, maxout, v = 1000, 620, 500, 30_000
    rnnsearch = {
        "embeddings": 2 * v * m,
        "encoder": 2 * gru * (m * n + n * n),
        "decoder": gru * (m * n + n * n + 2 * n * n),
        "first state": n * n,
        "attention": n * n + 2 * n * n + n,
        "readout": 2 * maxout * (n + m + 2 * n),
        "logits": v * maxout,
    }
    assert sum(rnnsearch.values()) == 80_401_000
    biases = {"gates": 3 * gru * n, "first state": n, "logits": v}
    assert sum(biases.values()) == 40_000
    luong = {
        "embeddings": 2 * 50_000 * n,
        "stacks": 8 * (lstm * (n * n + n * n) + lstm * n),
        "logits": 50_000 * n + 50_000,
    }
    assert sum(luong.values()) == 214_082_000
    attention = {"general": n * n, "readout": 2 * n * n, "input feeding": lstm * n * n}
    assert MODELS["rnnsearch_50"].count() == 80_401_000 + 40_000
    assert MODELS["luong_global"].count() == 214_082_000 + sum(attention.values())


def test_a_named_model_takes_any_argument_of_the_builder():
    small = {"vocabulary_size": 30, "embedding_dim": 8, "hidden_dim": 16, "encoder_hidden_dim": 8}
    model = kt.create_model("seq2seq_multi30k", attention="additive", context="input", **small)
    assert model.get_layer("decoder").attention.kind == "additive"
    assert not kt.create_model("seq2seq_multi30k", attention=None, **small).has_attention
    with pytest.raises(ValueError, match="'depth';.*takes vocabulary_size"):
        kt.create_model("seq2seq_multi30k", depth=3)


def test_arithmetic_equals_what_is_built(model):
    form = next(form for form in FORMS if built(form) is model)
    assert model.count_params() == num_parameters(**(SMALL | FORMS[form]))


def test_a_later_target_changes_no_earlier_logit(model):
    changed = TARGETS.copy()
    changed[:, 3] = (changed[:, 3] - 3 + 1) % 27 + 3
    before, after = logits_of(model), logits_of(model, targets=changed)
    np.testing.assert_allclose(before[:, :3], after[:, :3], atol=1e-6)
    assert (np.abs(before[:, 3:] - after[:, 3:]).max(-1) > 1e-6).all()


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


@pytest.mark.parametrize("num_beams", [1, 3])
def test_steps_with_a_cache_equal_the_whole_sequence(model, num_beams):
    targets = RANDOM.integers(3, 30, (3 * num_beams, 6)).astype("int32")
    whole = logits_of(model, np.repeat(SOURCES, num_beams, 0), targets)
    step, cache = model.start_decoding(SOURCES)
    cache = tf.nest.map_structure(lambda leaf: tf.repeat(leaf, num_beams, axis=0), cache)
    for index in range(6):
        logits, cache = step(tf.constant(targets[:, index]), tf.constant(index), cache)
        np.testing.assert_allclose(logits, whole[:, index], atol=2e-5, err_msg=str(index))


def test_greedy_search_follows_the_models_own_logits(model):
    step, cache = model.start_decoding(SOURCES)
    found = greedy_search(step, [1, 1, 1], cache, end_token_id=2, max_length=8, growing_axis=2)
    fed = np.concatenate([[[1]] * 3, found.token_ids[:, 0, :-1]], axis=1).astype("int32")
    best = logits_of(model, targets=fed).argmax(-1)
    for row, length in enumerate(found.lengths[:, 0].numpy()):
        np.testing.assert_array_equal(found.token_ids[row, 0, :length], best[row, :length])


def searcher(model, *, growing, jit_compile=False):
    shape = [None, None] if growing else SOURCES.shape

    @tf.function(
        jit_compile=jit_compile,
        autograph=False,
        input_signature=[tf.TensorSpec(shape, tf.int32)],
    )
    def run(sources):
        step, cache = model.start_decoding(sources, max_length=None if growing else 8)
        return beam_search(
            step,
            tf.fill([tf.shape(sources)[0]], 1) if growing else [1, 1, 1],
            cache,
            end_token_id=2,
            max_length=8,
            num_beams=3,
            growing_axis=2 if growing else None,
        )

    return run


@pytest.mark.parametrize(
    ("form", "jit_compile"),
    [
        ("feeding", False),
        pytest.param("bahdanau", True, marks=pytest.mark.slow),
        pytest.param("context and output", False, marks=pytest.mark.slow),
    ],
)
def test_beam_search_as_a_translator_runs_it_fixed_and_under_xla(form, jit_compile):
    model = built(form)
    search = searcher(model, growing=True)
    growing = search(SOURCES)
    for compiled in (False, True) if jit_compile else (False,):
        other = searcher(model, growing=False, jit_compile=compiled)(SOURCES)
        np.testing.assert_array_equal(growing.token_ids, other.token_ids)
        np.testing.assert_allclose(growing.scores, other.scores, atol=1e-5)
    np.testing.assert_array_equal(growing.token_ids, search(SOURCES[::-1]).token_ids[::-1])
    assert search(SOURCES[:0]).token_ids.shape == (0, 3, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        pytest.param("luong", marks=pytest.mark.slow),
        "bahdanau",
        pytest.param("context and output", marks=pytest.mark.slow),
    ],
)
def test_nothing_to_translate_is_no_error_in_a_graph(form):
    model = built(form)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def run(sources, targets):
        step, cache = model.start_decoding(sources)
        return step(targets[:, 0], 0, cache)[0], logits(sources, targets)

    def logits(sources, targets):
        inputs = {"source_token_ids": sources, "target_token_ids": targets}
        return model(inputs, training=False)["logits"]

    for batch, length in ((0, 0), (0, 3), (2, 0)):
        sources, targets = tf.zeros((batch, length), tf.int32), tf.ones((batch, 4), tf.int32)
        first, whole = run(sources, targets)
        assert whole.shape == (batch, 4, 30)
        # A source without tokens equals one of only padding.
        padded = logits(tf.zeros((batch, 2), tf.int32), targets)
        np.testing.assert_allclose(whole, padded, atol=1e-5)
        np.testing.assert_allclose(first, padded[:, 0], atol=1e-5)


def test_sampling_runs():
    step, cache = built("luong").start_decoding(SOURCES)
    found = sample(step, [1] * 3, cache, end_token_id=2, max_length=4, seed=0, growing_axis=2)
    assert found.token_ids.shape == (3, 1, 4)


@pytest.mark.parametrize("form", forms(ATTENDING))
def test_cross_attention_scores_are_alignments(form):
    scores = built(form).cross_attention_scores(SOURCES, TARGETS)
    assert scores.shape == (3, 1, 1, 6, 5)
    np.testing.assert_allclose(np.sum(scores, -1), 1, atol=1e-5)
    assert np.max(scores[1, ..., 3:]) == 0  # no attention to padding
    assert np.ptp(np.asarray(scores)[0, 0, 0], axis=0).max() > 1e-4  # it differs from step to step


def test_without_attention_there_is_no_alignment():
    model = built("state alone")
    assert not model.has_attention
    assert built("luong").has_attention
    with pytest.raises(ValueError, match="build.*attention='additive'"):
        model.cross_attention_scores(SOURCES, TARGETS)


def test_saving_keeps_the_class_the_count_and_the_numbers(model, tmp_path):
    loaded = round_trip(model, tmp_path)
    same_outputs(logits_of(model), logits_of(loaded))
    assert type(loaded) is type(model)
    assert loaded.count_params() == model.count_params()
    loaded.start_decoding(SOURCES)


def test_all_weights_are_trained(model):
    """Every gradient exists and none is zero: every weight is used."""
    with tf.GradientTape() as tape:
        loss = LOSS["logits"](TARGETS, model(INPUTS, training=True)["logits"])
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.path
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, variable.path


@pytest.mark.parametrize("kind", ["additive", "general", "dot", "location"])
def test_attention_is_its_formula(kind):
    from keras_transformers.layers.recurrent.attention import RnnAttention

    layer = RnnAttention(kind, attention_dim=3, max_sequence_length=9)
    query = RANDOM.normal(size=(2, 4, 5)).astype("float32")
    memory = RANDOM.normal(size=(2, 6, 5 if kind == "dot" else 7)).astype("float32")
    context, probabilities = layer(query, memory)
    w = {weight.path.split("/")[-2]: weight.numpy() for weight in layer.weights}
    scores = np.empty((2, 4, 6))
    for row, step, position in np.ndindex(*scores.shape):
        s, h = query[row, step], memory[row, position]
        scores[row, step, position] = {
            "dot": lambda s=s, h=h: s @ h,
            "general": lambda s=s, h=h: s @ (h @ w["key"]),
            "additive": lambda s=s, h=h: np.tanh(s @ w["query"] + h @ w["key"]) @ w["score"][:, 0],
            "location": lambda s=s, p=position: (s @ w["score"])[p],
        }[kind]()
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    np.testing.assert_allclose(context, expected @ memory, atol=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_cell_is_that_of_keras(cell):
    ours = Recurrent(cell, 5)
    inputs = RANDOM.normal(size=(2, 7, 3)).astype("float32")
    lengths = np.array([7, 4])
    mask = np.arange(7) < lengths[:, None]
    outputs, states = ours(inputs, mask)
    w = {weight.path.split("/", 1)[1]: weight.numpy() for weight in ours.weights}
    kernel, bias = w["cell/input_projection/kernel"], w["cell/input_projection/bias"]
    if cell == "lstm":  # ours: i, j, f, o; Keras: i, f, j, o, with the forget bias in the weights

        def turn(matrix):
            i, j, f, o = np.split(matrix, 4, axis=-1)
            return np.concatenate([i, f, j, o], axis=-1)

        bias = bias + np.repeat([0, 0, 1, 0], 5)
        theirs = keras.layers.LSTM(5, return_sequences=True)
        weights = [turn(kernel), turn(w["cell/recurrent_kernel"]), turn(bias)]
    else:
        theirs = keras.layers.GRU(5, return_sequences=True, reset_after=False)
        recurrent = [w["cell/gates_kernel"], w["cell/candidate_kernel"]]
        weights = [kernel, np.concatenate(recurrent, axis=-1), bias]
    theirs.build(inputs.shape)
    theirs.set_weights(weights)
    expected = theirs(inputs, mask=mask).numpy() * mask[:, :, None]
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    np.testing.assert_allclose(states[0], expected[np.arange(2), lengths - 1], atol=1e-5)


def forced(ratio, **changes):
    keras.utils.set_random_seed(3)
    return tiny.seq2seq(
        **(SMALL | FORMS["bahdanau"] | {"dropout": 0.0, "teacher_forcing": ratio} | changes)
    )


@pytest.mark.slow
def test_the_ratio_of_teacher_forcing_is_what_training_feeds():
    model = forced(0.5)
    model.teacher_forcing.assign(1.0)  # all tokens from the target: the loop equals the fast path
    by_step = model(INPUTS, training=True)["logits"]
    np.testing.assert_allclose(by_step, logits_of(model), atol=1e-5)

    model.teacher_forcing.assign(0.0)  # all from the model: the target's later tokens are unused
    own = model(INPUTS, training=True)["logits"].numpy()
    other = np.concatenate([TARGETS[:, :1], TARGETS[:, 1:][:, ::-1]], axis=1)
    again = model(INPUTS | {"target_token_ids": other}, training=True)["logits"]
    np.testing.assert_allclose(own, again, atol=1e-6)
    fed = np.concatenate([TARGETS[:, :1], own.argmax(-1)[:, :-1]], axis=1).astype("int32")
    np.testing.assert_allclose(own, logits_of(model, targets=fed), atol=1e-5)

    # Outside training the ratio does not matter.
    plain = forced(1.0)
    for weight, same in zip(plain.weights, model.trainable_weights, strict=True):
        weight.assign(same)
    np.testing.assert_array_equal(logits_of(model), logits_of(plain))


def test_the_choices_follow_the_ratio():
    layer = forced(0.5).get_layer("teacher_forcing")
    layer.ratio.assign(0.7)
    choices = np.asarray(layer.choose(200, 100))
    assert choices[0].all()
    assert abs(choices[1:].mean() - 0.7) < 0.02


@pytest.mark.slow
def test_own_tokens_train_save_and_keep_their_ratio(tmp_path):
    arguments = SMALL | FORMS["luong"]
    model = tiny.seq2seq(**arguments, teacher_forcing=0.5, dropout=0.3)
    assert model.count_params() == num_parameters(**arguments) + 1
    compile_toy(model, "adam", LOSS)
    before = [weight.numpy() for weight in model.trainable_weights]
    model.fit(INPUTS, {"logits": TARGETS}, verbose=0)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert np.abs(weight.numpy() - old).max() > 0, weight.path
    model.teacher_forcing.assign(0.25)
    assert float(round_trip(model, tmp_path).teacher_forcing) == 0.25


def test_teacher_forcing_by_default_is_the_fast_path():
    assert built("luong").teacher_forcing is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention": "multiplicative"}, "attention='multiplicative' is unknown: use dot, gen"),
        ({"cell": "elman"}, "cell='elman' .*'lstm', 'gru' or 'rnn'"),
        ({"context": "peek"}, "context='peek' is unknown"),
        ({"bridge": "none"}, "bridge='none' is unknown"),
        ({"readout_dim": 7, "readout_activation": "relu"}, "readout_activation='relu' is unknown"),
        ({"weight_tying": "three-way"}, "weight_tying='three-way' is unknown"),
        ({"weight_tying": "decoder"}, "8, not 24: set readout_dim=8"),
        ({"weight_tying": "all", "target_vocabulary_size": 9}, "have 30 and 9 tokens"),
        ({"teacher_forcing": 1.5}, "teacher_forcing=1.5 is not between 0 and 1"),
        ({"teacher_forcing": -0.1}, "teacher_forcing=-0.1 is not between 0 and 1"),
        ({"input_feeding": True, "attention": None}, "input_feeding needs attention"),
        ({"input_feeding": True, "context": "input"}, "and context='input'"),
        ({"bridge": "copy"}, "bridge='copy' .*widths"),
        ({"attention": "dot", "hidden_dim": 11}, "decoder has 11 and the encoder 12"),
        ({"num_encoder_layers": 0}, "at least one layer"),
        ({"num_decoder_layers": 0}, "at least one layer"),
    ],
)
def test_choices_that_are_unknown_or_exclude_each_other_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        tiny.seq2seq(**(SMALL | {"cell": "gru"} | change))


def test_a_source_longer_than_location_attention_knows_is_refused():
    model = tiny.seq2seq(**(SMALL | FORMS["location"]), max_sequence_length=4)
    with pytest.raises(ValueError, match="5.*4 positions"):
        logits_of(model)


@pytest.mark.slow
def test_mixed_precision_decodes():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = tiny.seq2seq(**(SMALL | FORMS["feeding"]))
    finally:
        keras.config.set_dtype_policy("float32")
    logits = model(INPUTS)["logits"]
    assert logits.dtype == tf.float32
    found = searcher(model, growing=True)(SOURCES)
    assert np.isfinite(found.scores[:, 0]).all()


def numbered(model):
    """Builds the model with weights that are the same on every backend."""
    for index, weight in enumerate(model.trainable_weights):
        weight.assign(np.random.default_rng(index).normal(size=weight.shape))
    return model


@pytest.mark.slow
def test_on_jax_a_training_step_by_step_has_the_same_loss(on_jax):
    arguments = SMALL | FORMS["bahdanau"] | {"teacher_forcing": 0.5, "dropout": 0.0}
    arguments["num_decoder_layers"] = 1
    output = on_jax(f"""
import numpy as np, keras, keras_transformers as kt
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
targets = np.array({TARGETS.tolist()}, "int32")
model = kt.create_model("seq2seq_multi30k", **{arguments})
for index, weight in enumerate(model.trainable_weights):
    weight.assign(np.random.default_rng(index).normal(size=weight.shape))
model.teacher_forcing.assign(1.0)
model.compile("adam", loss={{"logits": loss}})
inputs = {{"source_token_ids": np.array({SOURCES.tolist()}, "int32"), "target_token_ids": targets}}
before = model.get_layer("encoder").get_weights()
loss = model.train_on_batch(inputs, {{"logits": targets}})
after = model.get_layer("encoder").get_weights()
print(all(abs(a - b).max() > 0 for a, b in zip(after, before)), float(loss))
""")
    is_trained, loss = output.split()
    assert is_trained == "True"
    same = numbered(tiny.seq2seq(**arguments))
    assert float(loss) == pytest.approx(float(LOSS["logits"](TARGETS, logits_of(same))), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["copy", "reverse"])
@pytest.mark.parametrize("form", ["luong", "bahdanau"])
def test_a_toy_task_is_learned(form, task):
    """Learns to copy and reverse ten symbols; greedy search gets 99 % of the tokens right."""
    keras.utils.set_random_seed(0)
    sizes = {"vocabulary_size": 13, "num_encoder_layers": 1, "num_decoder_layers": 1}
    widths = {"embedding_dim": 32, "hidden_dim": 64, "encoder_hidden_dim": 32, "readout_dim": 32}
    form = FORMS[form] | {"attention_dim": None, "dropout": 0.0}
    model = tiny.seq2seq(**(form | sizes | widths))
    random = np.random.default_rng(0)
    sources = random.integers(3, 13, (12_800, 10)).astype("int32")
    answers = sources if task == "copy" else sources[:, ::-1]
    shifted = np.concatenate([np.full((len(answers), 1), 1), answers[:, :-1]], 1).astype("int32")
    rate = keras.optimizers.schedules.CosineDecay(6e-3, decay_steps=6 * 200)
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0), loss=LOSS)
    inputs = {"source_token_ids": sources, "target_token_ids": shifted}
    model.fit(inputs, {"logits": answers}, batch_size=64, epochs=6, verbose=0)
    tests = random.integers(3, 13, (200, 10)).astype("int32")
    step, cache = model.start_decoding(tests)
    found = greedy_search(step, [1] * 200, cache, end_token_id=None, max_length=10).token_ids[:, 0]
    expected = tests if task == "copy" else tests[:, ::-1]
    assert np.mean(found == expected) >= 0.99
