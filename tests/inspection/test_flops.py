"""FLOPs counted from layers, against the papers' formulas and against the graph that runs."""

import math

import keras
import pytest
import tiny

from keras_transformers import heads
from keras_transformers.families.bert.model import bert
from keras_transformers.families.electra.model import electra, electra_generator
from keras_transformers.families.elmo.model import elmo, language_model
from keras_transformers.families.fasttext.model import fasttext
from keras_transformers.families.gpt.model import gpt
from keras_transformers.families.modern_bert.model import modern_bert
from keras_transformers.families.transformer.model import transformer
from keras_transformers.families.vit.model import vit
from keras_transformers.inspection import (
    flops_table,
    forward_flops,
    training_flops,
    update_cost,
)
from keras_transformers.models.features import feature_reader


def pretrainer(**size):
    return heads.pretrainer(bert(**size))


def pretraining_shapes(batch, length, masked):
    tokens = dict.fromkeys(("token_ids", "segment_ids", "padding_mask"), (batch, length))
    return {**tokens, "mask_positions": (batch, masked)}


def matmul_flops(model, input_shapes):
    """What TensorFlow's graph of the model multiplies, counted op by op."""
    import tensorflow as tf

    specs = {
        name: tf.TensorSpec(input_shapes[name], tensor.dtype)
        for name, tensor in model.input.items()
    }
    call = tf.function(lambda inputs: model(inputs, training=False), autograph=False)
    graph = call.get_concrete_function(specs)
    total = 0
    for op in graph.graph.get_operations():
        if op.type in ("MatMul", "BatchMatMulV2", "BatchMatMulV3"):
            left, output = op.inputs[0].shape, op.outputs[0].shape
            transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
            total += 2 * math.prod(output) * left[-2 if transposed else -1]
    return total


@pytest.mark.slow
def test_the_count_is_that_of_the_graph():
    small = {"num_heads": 2, "hidden_dim": 8, "intermediate_dim": 20}
    tokens = {"token_ids": (3, 7)}
    pairs = {"source_token_ids": (3, 7), "target_token_ids": (3, 5)}
    for model, shapes in (
        (pretrainer(vocabulary_size=50, num_layers=2, **small), pretraining_shapes(3, 7, 2)),
        (gpt(vocabulary_size=50, num_layers=2, max_sequence_length=9, **small), tokens),
        (
            transformer(vocabulary_size=50, num_encoder_layers=2, num_decoder_layers=1, **small),
            pairs,
        ),
        (
            vit(image_size=12, patch_size=4, num_layers=1, **small),
            {"images": (3, 12, 12, 3)},
        ),
    ):
        counted = forward_flops(model, shapes)
        assert counted == matmul_flops(model, shapes), model.name
        assert training_flops(model, shapes) == 3 * counted


def test_a_convolution_counts_once_per_place_it_looks_at():
    small = {"patch_size": 1, "num_layers": 1, "num_heads": 1, "hidden_dim": 4}
    with_stem = vit(image_size=10, num_channels=2, stem_filters=(6,), **small)
    without = vit(image_size=5, num_channels=6, **small)
    flops = forward_flops(with_stem, {"images": (3, 10, 10, 2)})
    rest = forward_flops(without, {"images": (3, 5, 5, 6)})
    assert flops - rest == 2 * 3 * 5 * 5 * (3 * 3 * 2 * 6)


def test_berts_formula():
    batch, length, masked = 4, 128, 20
    h, v, layers = 64, 1000, 3
    model = pretrainer(vocabulary_size=v, num_layers=layers, num_heads=2, hidden_dim=h)
    formula = (
        6 * layers * 12 * h * h + 12 * layers * length * h + 6 * masked / length * (h * h + h * v)
    )
    # The last block computes keys and values of all positions, but the rest of those read alone.
    unread = 1 - (1 + masked) / length
    formula -= unread * (6 * 10 * h * h + 12 * length * h)
    heads_of_sentences = (
        6 * (h * h + 2 * h) / length
    )  # pooler and next sentence: not in the formula
    flops = training_flops(model, pretraining_shapes(batch, length, masked)) / (batch * length)
    assert flops == pytest.approx(formula + heads_of_sentences, rel=1e-12)


