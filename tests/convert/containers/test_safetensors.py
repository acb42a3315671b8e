"""Floats of 8 bits in safetensors, and the kinds of numbers that it may have."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
import tiny

import keras_transformers as kt
from keras_transformers.convert.containers.arrays import open_arrays

KINDS = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}


def write(path, kind="F8_E4M3", **arrays):
    """Writes arrays, those of 8 bits as this kind."""
    header, data = {}, b""
    for name, array in arrays.items():
        header[name] = {
            "dtype": kind if array.dtype.itemsize == 1 else "F32",
            "shape": array.shape,
            "data_offsets": [len(data), len(data) + array.nbytes],
        }
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_floats_of_8_bits_are_read(kind, tmp_path):
    values = np.array([[0.5, -1.75], [448, 0]]).astype(KINDS[kind])
    arrays = open_arrays(write(tmp_path / "model.safetensors", kind, weight=values))
    assert arrays["weight"].dtype == KINDS[kind]
    np.testing.assert_array_equal(arrays["weight"], values)


def test_a_model_of_8_bits_has_the_rounded_weights(tmp_path):
    kt.save(tiny.pipeline("classification"), tmp_path / "model", format="huggingface")
    path = tmp_path / "model" / "model.safetensors"
    stored = dict(open_arrays(path))
    kind = KINDS["F8_E4M3"]
    write(path, **{name: array.astype(kind) for name, array in stored.items()})
    found = kt.load(tmp_path / "model").model.get_layer("logits")
    wanted = stored["classifier.weight"].astype(kind).astype("float32").T
    np.testing.assert_array_equal(found.kernel, wanted)


@pytest.mark.parametrize("scale", ["weight_scale", "weight_scale_inv", "scale_weight"])
def test_scaled_floats_of_8_bits_are_refused(scale, tmp_path):
    arrays = {"query.weight": np.ones((2, 2), KINDS["F8_E4M3"])}
    arrays |= {f"query.{scale}": np.float32([2])}
    path = write(tmp_path / "model.safetensors", **arrays)
    message = (
        rf"model\.safetensors: query\.weight .*query\.{scale} scales.*get the model in bfloat16"
    )
    with pytest.raises(ValueError, match=message):
        open_arrays(path)


def test_a_scale_of_another_module_is_a_weight(tmp_path):
    arrays = {"query.weight": np.ones((2, 2), KINDS["F8_E4M3"]), "scale": np.float32([2])}
    assert set(open_arrays(write(tmp_path / "model.safetensors", **arrays))) == set(arrays)


def test_other_kinds_are_named(tmp_path):
    path = write(tmp_path / "model.safetensors", "F8_E8M0", weight=np.ones(2, "u1"))
    with pytest.raises(ValueError, match=r"model\.safetensors: weight is .*F8_E8M0.* F8_E4M3"):
        open_arrays(path)
