import json
import platform

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import kernels

import keras_transformers as kt
from keras_transformers.cli import main as cli
from keras_transformers.layers import TokenEmbedding
from keras_transformers.layers.dense import activation_function
from keras_transformers.layers.scopes import KERNELS
from keras_transformers.saved_model import exporting
from keras_transformers.saved_model.description import METADATA_FILE, describe, lines
from keras_transformers.saved_model.forms import int8
from keras_transformers.saved_model.forms.form import ExportForm
from keras_transformers.saved_model.forms.int8 import Int8Dense, Int8Embedding, Int8Form

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(
        platform.machine() not in {"x86_64", "AMD64"},
        reason="TensorFlow has int8 products for x86 alone",
    ),
]

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 64}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(995))]
TEXTS = ["w1 w2 w3", "w4", "", "w5 w900 w7 w8 w9 w10 w11"]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return kt.families.bert.bert(
        vocabulary_size=len(TOKENS), max_sequence_length=16, dropout=0.0, **SIZES
    )


@pytest.fixture(scope="module")
def embed(model):
    return kt.pipelines.Embedder(model, kt.tokenizers.WordPieceTokenizer(TOKENS))


@pytest.fixture(scope="module")
def folder(embed, tmp_path_factory):
    return kt.export(
        embed, tmp_path_factory.mktemp("int8"), examples=TEXTS, weights_dtype="int8", check=False
    )


def in_graph(function, *tensors):
    """The kernel runs in graphs alone."""
    return tf.function(function, autograph=False)(*map(tf.constant, tensors)).numpy()


def rounded(array, axis):
    """Multiples of a 127th of the largest number in each row or column."""
    return multiples(array, np.abs(array).max(axis=axis, keepdims=True))


def rounded_in_pairs(matrix, axis):
    """Multiples of a 127th of the largest number, or sum of a pair, in each row or column."""
    numbers = np.moveaxis(matrix, axis, 0)
    even, odd = numbers[::2], np.zeros_like(numbers[::2])
    odd[: len(numbers[1::2])] = numbers[1::2]
    largest = np.max([np.abs(x).max(axis=0) for x in (even, odd, even + odd)], axis=0)
    return multiples(matrix, np.expand_dims(largest, axis))


def multiples(array, largest):
    return np.rint(array / largest * 127) * largest / 127


