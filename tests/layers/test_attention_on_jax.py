"""On JAX attention is one operation unless its scores are needed, and on a GPU one kernel.

No GPU is needed: JAX translates a program for one anywhere, and its text names the kernels.
"""

import pytest

pytestmark = pytest.mark.slow

LAYER = """
from unittest import mock
import keras, numpy as np
from keras_transformers.layers import MultiHeadAttention
random = np.random.default_rng(0)
hidden = random.normal(size=(3, 6, 16)).astype("float32")
padding = np.arange(6) < np.array([6, 4, 0])[:, None]  # the last row sees nothing
bias = random.normal(size=(1, 2, 6, 6)).astype("float32")
calls = {
    "nothing": {},
    "padding": {"attention_mask": padding},
    "causal": {},
    "causal, padding": {"attention_mask": padding[:, ::-1]},
    "grouped": {"attention_mask": padding},
    "by query": {"attention_mask": padding[:, None, :] & padding[:, :, None]},
    "by head": {"attention_mask": random.random((1, 2, 6, 6)) < 0.5},
    "bias": {"attention_mask": padding, "attention_bias": bias},
}
options = {
    "causal": {"use_causal_mask": True},
    "causal, padding": {"use_causal_mask": True},
    "grouped": {"num_key_value_heads": 1},
}
def made(**options):
    layer = MultiHeadAttention(2, 16, kernel_initializer="random_normal", **options)
    layer.build((None, None, 16))
    return layer
"""


def test_the_result_is_that_of_the_scores_with_every_mask(on_jax):
    output = on_jax(f"""{LAYER}
for name, arguments in calls.items():
    layer = made(**options.get(name, {{}}))
    expected, _ = layer(hidden, return_attention_scores=True, **arguments)
    with mock.patch.object(keras.ops, "softmax", side_effect=AssertionError("not one operation")):
        found = layer(hidden, **arguments)
    np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)
    print(name)
dropping = made(attention_dropout=0.5)
one, other = (np.asarray(dropping(hidden, training=True)) for _ in range(2))
assert not np.allclose(one, other)
""")
    assert output.count("\n") == 8


def test_attention_in_a_window_is_that_of_the_mask(on_jax):
    output = on_jax("""
import jax, numpy as np
from keras_transformers.layers.attend import attend
from keras_transformers.layers.masks import Reach
from keras_transformers.layers.memory import bands
random = np.random.default_rng(0)
query, key, value = random.normal(size=(3, 2, 2, 150, 4)).astype("float32")
padding = np.arange(150) < np.array([150, 90])[:, None]
places = np.arange(150)
for causal in (False, True):
    reach = Reach(causal, 5)
    assert bands.shortest_in_bands(reach) < 150
    near = np.asarray(reach.mask(places, places)) & padding[:, None, None]
    found = jax.jit(lambda q, k, v: attend(q, k, v, mask=padding[:, None, None], reach=reach)[0])(
        query, key, value
    )
    expected = attend(query, key, value, mask=near)[0]
    real = near.any(-1)[:, 0]
    np.testing.assert_allclose(
        found.transpose(0, 2, 1, 3)[real], expected.transpose(0, 2, 1, 3)[real], atol=1e-6
    )
    print(causal)
""")
    assert output.count("\n") == 2


def test_a_gpu_runs_the_flash_kernel_with_every_mask(on_jax):
    """Also backward. cuDNN refuses some shapes of masks; Keras then logs it and goes without."""
    output = on_jax(f"""{LAYER}
import re, jax
from jax._src.cudnn import fused_attention_stablehlo as cudnn
def kernels(layer, training=False, **arguments):
    values = [[v.value for v in group] for group in
              (layer.trainable_variables, layer.non_trainable_variables)]
    def loss(trainable):
        outputs, _ = layer.stateless_call(
            trainable, values[1], hidden, training=training, **arguments)
        return keras.ops.sum(outputs)
    names = re.compile(r"__cudnn\\$fmha\\w*Softmax(?:Backward)?")
    allowed = [jax.export.DisabledSafetyCheck.custom_call(f"__cudnn$fmha{{bias}}Softmax{{back}}")
               for bias in ("", "ScaleBias") for back in ("", "Backward")]
    step = jax.export.export(jax.jit(jax.grad(loss)), platforms=["cuda"], disabled_checks=allowed)
    return sorted(names.findall(step(values[0]).mlir_module()))
with (mock.patch.object(cudnn, "check_cudnn_version", return_value=91000),
      mock.patch.object(cudnn, "check_compute_capability", return_value=True),
      mock.patch.object(keras.distribution, "list_devices", return_value=["gpu:0"])):
    for name, arguments in calls.items():
        layer = made(dtype="mixed_bfloat16", attention_dropout=0.1, **options.get(name, {{}}))
        arguments = {{key: keras.ops.convert_to_tensor(x) for key, x in arguments.items()}}
        found = kernels(layer, **arguments)
        forward, backward = found
        assert backward == forward + "Backward", (name, found)
    assert kernels(layer, training=True) == []  # the kernel has no dropout
    assert kernels(made(dtype="float32")) == []
print("done")
""")
    assert output == "done\n"
