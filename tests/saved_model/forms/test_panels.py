"""Exports in float32 multiply by matrices in panels: stored so, or arranged when loaded."""

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from checks import in_float64, same_but_for_rounding
from tensorflow.python.util import _pywrap_util_port

import keras_transformers as kt
from keras_transformers.layers import RowDense, TokenEmbedding
from keras_transformers.saved_model.checks import check
from keras_transformers.saved_model.description import describe, lines
from keras_transformers.saved_model.forms import panels as panels_module
from keras_transformers.saved_model.forms.panels import (
    DecodingForm,
    ShortTextsForm,
    _LoadedPanels,
    _Loading,
    _PanelDense,
    _PanelEmbedding,
    _StoredPanels,
    computes_with_onednn,
)

pytestmark = pytest.mark.kernels

KINDS = [_StoredPanels, partial(_LoadedPanels, loading=_Loading())]


@pytest.fixture(scope="module")
def encoder():
    return tiny.lively(
        kt.families.bert.bert(
            vocabulary_size=100,
            num_layers=2,
            num_heads=2,
            hidden_dim=64,
            intermediate_dim=72,
            max_sequence_length=64,
        )
    )


@pytest.fixture(scope="module")
def mask_filler():
    return tiny.wide_mask_filler()


def inputs(model, *lengths):
    mask = np.arange(max(lengths, default=0))[None] < np.array(lengths, int)[:, None]
    ids = np.where(mask, np.random.default_rng(0).integers(5, 90, mask.shape), 0)
    found = {"token_ids": ids.astype("int32"), "segment_ids": 0 * ids.astype("int32")}
    return {name: tf.constant({**found, "padding_mask": mask}[name]) for name in model.input}


def graph_of(form):
    specs = {
        name: tf.TensorSpec((None, None), value.dtype)
        for name, value in inputs(form.model, 1).items()
    }
    return tf.function(form, autograph=False).get_concrete_function(**specs)


def bytes_of(folder):
    return sum(file.stat().st_size for file in (folder / "variables").iterdir())


@pytest.mark.parametrize("panels", KINDS)
@pytest.mark.parametrize("activation", ["gelu", "relu", "linear"])
@pytest.mark.parametrize(("units", "width"), [(64, 32), (72, 32), (5, 64), (512, 64)])
def test_a_product_of_panels_is_the_layers(panels, activation, units, width):
    function = kt.layers.dense.activation_function(activation)
    layer = RowDense(units, activation=function, bias_initializer="random_normal")
    rows = keras.random.normal((3, 16), seed=0)
    expected = layer(rows)
    in_panels = _PanelDense(panels(layer.kernel, width), layer.bias, layer.activation)
    same_but_for_rounding(in_panels(rows), expected, in_float64(layer)(rows))