@pytest.mark.parametrize(
    "activation", [None, "relu", "gelu", "gelu_approximate", "silu", "tanh", "linear"]
)
@pytest.mark.parametrize("use_bias", [True, False])
def test_a_product_is_that_of_the_rounded_numbers(activation, use_bias):
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=size).astype("float32") for size in ((5, 48), (48, 7)))
    x[1] *= 100.0  # takes no precision from the others
    bias = keras.Variable(rng.normal(size=7), dtype="float32") if use_bias else None
    function = activation and activation_function(activation)
    found = in_graph(Int8Dense(keras.Variable(w), bias, function), x)
    expected = rounded(x, 1) @ rounded_in_pairs(w, 0) + (0.0 if bias is None else bias.numpy())
    expected = expected if function is None else keras.ops.convert_to_numpy(function(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("features", [64, 63])
@pytest.mark.parametrize("num_rows", [1, 5])
def test_products_are_exact_sums_on_every_processor(num_rows, features):
    """Without VNNI, oneDNN adds the products of pairs in 16 bits: large ones do not fit."""
    w = np.random.default_rng(0).normal(size=(features, 40)).astype("float32")
    w[:, 0] = 1.0  # the largest sums
    signs = np.sign(np.random.default_rng(1).normal(size=(num_rows, features)))
    for rows in (signs, np.ones_like(signs)):
        rows = rows.astype("float32")
        for transpose in (False, True):
            matrix, largest = int8._rounded(w.T if transpose else w, axis=int(transpose))
            product = in_graph(
                lambda x, m=matrix, s=largest, t=transpose: int8._product(x, m, s, transpose=t),
                rows,
            )
            numbers = matrix.numpy().astype(int)
            sums = rows @ (numbers.T if transpose else numbers)
            np.testing.assert_allclose(product, sums * largest / 127, rtol=1e-6, atol=1e-5)


def test_exact_sums_cost_less_than_one_bit():
    """Twice as wide steps, for numbers of seven bits, would do as well."""
    w = np.random.default_rng(0).normal(size=(768, 64)).astype("float32")
    _, largest = int8._rounded(w, axis=0)
    assert 1.1 < np.mean(largest / np.abs(w).max(axis=0)) < 1.4


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_gelus_constants_are_in_the_scales(use_bias):
    rng = np.random.default_rng(0)
    x, w, v = (rng.normal(size=size).astype("float32") for size in ((5, 48), (48, 96), (96, 7)))
    bias = keras.Variable(rng.normal(size=96), dtype="float32") if use_bias else None

    def layers():
        first = Int8Dense(keras.Variable(w), bias, activation_function("gelu"))
        return first, Int8Dense(keras.Variable(v), None)

    (first, second), (moved, following) = layers(), layers()
    moved.move_scale_to(following)
    expected = in_graph(lambda rows: second(first(rows)), x)
    np.testing.assert_allclose(
        in_graph(lambda rows: following(moved(rows)), x), expected, rtol=1e-4, atol=1e-3
    )


def test_a_feed_forward_layer_is_scaled_once_wherever_it_is_used():
    """ALBERT's blocks are one block; GEGLU's product needs the constants."""
    encoders, sizes = kt.models.encoders, SIZES | {"num_layers": 2, "vocabulary_size": 50}
    albert = encoders.albert.albert(activation="gelu", **sizes)
    modern_bert = encoders.modern_bert.modern_bert(intermediate_dim=128, **sizes)
    for model, gelus in ((albert, 1), (modern_bert, 0)):
        replaced = [k for k in Int8Form(model).replaced.values() if isinstance(k, Int8Dense)]
        assert sum(k._activation is int8._scaled_gelu for k in replaced) == gelus


def test_zeros_have_zeros_for_a_product():
    zeros, bias = np.zeros((4, 3)), np.array([1.0, 2.0, 3.0])
    with np.errstate(all="raise"):
        dense = Int8Dense(*(keras.Variable(each, dtype="float32") for each in (zeros, bias)))
    np.testing.assert_array_equal(in_graph(dense, np.zeros((2, 4), "float32")), [[1, 2, 3]] * 2)


def test_a_table_is_read_both_ways():
    layer = TokenEmbedding(11, 8, scale=3.0, embeddings_initializer="normal")
    vectors = np.random.default_rng(1).normal(size=(2, 3, 8)).astype("float32")
    ids = np.array([[0, 10, 3]], "int32")
    layer(ids)
    table, embedding = rounded_in_pairs(layer.embeddings.numpy(), 1), Int8Embedding(layer)
    np.testing.assert_allclose(in_graph(embedding, ids), 3.0 * table[ids], rtol=1e-5)
    logits = in_graph(lambda x: embedding(x, reverse=True), vectors)
    np.testing.assert_allclose(logits, rounded(vectors, 2) @ table.T, rtol=1e-4, atol=1e-6)


def test_a_table_is_read_without_copying_it():
    """Gathering from a variable would make each read a copy, and the kernel prepare it again."""
    layer = TokenEmbedding(11, 8)
    layer(np.array([[0]]))
    embedding = Int8Embedding(layer)

    @tf.function(autograph=False)
    def both(ids):
        return embedding(embedding(ids), reverse=True)

    graph = both.get_concrete_function(tf.constant([[0, 10, 3]])).graph
    types = {op.type for op in graph.get_operations()}
    assert "GatherV2" in types
    assert "ResourceGather" not in types


def test_answers_are_near_and_do_not_depend_on_the_batch(embed, folder):
    """Within 3 % of float32 (random weights); cosines of trained ones are in the docs."""
    embedding = tf.saved_model.load(str(folder)).signatures["serving_default"]
    found = embedding(text=tf.constant(TEXTS))["embedding"].numpy()
    expected = np.array([answer.vector for answer in embed(TEXTS)])
    difference = np.abs(found - expected).max()
    assert 1e-5 < difference < 0.03 * np.abs(expected).max()
    for i, text in enumerate(TEXTS):
        alone = embedding(text=tf.constant([text]))["embedding"].numpy()
        np.testing.assert_allclose(alone[0], found[i], atol=1e-3)
    assert embedding(text=tf.constant([], tf.string))["embedding"].shape == (0, 64)


def test_it_says_that_it_is_in_int8(folder):
    metadata = json.loads((folder / METADATA_FILE).read_text("utf-8"))
    assert metadata["weights_dtype"] == "int8"
    assert metadata["tolerance"] == exporting.INT8_TOLERANCE
    assert "  weights_dtype      int8" in list(lines(describe(folder)))
    assert "| weights dtype | int8 |" in kt.saved_model.write_card(folder).read_text("utf-8")


def test_matrices_and_table_take_a_quarter_of_the_space(embed, folder):
    names = tf.train.list_variables(str(folder / "variables/variables"))
    reader = tf.train.load_checkpoint(str(folder / "variables/variables"))
    types = reader.get_variable_to_dtype_map()
    size = dict.fromkeys(types.values(), 0)
    for name, shape in names:
        size[types[name]] += int(np.prod(shape))
    layer = 64 * (3 * 64 + 64 + 2 * 256)
    assert size[tf.int8] == len(TOKENS) * 64 + layer
    columns = len(TOKENS) + 3 * 64 + 64 + 256 + 64  # a step for each
    assert size[tf.float32] == embed.model.count_params() - size[tf.int8] + columns


def test_models_without_wide_dense_layers_are_refused(tmp_path):
    inputs = keras.Input((1,), name="x")
    plain = keras.Model({"x": inputs}, keras.layers.Dense(1)(inputs), name="plain")
    with pytest.raises(ValueError, match="'plain'.*take 'bfloat16'.*'float32'"):
        Int8Form(plain)


@pytest.mark.one_case
@pytest.mark.parametrize("family", ["gpt", "llama"])
def test_a_model_decodes_step_by_step(family):
    """Each vector is rounded alone, so a step with a cache computes what a whole pass does."""
    module = getattr(kt.models, family)
    more = {"num_key_value_heads": 1, "intermediate_dim": 96} if family == "llama" else {}
    model = getattr(module, family)(vocabulary_size=90, max_sequence_length=16, **SIZES, **more)
    ids = np.random.default_rng(0).integers(0, 90, (2, 7)).astype("int32")
    form = Int8Form(model)

    def steps(token_ids):
        step, last, cache = model.start_decoding(token_ids[:, :5])
        found = []
        for index, next_ids in enumerate((last, token_ids[:, 5], token_ids[:, 6])):
            logits, cache = step(next_ids, tf.constant(index), cache)
            found.append(logits)
        return tf.stack(found, axis=1)

    with KERNELS.use(form.kernels):
        found = in_graph(steps, ids)
    zeros = {name: np.zeros_like(ids) for name in model.input}
    whole = tf.function(form, autograph=False)(**zeros | {"token_ids": ids})["logits"]
    np.testing.assert_allclose(found, whole[:, 4:], atol=1e-4 * np.abs(whole).max())
    expected = steps(tf.constant(ids)).numpy()
    difference = np.abs(found - expected).max()
    assert 1e-5 < difference < 0.05 * np.abs(expected).max()


def test_no_kernel_multiplies_numbers_of_four_bits():
    """If this fails, TensorFlow has learned it, and an int4 form is possible."""
    four = {types_pb2.DT_INT4, types_pb2.DT_UINT4}
    taking = {
        kernel.op
        for kernel in kernels.get_all_registered_kernels().kernel
        if kernel.device_type == "CPU"
        and any(four & {*each.allowed_values.list.type} for each in kernel.constraint)
    }
    assert taking == {"AssignVariableOp", "Fill", "Split", "SplitV"}


def test_other_dtypes_are_refused(embed, tmp_path):
    with pytest.raises(ValueError, match="'int4': use 'float32', 'bfloat16' or 'int8'"):
        kt.export(embed, tmp_path, weights_dtype="int4")
    assert not list(tmp_path.iterdir())


def test_answers_far_from_the_models_are_not_published(embed, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "INT8_ERROR", 1e-4)
    with pytest.raises(RuntimeError, match=r"'embedding':.*error.*int8.*0.0\d+.*answer's size"):
        kt.export(embed, tmp_path, examples=TEXTS, weights_dtype="int8")
    assert not list(tmp_path.iterdir())


def test_a_tensorflow_without_the_kernel_says_so(model, monkeypatch):
    def missing(*_, **__):
        raise tf.errors.InvalidArgumentError(None, None, "No OpKernel was registered")

    monkeypatch.setattr(int8, "int8_product", missing)
    with pytest.raises(RuntimeError, match="this one lacks: No OpKernel"):
        Int8Form(model)


def test_a_wrong_product_is_noticed(model, monkeypatch):
    monkeypatch.setattr(int8, "int8_product", lambda *_, **__: tf.zeros((4, 8)))
    with pytest.raises(RuntimeError, match=r"0.0 where [-\d.]+ is right.*'bfloat16'"):
        Int8Form(model)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["deberta", "distilbert", "mpnet", "roberta", "electra"])
def test_every_family_of_encoders(family):
    keras.utils.set_random_seed(0)
    module = getattr(kt.families, family)
    model = getattr(module, family)(vocabulary_size=50, **SIZES)
    mask = np.arange(7)[None] < [[3], [7]]
    given = {"token_ids": np.where(mask, 9, 0), "segment_ids": 0 * mask, "padding_mask": mask}
    given = {name: tf.constant(given[name]) for name in model.input}
    found = tf.function(Int8Form(model), autograph=False)(**given)
    for name, expected in ExportForm(model)(**given).items():
        assert np.abs(found[name] - expected).max() < 0.05 * np.abs(expected).max(), name


def translator():
    tokenizer = tiny.sentence_pieces()
    model = kt.families.transformer.transformer(
        vocabulary_size=tokenizer.vocabulary_size,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_heads=2,
        hidden_dim=64,
        intermediate_dim=64,
        max_sequence_length=16,
    )
    return kt.pipelines.Translator(model, tokenizer, num_beams=2, extra_length=5)


def text_generator():
    tokenizer = tiny.byte_pairs()
    model = kt.families.gpt.gpt(
        vocabulary_size=tokenizer.vocabulary_size, max_sequence_length=16, **SIZES
    )
    return kt.pipelines.TextGenerator(model, tokenizer, max_length=5, top_k=0)


@pytest.mark.slow
@pytest.mark.parametrize("make", [translator, text_generator])
def test_searches_are_exported_and_checked(make, tmp_path):
    keras.utils.set_random_seed(0)
    pipeline = make()
    folder = kt.export(pipeline, tmp_path, examples=["a small dog"], weights_dtype="int8")
    path = str(folder / "variables/variables")
    types = tf.train.load_checkpoint(path).get_variable_to_dtype_map()
    shapes = [shape for name, shape in tf.train.list_variables(path) if types[name] == tf.int8]
    wide = [w for w in pipeline.model.weights if len(w.shape) == 2 and "position" not in w.path]
    assert sorted(map(tuple, shapes)) == sorted(tuple(w.shape) for w in wide)
    assert kt.saved_model.predict(folder, {pipeline.text_names[0]: ["two dogs"]})


@pytest.mark.slow
def test_both_loaders_and_the_command_check_take_it(embed, tmp_path, capsys):
    """`export` loads it with both in a fresh process, and compares the answers."""
    folder = kt.export(embed, tmp_path, examples=TEXTS, weights_dtype="int8")
    assert cli.main(["check", str(folder)]) == 0
    assert "TF Serving" in capsys.readouterr().out
