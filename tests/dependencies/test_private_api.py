"""What we use of other libraries that is private is still there, and used in one file alone."""

import ast
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.dependencies import private_api
from keras_transformers.dependencies.text_library import tensorflow_text
from keras_transformers.tokenizers import SentencePieceTokenizer

PACKAGE = Path(private_api.__file__).parents[1]
# Names with underscores that are documented: of named tuples, `os`, IPython and TensorFlow.
DOCUMENTED = {
    *("_asdict", "_fields", "_replace", "_exit", "_repr_html_"),
    *("_create_resource", "_initialize"),  # tf.saved_model.experimental.TrackableResource
}
PRIVATE_MODULE = re.compile(
    r"(keras|keras_hub|keras_nlp|tensorflow|tensorflow_text|tf)\.(src|python)\b[\w.]*"
)


class ReachedError(Exception):
    """Raised by the stand-in, to show that Keras called it."""


def reached(*args, **kwargs):
    raise ReachedError


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="dense")])
    model.compile("sgd", "mse", run_eagerly=True)
    return model


def fit(model, **options):
    return model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0, **options)


def test_after_build():
    class Noting(private_api.AfterBuild):
        def build(self, input_shape):
            self.kernel = self.add_weight(shape=(2,))

        def after_build(self):
            self.num_found = len(self.weights)

    layer = Noting()
    layer.build((None, 2))
    assert layer.num_found == 1


def test_reads_first_item():
    sequence = keras.Input((3, 4))
    items = {"first": sequence[:, 0], "second": sequence[:, 1], "rows": sequence[:, :1]}
    model = keras.Model(sequence, {**items, "double": sequence * 2})
    for each in (model, type(model).from_config(model.get_config())):
        operations = [call[0] for call in private_api.calls(each)]
        assert [private_api.reads_first_item(one) for one in operations].count(True) == 1
    assert private_api.reads_first_item(items["first"]._keras_history.operation)


def test_lower_is_better():
    assert private_api.lower_is_better(keras.metrics.MeanSquaredError())
    assert not private_api.lower_is_better(keras.metrics.SparseCategoricalAccuracy())


def test_variables_without_values():
    """They have shapes, take values one by one, and no scope of Keras' gives them others."""
    with private_api.without_values():
        given = keras.Input((2,))
        hidden = keras.layers.Dense(10**7, name="first")(given)  # 80 MB that are never made
        model = keras.Model(given, keras.layers.Dense(3, name="second")(hidden[:, :4]))
    first, second = model.get_layer("first"), model.get_layer("second")
    assert tuple(first.kernel.shape) == (2, 10**7)
    keras.layers.Dense(2)(keras.Input((3,)))  # Keras traces this in a scope
    assert not private_api.has_value(first.kernel)
    values = np.arange(12, dtype="float32").reshape(4, 3)
    private_api.set_value(second.kernel, values)
    assert private_api.has_value(second.kernel)
    np.testing.assert_array_equal(second.kernel, values)
    private_api.set_value(second.kernel, values + 1)
    np.testing.assert_array_equal(second.kernel, values + 1)
    private_api.give_values(keras.Model(second.input, second.output))
    np.testing.assert_array_equal(second.bias, np.zeros(3))
    np.testing.assert_array_equal(second.kernel, values + 1)
    assert not private_api.has_value(first.kernel)


def test_inner_layers(model):
    assert [layer.name for layer in private_api.inner_layers(model)][-1] == "dense"


def test_calls():
    given = keras.Input((2,))
    made = keras.layers.Dense(1, name="dense")(given)
    ((_, no_inputs, _), (layer, (taken,), (output,))) = private_api.calls(keras.Model(given, made))
    assert (list(no_inputs), layer.name) == ([], "dense")
    assert taken is given
    assert output is made


def test_own_strategy():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        inside = keras.Sequential([keras.Input((2,))])
    outside = keras.Sequential([keras.Input((2,))])
    assert private_api.own_strategy(inside) is strategy
    assert private_api.own_strategy(outside) is None


def test_compile_loss(model):
    loss = private_api.compile_loss(model)
    assert not loss.built
    loss.build(tf.ones((2, 1)), model.outputs[0])
    assert loss.built
    assert float(loss(tf.ones((2, 1)), tf.zeros((2, 1)))) == 1.0


def test_set_symbolic_build(model):
    assert callable(model._maybe_symbolic_build)
    private_api.set_symbolic_build(model, reached)
    with pytest.raises(ReachedError):
        fit(model)