def test_the_kernels_in_use_are_those_that_tensorflow_was_told_to_use():
    """The build may lack oneDNN, the processor may be too old for it, a variable may say no."""
    assert bool(computes_with_onednn()) is _pywrap_util_port.IsMklEnabled()


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("units", [64, 72, 512])
def test_panels_are_arranged_for_either_kernels(units, onednn, monkeypatch):
    layer = RowDense(units)
    rows = keras.random.normal((3, 16), seed=0)
    expected = layer(rows)
    panels = _LoadedPanels(layer.kernel, 32, _Loading())
    arranged = panels.arranged(tf.constant(onednn))
    monkeypatch.setattr(panels, "read", lambda: arranged)
    dense = _PanelDense(panels, layer.bias)
    same_but_for_rounding(dense(rows), expected, in_float64(layer)(rows))
    count, _, width = arranged.shape
    assert (count, width) == (
        (-(-units // 32), 32) if onednn else (1, -(-units // 32) * 32 + 16 * (units == 512))
    )


@pytest.mark.one_case
@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("several_rows", [False, True])
def test_loading_makes_one_panel_for_several_rows_without_onednn(several_rows, onednn, monkeypatch):
    sizes = {"vocabulary_size": 100, "num_layers": 3, "num_heads": 2, "hidden_dim": 64}
    model = tiny.lively(kt.families.llama.llama(**sizes, intermediate_dim=72))
    form = DecodingForm(model, several_rows=several_rows)
    graph = graph_of(form)
    calls = [op for op in graph.graph.get_operations() if op.type == "PartitionedCall"]
    assert [len(calls), len({call.get_attr("f").name for call in calls})] == [3, 1]
    monkeypatch.setattr(panels_module, "computes_with_onednn", lambda: tf.constant(onednn))
    panels = [kernel._panels for kernel in form.kernels.values()]
    given = inputs(model, 5, 5)
    expected, exact = model(given)["logits"], in_float64(model)(given)["logits"]
    same_but_for_rounding(graph(**given)["logits"], expected, exact)
    for _ in range(2):  # as when a server initializes a model again
        form.arrange()
        one = several_rows and not onednn
        assert {each.read().shape[0] == 1 for each in panels} == {one}
        same_but_for_rounding(graph(**given)["logits"], expected, exact)


@pytest.mark.parametrize("onednn", [True, False])
def test_all_batches_read_panels_where_there_is_no_onednn(encoder, onednn, monkeypatch):
    monkeypatch.setattr(panels_module, "computes_with_onednn", lambda: tf.constant(onednn))
    form = ShortTextsForm(encoder)
    graph, exact = graph_of(form), in_float64(encoder)
    assert (form._loading.most_tokens() > 1000) == (not onednn)
    for lengths in ((3,), (60, 50)):
        given = inputs(encoder, *lengths)
        answers = (graph(**given), encoder(given), exact(given))
        same_but_for_rounding(*(answer["pooled_output"] for answer in answers))


@pytest.mark.parametrize("panels", KINDS)
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_a_table_of_panels_is_the_embedding(panels, scale):
    layer = TokenEmbedding(70, 16, scale=scale)
    layer.build()
    table = _PanelEmbedding(layer, panels(layer.embeddings, 32, transposed=True))
    ids = np.array([[0, 31, 32], [63, 64, 69]], "int32")
    np.testing.assert_array_equal(table(ids), layer(ids))
    vectors = keras.random.normal((2, 3, 16), seed=0)
    same_but_for_rounding(
        *(each(vectors, reverse=True) for each in (table, layer, in_float64(layer)))
    )


def test_few_tokens_and_many_get_the_models_answers(encoder):
    graph, exact = graph_of(ShortTextsForm(encoder)), in_float64(encoder)
    nothing = {name: value[:0] for name, value in inputs(encoder, 3).items()}
    assert graph(**nothing)["pooled_output"].shape == (0, 64)
    for lengths in ((3,), (3, 5, 1, 0), (40,), (20, 21), (60, 50)):
        given = inputs(encoder, *lengths)
        answers = (graph(**given), encoder(given), exact(given))
        same_but_for_rounding(*(answer["pooled_output"] for answer in answers))


def test_only_few_tokens_are_multiplied_by_panels(encoder):
    """A layer has four: query, key and value are one. The pooler, Keras' own layer, stays."""
    functions = graph_of(ShortTextsForm(encoder)).graph.as_graph_def().library.function
    reads = [sum(n.op == "ReadVariableOp" for n in each.node_def) for each in functions]
    products = [
        {op: sum(n.op == op for n in each.node_def) for op in ("BatchMatMulV2", "MatMul")}
        for each, num_read in zip(functions, reads, strict=True)
        if num_read > 10
    ]
    attention = 2 * 2  # scores and their sums, in each layer
    assert sorted(products, key=lambda counts: counts["MatMul"]) == [
        {"BatchMatMulV2": 2 * 4 + attention, "MatMul": 1},
        {"BatchMatMulV2": attention, "MatMul": 2 * 4 + 1},
    ]


@pytest.mark.slow
def test_matrices_are_stored_once_and_arranged_in_every_loader(mask_filler, tmp_path):
    """`failures` runs both loaders of TensorFlow."""
    arranged = kt.export(mask_filler, tmp_path / "arranged", check=False)
    assert list(check.failures(str(arranged))) == []
    plain = kt.export(mask_filler, tmp_path / "plain", arrange_matrices=False, check=False)
    assert bytes_of(arranged) == pytest.approx(bytes_of(plain), abs=2000)
    shown = ["\n".join(lines(describe(each))) for each in (arranged, plain)]
    assert "arranged on loading" in shown[0]
    assert "as in the model" in shown[1]
    text = tf.constant(["a [MASK] film ."])
    answers = [
        tf.saved_model.load(str(each)).signatures["serving_default"](text=text)["probabilities"]
        for each in (arranged, plain)
    ]
    np.testing.assert_allclose(*answers, atol=1e-6)


@pytest.mark.slow
def test_unloading_one_copy_leaves_the_other(mask_filler, tmp_path):
    folder = str(kt.export(mask_filler, tmp_path, check=False))
    first, second = (tf.saved_model.load(folder) for _ in range(2))
    text = tf.constant(["a [MASK] film ."])
    before = second.signatures["serving_default"](text=text)["probabilities"]
    del first
    np.testing.assert_array_equal(
        second.signatures["serving_default"](text=text)["probabilities"], before
    )


def test_narrow_models_gain_nothing_and_stay_plain(tmp_path):
    pipeline = tiny.pipeline("embedding")
    assert not ShortTextsForm(pipeline.model).num_dense
    folder = kt.export(pipeline, tmp_path, check=False)
    graph = tf.saved_model.load(str(folder)).signatures["serving_default"].graph
    ops = {
        node.op for function in graph.as_graph_def().library.function for node in function.node_def
    }
    assert "VarHandleOp" not in ops


def test_blocks_of_what_decodes_share_a_graph_that_reads_panels_alone():
    sizes = {"vocabulary_size": 100, "num_layers": 3, "num_heads": 2, "hidden_dim": 64}
    model = tiny.lively(kt.families.llama.llama(**sizes, intermediate_dim=72))
    form = DecodingForm(model)
    graph = graph_of(form)
    calls = [op for op in graph.graph.get_operations() if op.type == "PartitionedCall"]
    assert [len(calls), len({call.get_attr("f").name for call in calls})] == [3, 1]
    variables = [weight.value for weight in form.weights]
    read = form.read(variables, [graph])
    assert {v.shape.rank for v in read} == {1, 3}  # norms and panels
    given = inputs(model, 5, 5)
    answers = graph(**given), model(given), in_float64(model)(given)
    same_but_for_rounding(*(answer["logits"] for answer in answers))


@pytest.mark.slow
def test_what_decodes_stores_panels_alone(tmp_path):
    generate = tiny.wide_generator()
    folder = kt.export(generate, tmp_path, check=False)
    assert list(check.failures(str(folder))) == []
    filled_up = -generate.tokenizer.vocabulary_size % 32 * 64
    expected = 4 * (generate.model.count_params() + filled_up)
    assert bytes_of(folder) == pytest.approx(expected, abs=8000)  # with the index
    shapes = [v.shape.rank for v in tf.saved_model.load(str(folder)).raw_variables]
    assert shapes.count(3) == 2 * 6 + 1


@pytest.mark.slow
def test_panels_are_halved_in_bfloat16(tmp_path):
    generate = tiny.wide_generator()
    folder = kt.export(generate, tmp_path / "panels", weights_dtype="bfloat16", check=False)
    assert list(check.failures(str(folder))) == []
    assert bytes_of(folder) < 0.6 * 4 * generate.model.count_params()


@pytest.mark.slow
def test_what_decodes_can_do_without(tmp_path):
    generate = tiny.wide_generator()
    folder = kt.export(generate, tmp_path, arrange_matrices=False, check=False)
    assert list(check.failures(str(folder))) == []
    shapes = [v.shape.rank for v in tf.saved_model.load(str(folder)).raw_variables]
    assert 3 not in shapes
