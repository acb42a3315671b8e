"""Arrays as JSON values, and back."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformers.saved_model.examples import decode_array, encode_array


@given(st.lists(st.binary() | st.text().map(str.encode)))
def test_strings_of_any_bytes_survive_json(values):
    array = np.array(values, dtype=object)
    restored = decode_array(json.loads(json.dumps(encode_array(array))))
    assert restored.dtype == object
    assert restored.tolist() == values


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.1, 1e-30], [3.0, -7.25]], np.float32),
        np.array([[True, False]]),
        np.array([], np.int32).reshape(0, 4),
        np.array(2**40, np.int64),
        np.array([[b"a", b"\xff"]], dtype=object),
    ],
)
def test_arrays_survive_json(array):
    restored = decode_array(json.loads(json.dumps(encode_array(array))))
    assert restored.shape == array.shape
    assert restored.dtype == array.dtype
    assert restored.tolist() == array.tolist()