def test_symbolic_build(model):
    specs = (tf.TensorSpec((None, 2)), tf.TensorSpec((None, 1)))
    private_api.symbolic_build(model, specs)
    assert model.optimizer.built
    assert private_api.compile_loss(model).built


def test_replica_spec():
    from tensorflow.python.distribute.values import PerReplicaSpec

    first, second = tf.TensorSpec((2,)), tf.TensorSpec((1,))
    assert private_api.replica_spec(PerReplicaSpec(first, second)) is first
    assert private_api.replica_spec(second) is second


def test_seed_generators():
    once, twice = keras.layers.Dropout(0.5), keras.layers.Dropout(0.5)
    inputs = keras.Input((2,))
    model = keras.Model(inputs, twice(keras.layers.Dense(2)(twice(once(inputs)))))
    generators = private_api.seed_generators(model)
    assert generators == [once.seed_generator, twice.seed_generator]
    before = generators[0].state.numpy().tolist()
    model(np.ones((1, 2)), training=True)
    assert generators[0].state.numpy().tolist() != before


def test_set_initial_epoch(model):
    class Skip(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            private_api.set_initial_epoch(self.model, 2)

    assert fit(model, epochs=3, callbacks=[Skip()]).epoch == [2]
    private_api.set_initial_epoch(model, None)
    assert fit(model, epochs=3).epoch == [0, 1, 2]


def test_first_outputs():
    layer = keras.layers.Dense(3)
    first = layer(keras.Input((2,)))
    layer(keras.Input((2,)))
    assert private_api.first_outputs(layer)[0] is first


def test_inputs_of():
    first, second = keras.layers.Dense(3), keras.layers.Dense(3)
    tensor = keras.Input((2,))
    add = keras.layers.Add()
    add([first(tensor), second(tensor)])
    assert private_api.inputs_of(add) == [first, second]


def test_run_through_graph(model):
    called = []

    def operation(layer):
        called.append(layer.name)
        return lambda inputs: inputs + 1

    functional = keras.Model(model.inputs, model.outputs)
    assert float(private_api.run_through_graph(functional, [1.0], operation)[0]) == 2.0
    assert called == ["dense"]


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "Lamb"])
def test_moments(kind):
    variables = [keras.Variable([1.0]), keras.Variable([1.0])]
    optimizer = getattr(keras.optimizers, kind)(beta_1=0.5, beta_2=0.75)
    optimizer.apply([tf.constant([2.0]), tf.constant([4.0])], variables)
    m, v = private_api.moments(optimizer, variables[1])
    assert (float(m[0]), float(v[0])) == (2.0, 4.0)


def test_decays_weight():
    decayed, spared = keras.Variable([1.0], name="kernel"), keras.Variable([1.0], name="bias")
    optimizer = keras.optimizers.AdamW()
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer.build([decayed, spared])
    assert private_api.decays_weight(optimizer, decayed)
    assert not private_api.decays_weight(optimizer, spared)


def test_no_separate_weight_decay():
    class Spared(private_api.NoSeparateWeightDecay, keras.optimizers.AdamW):
        pass

    for kind, expected in ((keras.optimizers.AdamW, 0.75), (Spared, 1.0)):
        variable = keras.Variable([1.0])
        kind(learning_rate=0.5, weight_decay=0.5).apply([tf.zeros(1)], [variable])
        assert float(variable[0]) == expected


def test_skip_gradient_sum():
    optimizer = keras.optimizers.SGD()
    assert callable(optimizer._all_reduce_sum_gradients)
    assert not private_api.skips_gradient_sum(optimizer)
    private_api.skip_gradient_sum(optimizer)
    assert private_api.skips_gradient_sum(optimizer)
    optimizer._all_reduce_sum_gradients = reached
    with pytest.raises(ReachedError):
        optimizer.apply_gradients([(tf.ones(1), keras.Variable([1.0]))])


def test_set_gradient_clipping():
    optimizer = keras.optimizers.SGD(clipvalue=1.0)
    assert float(private_api.gradient_clipping(optimizer)([tf.constant(3.0)])[0]) == 1.0
    private_api.set_gradient_clipping(optimizer, reached)
    with pytest.raises(ReachedError):
        optimizer.apply([tf.ones(1)], [keras.Variable([1.0])])


def test_set_has_averages():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(use_ema=True), "mse", run_eagerly=True)
    swap = keras.callbacks.SwapEMAWeights()
    model.fit(np.ones((1, 1)), np.zeros((1, 1)), verbose=0)
    model.set_weights([np.full((1, 1), 9.0)])
    swap.set_model(model)
    assert private_api.has_averages(swap) is False
    swap.on_test_begin()
    assert private_api.has_averages(swap) is True
    average = model.get_weights()
    assert average != [9.0]
    private_api.set_has_averages(swap, False)
    swap.on_test_end()
    assert model.get_weights() == average, "it was told that there is nothing to put back"


