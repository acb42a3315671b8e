"""Names of tensors: blocks are found by type, whatever their names and however often called."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.tensors import Form, NamedTensor
from keras_transformers.families.bert.files import NAMES
from keras_transformers.layers import (
    FeedForward,
    MultiHeadAttention,
    PositionEmbedding,
    TokenEmbedding,
    TransformerBlock,
)


def shared_block(*, num_layers=3):
    """An encoder whose one block, as in ALBERT, is called several times."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    hidden = TokenEmbedding(9, 8, name="token_embedding")(token_ids)
    hidden = PositionEmbedding(6, name="position_embedding")(hidden)
    block = TransformerBlock(MultiHeadAttention(2, 8), FeedForward(16, 8), name="encoder_layer")
    for _ in range(num_layers):
        hidden = block(hidden)
    return keras.Model({"token_ids": token_ids}, {"sequence_output": hidden}, name="shared")


def test_a_block_that_is_called_often_has_one_set_of_tensors_by_any_name(tmp_path):
    names = dataclasses.replace(NAMES, required=("token_embedding",))
    model, other = shared_block(), shared_block()
    names.check(model)
    tensors = {tensor.name: tensor.read() for tensor in names.tensors(model)}
    assert "bert.encoder.layer.0.attention.self.query.weight" in tensors
    assert not [name for name in tensors if "layer.1." in name]
    assert names.fill(other, Arrays.of(tmp_path, tensors)) == []
    for one, two in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_two_names_of_one_tensor_are_refused(tmp_path):
    ones = np.ones(3, "float32")
    arrays = Arrays.of(tmp_path, {"pooler.dense.bias": ones, "bert.pooler.dense.bias": ones})
    with pytest.raises(ValueError, match="are both bert.pooler.dense.bias: remove one"):
        NAMES.today(arrays)


@pytest.mark.parametrize(
    ("form", "shapes", "stored"),
    [
        (Form(), [(3, 4), (3, 2)], (3, 6)),
        (Form(order=(1, 0)), [(3, 40)], (40, 3)),
        (Form(order=(3, 2, 0, 1)), [(2, 3, 4, 5)], (5, 4, 2, 3)),
        (Form(ones=2), [(4,)], (1, 1, 4)),
        (Form(axis=0), [(3, 4), (2, 4)], (5, 4)),
    ],
)
def test_forms_go_there_and_back(form, shapes, stored):
    values = [np.random.default_rng(0).normal(size=shape) for shape in shapes]
    assert form.shape(shapes) == stored == form.tensor(values).shape
    for value, again in zip(values, form.values(form.tensor(values), shapes), strict=True):
        np.testing.assert_array_equal(value, again)


def test_a_first_row_that_files_lack_becomes_zeros():
    variable = keras.Variable(np.ones((3, 2), "float32"))
    tensor = NamedTensor("char_embed", (variable,), Form(absent=1))
    assert tensor.shape == (2, 2)
    tensor.fill(np.full((2, 2), 5, "float32"))
    np.testing.assert_array_equal(variable, [[0, 0], [5, 5], [5, 5]])
