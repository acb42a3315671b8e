import keras
import numpy as np
import pytest

from keras_transformers.layers import RotaryPositions, RotaryScaling

WIDTH = 32
SCALINGS = {
    "linear": (
        RotaryScaling(kind="linear", factor=4.0),
        {"rope_type": "linear", "factor": 4.0},
    ),
    "dynamic": (
        RotaryScaling(kind="dynamic", factor=4.0, original_length=16),
        {"rope_type": "dynamic", "factor": 4.0},
    ),
    "llama3": (
        RotaryScaling(kind="llama3", factor=8.0, original_length=16),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "yarn": (
        RotaryScaling(kind="yarn", factor=4.0, original_length=16),
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    ),
    "yarn, other ramp": (
        RotaryScaling(
            kind="yarn",
            factor=4.0,
            original_length=64,
            beta_fast=8.0,
            beta_slow=2.0,
            truncate=False,
            attention_factor=1.5,
        ),
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 8.0,
            "beta_slow": 2.0,
            "truncate": False,
            "attention_factor": 1.5,
        },
    ),
}
HEADS = np.random.default_rng(0).normal(size=(2, 3, 9, WIDTH)).astype("float32")


@pytest.mark.reference
@pytest.mark.parametrize("length", [9, 40])
@pytest.mark.parametrize("name", SCALINGS)
def test_scalings_equal_those_of_transformers(name, length):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    scaling, theirs = SCALINGS[name]
    config = transformers.LlamaConfig(
        hidden_size=3 * WIDTH,
        num_attention_heads=3,
        head_dim=WIDTH,
        max_position_embeddings=16,
        rope_parameters={"rope_theta": 10_000.0, **theirs},
    )
    positions = np.arange(length - 9, length)[None]
    heads = torch.tensor(HEADS)
    cos, sin = LlamaRotaryEmbedding(config)(heads, torch.tensor(positions))
    expected, _ = apply_rotary_pos_emb(heads, heads, cos, sin)
    found = RotaryPositions(scaling=scaling)(HEADS, positions)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", SCALINGS)
def test_a_scaling_is_saved_and_slows_what_is_far(name):
    layer = RotaryPositions(100.0, scaling=SCALINGS[name][0])
    again = RotaryPositions.from_config(layer.get_config())
    positions = np.arange(50, 59)[None]
    turned = np.asarray(layer(HEADS, positions))
    np.testing.assert_array_equal(again(HEADS, positions), turned)
    assert np.abs(turned - RotaryPositions(100.0)(HEADS, positions)).max() > 0.1


def test_angles_are_exact_in_half_precision():
    layer = RotaryPositions(dtype="mixed_bfloat16")
    far = np.array([[100_001]])
    ones = keras.ops.ones((1, 1, 1, 2), "bfloat16")
    expected = [np.cos(100_001) - np.sin(100_001), np.cos(100_001) + np.sin(100_001)]
    found = keras.ops.convert_to_numpy(keras.ops.cast(layer(ones, far), "float32"))
    np.testing.assert_allclose(found[0, 0, 0], expected, atol=2e-2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "ntk", "factor": 2.0}, "kind='ntk' .*'linear', 'dynamic'"),
        ({"kind": "linear", "factor": 0.5}, "factor=0.5"),
        ({"kind": "linear", "factor": float("nan")}, "factor=nan"),
        ({"kind": "yarn", "factor": 2.0}, "original_length=None: 'yarn' needs"),
        (
            {"kind": "llama3", "factor": 2.0, "original_length": 9, "low_frequency_factor": 5.0},
            "low_frequency_factor=5.0",
        ),
        ({"kind": "yarn", "factor": 2.0, "original_length": 9, "beta_slow": 0.0}, "beta_slow=0.0"),
    ],
)
def test_scalings_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        RotaryScaling(**given)