def test_set_first_batch(model, tmp_path):
    tensorboard = keras.callbacks.TensorBoard(str(tmp_path), profile_batch=(2, 4))
    assert private_api.profiled_batches(tensorboard) == (2, 4)
    tensorboard.set_model(model)
    tensorboard.on_train_begin()
    assert tensorboard._global_train_batch == 0
    private_api.set_first_batch(tensorboard, 7, (2, 4))
    assert private_api.profiled_batches(tensorboard) == (9, 11)
    tensorboard.on_train_batch_begin(0)
    assert tensorboard._global_train_batch == 8
    tensorboard.on_train_end()


@pytest.mark.parametrize("transpose", [False, True])
def test_int8_product(transpose):
    rows, matrix = (
        np.array([[127, -3], [0, 5]], np.int8),
        np.array([[4, 0, -127], [1, 2, 3]], np.int8),
    )
    largest = np.array([1.0, 2.0, 0.5], np.float32)

    @tf.function(autograph=False)
    def product():
        given = tf.constant(matrix.T if transpose else matrix)
        return private_api.int8_product(
            tf.constant(rows), given, tf.constant(largest), transpose=transpose
        )

    expected = (rows / 127.0) @ (matrix * largest / 127.0)
    np.testing.assert_allclose(product().numpy(), expected, rtol=1e-5, atol=1e-7)
    assert product().shape == (2, 3)


def test_leave_out_of_checkpoints(tmp_path):
    module = tf.Module()
    module.saved, module.left_out = tf.Variable([1.0]), tf.Variable([2.0])
    private_api.leave_out_of_checkpoints(module.left_out)
    tf.saved_model.save(module, str(tmp_path))
    stored = dict(tf.train.list_variables(str(tmp_path / "variables" / "variables")))
    assert [name for name in stored if "VARIABLE_VALUE" in name] == [
        "saved/.ATTRIBUTES/VARIABLE_VALUE"
    ]
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.saved.numpy() == [1.0]
    assert not loaded.left_out.is_initialized()


@pytest.mark.parametrize("splits", [True, False])
def test_wordpiece_model(splits):
    if (library := tensorflow_text()) is None:
        pytest.skip("needs tensorflow-text: see setup.cfg")
    tokens = ["[UNK]", "a", "##b", "c"]
    model = private_api.wordpiece_model(
        library, tokens, splits=splits, longest_word=3, unknown_token="[UNK]"
    )
    buffer = tf.constant(np.frombuffer(model, np.uint8))
    ours, theirs = (
        library.FastWordpieceTokenizer(**options)
        for options in (
            {"model_buffer": buffer},
            {
                "vocab": tokens,
                "max_bytes_per_word": 3,
                "unknown_token": "[UNK]",
                "no_pretokenization": not splits,
            },
        )
    )
    for text in ("ab", "abb", "abbb", "a c", "cab"):
        assert ours.tokenize([text]).to_list() == theirs.tokenize([text]).to_list()


def test_name_sentencepiece_model(tmp_path):
    if (library := tensorflow_text()) is None:
        pytest.skip("needs tensorflow-text: see setup.cfg")
    (tmp_path / "text").write_text("a b c\n" * 20)
    SentencePieceTokenizer.train([tmp_path / "text"], tmp_path / "a.model", vocabulary_size=265)
    model = (tmp_path / "a.model").read_bytes()
    tokenizers = [library.SentencepieceTokenizer(model) for _ in range(2)]
    private_api.name_sentencepiece_model(tokenizers[0], model, "named")
    expected = tokenizers[1].tokenize("a b").numpy().tolist()
    keras.utils.set_random_seed(0)
    assert tokenizers[0].tokenize("a b").numpy().tolist() == expected
    with pytest.raises(tf.errors.NotFoundError, match="does not exist"):
        tokenizers[1].tokenize("a b")  # once this works, remove the entry


def test_op_definition():
    defaults = {a.name: a.default_value for a in private_api.op_definition("MatMul").attr}
    assert (defaults["transpose_a"].b, "T" in defaults) == (False, True)
    assert private_api.op_definition("NoSuchOp") is None


def test_with_constants():
    weight = tf.Variable([3.0])
    product = tf.function(lambda given: given * weight, input_signature=[tf.TensorSpec((1,))])
    frozen = private_api.with_constants(product.get_concrete_function())
    weight.assign([5.0])
    assert not frozen.variables
    assert float(frozen(tf.constant([2.0]))[0][0]) == 6.0