def test_rows_name_their_layers_in_order():
    model = bert(vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=8)
    rows = flops_table(model, dict.fromkeys(model.input, (1, 4)))
    assert [row.name for row in rows] == ["encoder_layer_0", "encoder_layer_1", "pooler"]
    assert rows[-1].flops == 2 * 8 * 8  # of the first position alone


def test_a_model_inside_another_counts_too():
    encoder = electra(vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=8)
    generator = heads.masked_lm(electra_generator(encoder, size=0.5))
    detector = heads.replaced_token_detector(encoder)
    shapes = dict.fromkeys(encoder.input, (3, 7))
    expected = forward_flops(generator, {**shapes, "mask_positions": (3, 2)})
    expected += forward_flops(detector, shapes)
    model = heads.electra_pretrainer(generator, detector)
    rows = flops_table(model, {**shapes, "mask_positions": (3, 2)})
    assert sum(row.flops for row in rows) == expected
    assert [row.name for row in rows] == [generator.name, detector.name]


def executed_flops(model, input_shapes):
    """What TensorFlow multiplies as the model runs, operation by operation, in loops as well."""
    import tensorflow as tf
    from tensorflow.python.framework import op_callbacks

    total = 0

    def count(kind, inputs, attributes, outputs, op_name=None, graph=None):
        nonlocal total
        named = dict(zip(attributes[::2], attributes[1::2], strict=True))
        kind = tf.compat.as_str(kind)
        if kind in ("MatMul", "BatchMatMulV2"):
            transposed = named["transpose_a" if kind == "MatMul" else "adj_x"]
            inner = inputs[0].shape[-2 if transposed else -1]
        elif kind == "Conv2D":
            inner = math.prod(inputs[1].shape[:-1])
        else:
            return
        total += 2 * math.prod(outputs[0].shape) * inner

    values = {
        name: tf.cast(tf.ones(input_shapes[name]), tensor.dtype)
        for name, tensor in model.input.items()
    }
    op_callbacks.add_op_callback(count)
    try:
        model(values, training=False)
    finally:
        op_callbacks.remove_op_callback(count)
    return total


def translator(cell="gru", **options):
    size = {"num_encoder_layers": 2, "num_decoder_layers": 2, "embedding_dim": 5, "hidden_dim": 6}
    return tiny.seq2seq(vocabulary_size=11, cell=cell, **(size | options))


BAHDANAU = {"context": "input_and_output", "readout_dim": 3, "readout_activation": "maxout"}
LUONG = {"bidirectional": False, "readout_dim": 4, "bridge": "copy"}
TRANSLATORS = [
    {"attention": "additive", "attention_dim": 7, **BAHDANAU},
    {"attention": None, "encoder_hidden_dim": 4, **BAHDANAU},
    {"attention": "general", "encoder_hidden_dim": 4, "readout_dim": 5, "weight_tying": "all"},
    {"attention": "dot", "cell": "lstm", "input_feeding": True, **LUONG},
    {"attention": "location", "cell": "lstm", "max_sequence_length": 9, "context": "input"},
    {"attention": None, "cell": "rnn", "context_from": "mean", "context_dim": 6, "bridge": "copy"},
    {"attention": None, "context": "input", "context_dim": 7, "bridge": "zeros"},
]
TRANSLATORS[-2]["feed_tokens"] = TRANSLATORS[-1]["feed_tokens"] = False


@pytest.mark.one_case
@pytest.mark.parametrize("options", TRANSLATORS, ids=lambda options: str(options["attention"]))
def test_recurrent_translators_count_as_they_run(options):
    model = translator(**options)
    shapes = {"source_token_ids": (3, 4), "target_token_ids": (3, 7)}
    assert forward_flops(model, shapes) == executed_flops(model, shapes)


def on_features(layer):
    inputs = keras.Input((None, 3), name="x")
    return keras.Model({"x": inputs}, layer(inputs))


