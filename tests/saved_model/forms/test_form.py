import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import in_float64, same_but_for_rounding

import keras_transformers as kt
from keras_transformers.layers import (
    FeedForward,
    MeanOfTokens,
    MultiHeadAttention,
    Rows,
    TransformerBlock,
)
from keras_transformers.saved_model.forms.form import ExportForm
from keras_transformers.saved_model.storage import StoredWeights

pytestmark = pytest.mark.kernels

SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8}
LENGTHS = (3, 5, 1, 0)  # the last row is all padding


def block(norm_position="post", **attention):
    return TransformerBlock(
        MultiHeadAttention(2, 8, **attention), FeedForward(16, 8), norm_position=norm_position
    )


def inputs(model, lengths=LENGTHS):
    mask = np.arange(max(lengths, default=0))[None] < np.array(lengths, int)[:, None]
    rng = np.random.default_rng(0)
    found = {
        "token_ids": np.where(mask, rng.integers(5, 50, mask.shape), 0).astype("int32"),
        "segment_ids": np.where(mask, rng.integers(0, 2, mask.shape), 0).astype("int32"),
        "padding_mask": mask,
    }
    return {name: tf.constant(found[name]) for name in model.input}


def randomize(model):
    """Gives every weight a value, so that none can be left out unnoticed."""
    rng = np.random.default_rng(1)
    model.set_weights([w + 0.3 * rng.normal(size=w.shape) for w in model.get_weights()])
    return model


def encoders():
    text = kt.models.encoders
    yield "bert", text.bert.bert(vocabulary_size=50, **SIZES)
    yield "distilbert", text.distilbert.distilbert(vocabulary_size=50, **SIZES)
    yield "mpnet", text.mpnet.mpnet(vocabulary_size=50, **SIZES)
    yield "roberta", text.roberta.roberta(vocabulary_size=50, **SIZES)
    yield "electra", text.electra.electra(vocabulary_size=50, embedding_dim=4, **SIZES)
    yield "deberta", kt.families.deberta.deberta(vocabulary_size=50, **SIZES)
    yield (
        "convolution",
        kt.families.deberta.deberta(
            vocabulary_size=50, convolution_width=3, share_projections=False, **SIZES
        ),
    )


@pytest.fixture(scope="module")
def models():
    return {name: randomize(model) for name, model in encoders()}


@pytest.mark.one_case
@pytest.mark.parametrize(
    "name", ["bert", "distilbert", "mpnet", "roberta", "electra", "deberta", "convolution"]
)
def test_real_tokens_have_the_models_own_numbers(models, name):
    model = models[name]
    given = inputs(model)
    form = ExportForm(model)
    outputs = [form(**given), model(given, training=False), in_float64(model)(given)]
    for each in outputs:
        if "sequence_output" in each:  # its padding is meaningless
            each["sequence_output"] = tf.boolean_mask(
                each["sequence_output"], given["padding_mask"]
            )
    same_but_for_rounding(*outputs)


def test_an_empty_batch_and_rows_without_padding(models):
    model = models["bert"]
    form = ExportForm(model)
    empty = {name: value[:0] for name, value in inputs(model).items()}
    assert form(**empty)["pooled_output"].shape == (0, 8)
    full = inputs(model, lengths=(4, 4))
    same_but_for_rounding(form(**full), model(full), in_float64(model)(full))


def test_padding_is_not_computed(models):
    """The matrices have as many rows as there are real tokens, or as rows begin."""
    form = ExportForm(models["bert"])
    given = inputs(models["bert"])
    rows = []
    layer = models["bert"].get_layer("encoder_layer_1")
    plain = layer.feed_forward.call
    layer.feed_forward.call = lambda x, **others: (rows.append(x.shape), plain(x, **others))[1]
    try:
        form(**given)
    finally:
        layer.feed_forward.call = plain
    assert rows == [(3 + 5 + 1 + 1, 8)]