def test_stored_kernel():
    dense = keras.layers.Dense(2)
    dense.build((None, 3))
    dense.enable_lora(1)
    dense.lora_kernel_b.assign(np.ones((1, 2)))
    assert private_api.stored_kernel(dense).shape == (3, 2)
    np.testing.assert_allclose(
        dense.kernel - private_api.stored_kernel(dense),
        dense.lora_kernel_a @ dense.lora_kernel_b,
        rtol=1e-5,
    )


def test_call_arguments():
    query, value = keras.Input((2, 4)), keras.Input((3, 4))
    attention = keras.layers.MultiHeadAttention(1, 2)
    model = keras.Model([query, value], attention(query, value, use_causal_mask=True))
    ((arguments, named),) = (
        (arguments, named)
        for layer, arguments, named in private_api.call_arguments(model)
        if layer is attention
    )
    assert [each is given for each, given in zip(arguments, (query, value), strict=True)] == [
        True,
        True,
    ]
    assert named["use_causal_mask"] is True


# What holds that private_api.py is the one place. Each rule lists its breaches in some files.


@pytest.fixture(scope="module")
def files():
    """The programs of the package and the recipes, without private_api.py."""
    paths = (*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "recipes").rglob("*.py"))
    return {
        path.relative_to(PACKAGE.parent).as_posix(): ast.parse(path.read_bytes())
        for path in paths
        if path.name != "private_api.py"
    }


def is_private(name):
    return name[0] == "_" != name[1:2]


def private_attributes(files):
    """Lists private attributes that are read or set, but not defined in these files."""
    ours, used = set(DOCUMENTED), set()
    for path, tree in files.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                ours.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                ours.add(node.id)
            elif isinstance(node, ast.Attribute) and is_private(node.attr):
                owner = ast.unparse(node.value)
                if isinstance(node.ctx, ast.Store) and owner == "self":
                    ours.add(node.attr)
                else:
                    used.add((f"{path}: {owner}", node.attr))
    return {f"{place}.{name}" for place, name in used if name not in ours}


def private_overrides(files):
    """Lists private methods that these files never call: a library's base class does."""
    methods, called = set(), set(DOCUMENTED)
    for path, tree in files.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
                if "getattr(self, f'_{" not in ast.unparse(node):  # it may call any of them
                    methods |= {(f"{path}: {node.name}", name) for name in names}
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) != "super()":
                called.add(node.attr)
    return {f"{place}.{name}" for place, name in methods if is_private(name) and name not in called}


def private_imports(files):
    """Lists imported modules and names that no public name leads to, also as texts."""
    found = set()
    for path, tree in files.items():
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{each.name}" for each in node.names]
            elif isinstance(node, ast.Attribute) and node.attr in ("python", "src"):
                names = [ast.unparse(node)]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = [node.value] if PRIVATE_MODULE.fullmatch(node.value) else []
            found |= {
                f"{path}: {name}"
                for name in names
                if PRIVATE_MODULE.fullmatch(name)
                or (not name.startswith("keras_transformers.") and re.search(r"\._[^_.]", name))
            }
    return found


BREAKING = [
    (private_attributes, "def f(model):\n    return model._nodes\n", "model._nodes"),
    (
        private_overrides,
        "class R(Reader):\n    def _get(self):\n        return super()._get()\n",
        "R._get",
    ),
    (private_imports, "import keras.src.ops\n", "keras.src.ops"),
    (
        private_imports,
        "def f():\n    from tensorflow.python.framework import kernels\n",
        "tensorflow.python.framework.kernels",
    ),
    (private_imports, "from h5py import _hl\n", "h5py._hl"),
    (private_imports, "module = tf.python\n", "tf.python"),
    (private_imports, "import_module('keras_hub.src.models')\n", "keras_hub.src.models"),
]


@pytest.mark.parametrize("rule", [private_attributes, private_overrides, private_imports])
def test_no_other_file_uses_what_is_private(rule, files):
    breaches = rule(files)
    assert not breaches, (
        "give each a function in keras_transformers/dependencies/private_api.py and a test here"
    )


@pytest.mark.parametrize(("rule", "text", "breach"), BREAKING)
def test_a_file_that_uses_what_is_private_is_caught(rule, text, breach):
    assert rule({"one.py": ast.parse(text)}) == {f"one.py: {breach}"}


def test_every_function_has_a_test():
    tested = Path(__file__).read_text("utf-8")
    for node in ast.parse(Path(private_api.__file__).read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            assert f"private_api.{node.name}" in tested, node.name
