import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import in_float64, same_but_for_rounding
from tensorflow.python.util import _pywrap_util_port

import keras_transformers as kt
from keras_transformers.saved_model.forms.norms import fused_norms, layer_norm, short_norm

pytestmark = pytest.mark.kernels


def norm(epsilon=1e-12, features=8, **options):
    layer = keras.layers.LayerNormalization(epsilon=epsilon, **options)
    layer.build((None, features))
    rng = np.random.default_rng(0)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    return layer


@pytest.mark.parametrize("shape", [(5, 8), (1, 8), (0, 8), (2, 3, 8)])
@pytest.mark.parametrize("epsilon", [1e-12, 1e-3])
@pytest.mark.parametrize("kernel", [layer_norm, short_norm])
def test_a_kernel_has_the_layers_numbers(kernel, shape, epsilon):
    layer = norm(epsilon)
    inputs = tf.constant(np.random.default_rng(1).normal(3.0, 2.0, shape), tf.float32)
    found = tf.function(kernel, autograph=False)(layer, inputs)
    same_but_for_rounding(found, layer(inputs), in_float64(layer)(inputs))


def test_only_plain_layer_norms_in_float32_are_fused():
    others = [
        norm(center=False),
        norm(scale=False),
        norm(dtype="mixed_bfloat16"),
        keras.layers.RMSNormalization(),
        keras.layers.LayerNormalization(axis=(1, 2)),
    ]
    plain = norm()
    assert list(fused_norms([*others, plain])) == [plain]


needs_onednn = pytest.mark.skipif(
    not _pywrap_util_port.IsMklEnabled(), reason="this TensorFlow has no oneDNN kernels"
)


@needs_onednn
def test_tensorflow_puts_its_kernel_in_place():
    v1 = tf.compat.v1
    layer = norm()
    run = tf.function(layer_norm, autograph=False)
    weights = [w.numpy() for w in layer.weights]
    with v1.Graph().as_default(), v1.Session() as session:
        rows = v1.placeholder(tf.float32, (None, 8))
        gain, shift = (v1.get_variable(f"v{i}", initializer=w) for i, w in enumerate(weights))
        session.run(v1.global_variables_initializer())
        stand_in = type(
            "Norm", (), {"gamma": gain, "beta": shift, "epsilon": 1e-12, "name": "norm"}
        )()
        outputs = tf.identity(run.python_function(stand_in, tf.nn.relu(rows)))
        made = operations_that_run(session, outputs, {rows: np.ones((3, 8))})
    assert "_MklLayerNorm" in made
    assert not [op for op in made if "FusedBatchNorm" in op]


@needs_onednn
def test_every_norm_of_an_exports_blocks_is_the_kernel(tmp_path):
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 64}
    model = kt.families.bert.bert(vocabulary_size=11, max_sequence_length=64, **sizes)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
    embed = kt.pipelines.Embedder(model, kt.tokenizers.WordPieceTokenizer(words))
    export = kt.export(embed, tmp_path / "embedder", check=False)
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, ["serve"], str(export)).signature_def["tokens"]
        outputs = [tensor.name for tensor in loaded.outputs.values()]
        ids = np.full((1, 60), 7, "int32")  # more than a few tokens
        batch = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids > 0}
        feeds = {loaded.inputs[name].name: batch[name] for name in loaded.inputs}
        made = operations_that_run(session, outputs, feeds)
    assert made.count("_MklLayerNorm") == 2 * sizes["num_layers"]
    assert not [op for op in made if "FusedBatchNorm" in op]


def operations_that_run(session, outputs, feeds):
    """Returns the types of all nodes after TensorFlow's rewrites."""
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    found = tf.compat.v1.RunMetadata()
    session.run(outputs, feeds, options=options, run_metadata=found)
    return [node.op for graph in found.partition_graphs for node in graph.node]