def test_every_mask_has_its_own_rows():
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    wide = keras.Input((None,), dtype="bool", name="padding_mask")
    narrow = keras.Input((None,), dtype="bool", name="narrow_mask")
    hidden = keras.layers.Embedding(50, 8)(token_ids)
    hidden = block("pre")(hidden, attention_mask=wide)
    first = MeanOfTokens()(hidden, wide)
    hidden = block()(hidden, attention_mask=narrow)
    second = MeanOfTokens()(hidden, narrow)
    inputs = {"token_ids": token_ids, "padding_mask": wide, "narrow_mask": narrow}
    model = randomize(keras.Model(inputs, {"first": first, "second": second}))
    positions = np.arange(5)[None]
    given = {
        "token_ids": tf.constant(np.arange(10).reshape(2, 5), tf.int32),
        "padding_mask": tf.constant(positions < [[5], [3]]),
        "narrow_mask": tf.constant(positions < [[4], [2]]),
    }
    same_but_for_rounding(ExportForm(model)(**given), model(given), in_float64(model)(given))


def test_layers_without_a_mask_causal_ones_and_scores():
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    hidden = keras.layers.Embedding(50, 8)(token_ids)
    hidden = block()(hidden)
    hidden = block(use_causal_mask=True)(hidden)
    last, scores = block()(hidden, return_attention_scores=True)
    model = randomize(keras.Model({"token_ids": token_ids}, {"last": last, "scores": scores}))
    given = {"token_ids": tf.constant(np.arange(10).reshape(2, 5), tf.int32)}
    form = ExportForm(model)
    assert len(form.on_rows) == 1  # the first
    same_but_for_rounding(form(**given), model(given), in_float64(model)(given))


def test_of_originals_and_copies_only_what_is_read_is_saved(models):
    model = models["bert"]
    form = ExportForm(model)
    stored = [weight.value for weight in form.weights]
    specs = {
        name: tf.TensorSpec((None, None), value.dtype) for name, value in inputs(model).items()
    }
    serving = tf.function(form).get_concrete_function(**specs)
    plain = tf.function(lambda **x: model(x)).get_concrete_function(**specs)

    def sizes(functions):
        return sum(int(np.prod(variable.shape)) for variable in form.read(stored, functions))

    count, attention = model.count_params(), 2 * 3 * (8 * 8 + 8)
    assert sizes([serving]) == sizes([plain]) == count
    assert sizes([serving, plain]) == count + attention


def test_in_bfloat16_too_what_no_function_reads_is_not_saved(models):
    model = models["bert"]
    form = ExportForm(model)
    stored = StoredWeights(form.weights, "bfloat16")
    specs = {
        name: tf.TensorSpec((None, None), value.dtype) for name, value in inputs(model).items()
    }
    tf.function(stored.reading(form)).get_concrete_function(**specs)
    assert stored.forget_unread()
    serving = tf.function(stored.reading(form)).get_concrete_function(**specs)
    assert not stored.forget_unread()
    kept = form.read(stored.variables, [serving])
    assert sum(int(np.prod(variable.shape)) for variable in kept) == model.count_params()


def test_a_layout_without_a_mask_keeps_all_positions():
    values = tf.reshape(tf.range(12.0), (2, 3, 2))
    layout = Rows(like=values)
    assert layout.tokens(values).shape == (6, 2)
    np.testing.assert_array_equal(layout.padded(layout.tokens(values)), values)
    assert layout.scores_bias() is None
    assert layout.any_visible is None


def test_tokens_go_out_and_come_back():
    values = tf.reshape(tf.range(12.0), (2, 3, 2))
    layout = Rows(tf.constant([[True, False, True], [False, False, False]]))
    tokens = layout.tokens(values)
    np.testing.assert_array_equal(tokens, [[0, 1], [4, 5], [6, 7]])  # a row's first always counts
    padded = layout.padded(tokens)
    np.testing.assert_array_equal(padded[:, :, 0], [[0, 0, 4], [6, 6, 6]])
    bias = tf.ones((1, 1, 3, 3))
    assert layout.scores_bias(bias) is layout.scores_bias(bias)