@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (
            lambda: elmo(lstm_dim=8, projection_dim=4, num_highways=2, filters=[(1, 3), (4, 5)]),
            {"character_ids": (2, 3, 50)},
        ),
        (
            lambda: heads.tagger(feature_reader(2, 4, units=3), 5),
            {"features": (2, 7, 2, 4), "padding_mask": (2, 7)},
        ),
        (
            lambda: heads.causal_classifier(
                gpt(
                    vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=8,
                    max_sequence_length=6,
                ),
                3,
            ),
            {"token_ids": (2, 5), "padding_mask": (2, 5)},
        ),
    ],
    ids=["elmo", "BiLSTM on features", "GPT's classifier"],
)  # fmt: skip
def test_models_count_as_they_run(build, shapes):
    model = build()
    assert forward_flops(model, shapes) == executed_flops(model, shapes)


@pytest.mark.parametrize("length", [128, 160, 320])
def test_attention_in_a_window_counts_the_keys_that_it_meets(length):
    """Blocks of 32 queries meet three blocks of keys; a shorter text, all of its keys."""
    model = modern_bert(
        vocabulary_size=9, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=8,
        local_window=5,
    )  # fmt: skip
    shapes = dict.fromkeys(("token_ids", "padding_mask"), (2, length))
    keys = length + (length if length < 129 else 96)  # of the global layer and the local one
    expected = 2 * length * (2 * 2 * (4 * 64 + 3 * 64) + 4 * 8 * keys)
    assert forward_flops(model, shapes) == matmul_flops(model, shapes) == expected


def test_recurrent_layers_of_keras_count_by_formula():
    """An LSTM's step takes 8 d (features + d), a GRU's 6 d (features + d); Keras runs one more."""
    shapes = {"x": (2, 5, 3)}
    assert forward_flops(on_features(keras.layers.LSTM(4)), shapes) == 2 * 5 * 8 * 4 * (3 + 4)
    gru = keras.layers.GRU(4, return_sequences=True)
    both = on_features(keras.layers.Bidirectional(gru))
    assert forward_flops(both, shapes) == 2 * (2 * 5 * 6 * 4 * (3 + 4))


@pytest.mark.slow
def test_elmos_formula():
    """The reference's 204 million operations a token: 17.6 + 33.6 + 2.1 + 151.0."""
    model = elmo(lstm_dim=4096, projection_dim=512, num_highways=2)
    flops = {row.name: row.flops / 1e6 for row in flops_table(model, {"character_ids": (1, 1, 50)})}
    assert flops["character_cnn"] == pytest.approx(17.6, abs=0.05)
    assert flops["highway_0"] + flops["highway_1"] == pytest.approx(33.6, abs=0.05)
    assert sum(flops.values()) == pytest.approx(204, abs=0.5)


def test_a_bag_of_words_has_its_classes_alone():
    model = heads.classifier(fasttext(vocabulary_size=50, embedding_dim=10), 4, dropout=0.0)
    assert forward_flops(model, dict.fromkeys(model.input, (3, 8))) == 3 * 2 * 10 * 4


def test_the_mean_update_of_rows_that_differ():
    model = bert(vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8)
    row = training_flops(model, dict.fromkeys(model.input, (1, 6)))
    assert update_cost(model, rows=2.5, length=6.3) == pytest.approx((2.5 * 6.3, 2.5 * row))
    pairs = {"source_token_ids": 4.0, "target_token_ids": 6.6}
    model = translator(attention="dot", **LUONG)
    cost = update_cost(model, rows=10, length=pairs)
    shapes = {"source_token_ids": (10, 4), "target_token_ids": (10, 7)}
    assert cost.tokens_per_step == pytest.approx(106)
    assert cost.flops_per_step == training_flops(model, shapes)


def test_each_choice_of_a_row_is_read_with_its_text():
    encoder = bert(vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8)
    one, model = heads.regressor(encoder), heads.multiple_choice(encoder)
    choice = training_flops(one, dict.fromkeys(one.input, (1, 6)))
    assert training_flops(model, dict.fromkeys(model.input, (5, 4, 6))) == 20 * choice
    cost = update_cost(model, rows=2.5, length=(4.0, 6.3))
    assert cost == pytest.approx((2.5 * 4 * 6.3, 2.5 * 4 * choice))


class Squares(keras.layers.Layer):
    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], input_shape[-1]), name="kernel")

    def call(self, inputs):
        return keras.ops.matmul(inputs, self.kernel)


