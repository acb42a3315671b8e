"""FLOPs counted from layers, against the papers' formulas and against the graph that runs."""

import math

import keras
import pytest

from keras_transformers.inspection import flops_table, forward_flops, training_flops
from keras_transformers.models import heads
from keras_transformers.models.bert import bert
from keras_transformers.models.gpt import causal_lm
from keras_transformers.models.transformer import transformer
from keras_transformers.models.vit import vit


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
    graph = tf.function(lambda inputs: model(inputs, training=False)).get_concrete_function(specs)
    total = 0
    for op in graph.graph.get_operations():
        if op.type in ("MatMul", "BatchMatMulV2", "BatchMatMulV3"):
            left, output = op.inputs[0].shape, op.outputs[0].shape
            transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
            total += 2 * math.prod(output) * left[-2 if transposed else -1]
    return total


def test_the_count_is_that_of_the_graph():
    small = {"num_heads": 2, "hidden_dim": 8, "intermediate_dim": 20}
    tokens = {"token_ids": (3, 7)}
    pairs = {"source_token_ids": (3, 7), "target_token_ids": (3, 5)}
    for model, shapes in (
        (pretrainer(vocabulary_size=50, num_layers=2, **small), pretraining_shapes(3, 7, 2)),
        (causal_lm(vocabulary_size=50, num_layers=2, max_sequence_length=9, **small), tokens),
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


def test_berts_formula():
    batch, length, masked = 4, 128, 20
    h, v, layers = 64, 1000, 3
    model = pretrainer(vocabulary_size=v, num_layers=layers, num_heads=2, hidden_dim=h)
    formula = (
        6 * layers * 12 * h * h + 12 * layers * length * h + 6 * masked / length * (h * h + h * v)
    )
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


def test_what_is_not_counted_is_refused():
    model = bert(vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8)
    with pytest.raises(ValueError, match="input_shapes has token_ids, but model 'bert' has"):
        forward_flops(model, {"token_ids": (1, 4)})
    inputs = keras.Input((None, 3), name="x")
    recurrent = keras.Model({"x": inputs}, keras.layers.GRU(4, name="gru")(inputs))
    with pytest.raises(ValueError, match=r"layer 'gru', a GRU with .*kernel"):
        forward_flops(recurrent, {"x": (1, 2, 3)})