def test_what_is_not_counted_is_refused():
    model = bert(vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8)
    with pytest.raises(ValueError, match="input_shapes.*token_ids,.*'bert'"):
        forward_flops(model, {"token_ids": (1, 4)})
    model = on_features(Squares(name="squares"))
    with pytest.raises(ValueError, match=r"layer 'squares', a Squares with .*kernel"):
        forward_flops(model, {"x": (1, 2, 3)})
    rules = {Squares: lambda layer, inputs: 2 * math.prod(inputs.shape) * 3}
    assert forward_flops(model, {"x": (1, 2, 3)}, rules=rules) == 36


@pytest.mark.parametrize(
    ("equation", "output", "kernel_and_more"),
    [
        ("abc,cd->abd", (None, 7), 5 * (3 * 7)),
        ("abc,bcd->abd", (5, 7), 5 * 3 * 7),  # a matrix for each place
        ("...c,cd->...d", (7,), 5 * (3 * 7)),
        ("abc,cde->abde", (5, 2, 7), 5 * (3 * 2 * 7)),
    ],
)
def test_keras_einsum_dense_counts_every_product(equation, output, kernel_and_more):
    inputs = keras.Input((5, 3), name="x")
    layer = keras.layers.EinsumDense(equation, output)
    model = keras.Model({"x": inputs}, {"y": layer(inputs)})
    assert forward_flops(model, {"x": (2, 5, 3)}) == 2 * 2 * kernel_and_more


def test_keras_attention_counts_the_axes_that_it_attends():
    """Projections, then scores and sums over the attended places."""
    queries, values = keras.Input((2, 4, 6), name="q"), keras.Input((2, 5, 6), name="v")
    layer = keras.layers.MultiHeadAttention(3, key_dim=7, value_dim=8, attention_axes=2)
    model = keras.Model({"q": queries, "v": values}, {"y": layer(queries, values)})
    of_queries, of_values = 2 * 2 * 4, 2 * 2 * 5
    projections = of_queries * 6 * 3 * 7 + of_values * 6 * 3 * (7 + 8) + of_queries * 3 * 8 * 6
    middle = of_queries * 5 * 3 * (7 + 8)
    assert forward_flops(model, {"q": (2, 2, 4, 6), "v": (2, 2, 5, 6)}) == 2 * (
        projections + middle
    )


def test_a_callers_rule_comes_first_also_inside_a_model_in_a_model():
    class OwnDense(keras.layers.Dense):
        pass

    inner_inputs = keras.Input((None, 3), name="x")
    inner = keras.Model({"x": inner_inputs}, OwnDense(4)(inner_inputs))
    inputs = keras.Input((None, 3), name="x")
    model = keras.Model({"x": inputs}, {"y": inner({"x": inputs})})
    assert forward_flops(model, {"x": (1, 2, 3)}) == 2 * 2 * 3 * 4
    rules = {OwnDense: lambda layer, inputs: 5}
    assert forward_flops(model, {"x": (1, 2, 3)}, rules=rules) == 5


def test_a_language_models_softmax_has_the_rule_that_is_given():
    encoder = elmo(lstm_dim=8, projection_dim=4, num_highways=1, filters=[(1, 3)])
    model = language_model(encoder, Softmax(9))
    shapes = {"character_ids": (2, 5, 50), "token_ids": (2, 5)}
    rules = {Softmax: lambda layer, hidden, ids: 2 * math.prod(hidden.shape) * 9}
    both = 2 * 2 * (2 * 4) * 4 * 9  # directions, rows of 4 places, 4 wide, 9 words
    alone = forward_flops(encoder, {"character_ids": (2, 5, 50)})
    assert forward_flops(model, shapes, rules=rules) == alone + both


class Softmax(keras.layers.Layer):
    def __init__(self, words):
        super().__init__()
        self.words = words

    def build(self, hidden_shape, ids_shape):
        self.kernel = self.add_weight(shape=(self.words, hidden_shape[-1]), name="kernel")

    def call(self, hidden, ids):
        return keras.ops.matmul(hidden, keras.ops.transpose(self.kernel))[..., 0]
