"""Loading reads each tensor once, and variables take over the memory that it was read into."""

import collections
import gc

import keras
import ml_dtypes
import numpy as np
import pytest
import tiny

import keras_transformers as kt
from keras_transformers.collector import paused_collector
from keras_transformers.convert.containers import safetensors
from keras_transformers.convert.containers.arrays import Arrays, open_arrays
from keras_transformers.convert.memory import as_tensor, copied, new_array
from keras_transformers.convert.tensors import NamedTensor, assign
from keras_transformers.dependencies.private_api import without_values

LARGE = 600, 500  # more than a megabyte of float32


def numbers(*shape, dtype="float32"):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def owned(values):
    array = new_array(values.shape, values.dtype)
    array[...] = values
    return array


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (7,), (5, 3), LARGE, (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16], ids=str)
def test_arrays_become_tensors(shape, dtype):
    values = numbers(*shape).astype(dtype)
    for array in (values, owned(values), np.broadcast_to(values, values.shape), values.T):
        tensor = as_tensor(array, "float32")
        assert tensor.dtype == "float32"
        np.testing.assert_array_equal(tensor, array.astype("float32"))


@pytest.mark.parametrize("shape", [(7,), LARGE], ids=str)
def test_a_tensor_takes_over_the_memory_of_its_own_array(shape):
    array = owned(numbers(*shape))
    tensor = as_tensor(array, "float32")
    array.flat[0] = 9.0
    assert tensor.numpy().flat[0] == 9.0
    array.flags.writeable = False
    tensor = as_tensor(array, "float32")
    array = array.base
    assert tensor.numpy().flat[0] == 9.0


@pytest.mark.parametrize("offset", range(0, 64, 4))
def test_memory_that_tensorflow_cannot_take_over_is_copied(offset):
    """TensorFlow ends the process at the first op on a tensor that starts elsewhere."""
    memory = new_array((80,), np.uint8)
    array = memory[offset : offset + 16].view("float32")
    array[...] = np.arange(4)
    assert float(keras.ops.sum(as_tensor(array, "float32")[1:])) == 6.0


@pytest.mark.parametrize("shape", [(4, 3), (100, 37), LARGE], ids=str)
def test_transposed_matrices_are_copied(shape):
    values = numbers(*shape)
    copy = copied(values.T, np.float32)
    assert copy.flags.c_contiguous
    np.testing.assert_array_equal(copy, values.T)


def test_arrays_in_memory_stay_their_owners():
    values = owned(numbers(*LARGE))
    arrays = Arrays.of("memory", {"weight": values})
    for same in (arrays, arrays.renamed(str.upper).renamed(str.lower), arrays.without("other")):
        assert not same["weight"].flags.writeable
        assert not same.including("more", values).lent("more").flags.writeable
    with without_values():
        variable = keras.Variable(np.zeros, shape=LARGE, dtype="float32")
    assign([NamedTensor("weight", (variable,))], arrays)
    variable.assign_add(np.ones(LARGE))
    np.testing.assert_array_equal(values, numbers(*LARGE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("weights") / "model"
    return kt.save(tiny.pipeline("classification"), place, format="huggingface")


@pytest.fixture
def reads(monkeypatch):
    """Counts how often tensors are read."""
    counts = collections.Counter()
    read = safetensors._Stored.read

    def counted(stored, *memory):
        counts[stored.start] += 1
        return read(stored, *memory)

    monkeypatch.setattr(safetensors._Stored, "read", counted)
    return counts


def test_each_tensor_is_read_once(folder, reads, untraced):
    kt.load(folder)
    assert len(reads) > 20
    assert set(reads.values()) == {1}


def test_a_model_with_values_keeps_them_until_all_are_checked(folder, reads, untraced):
    """Its tensors are read twice, so that not all of them are in memory beside its values."""
    model = kt.load(folder).model
    reads.clear()
    arrays = open_arrays(folder / "model.safetensors")
    kt.convert.load_weights(model, folder)
    assert set(reads.values()) == {2}
    before = model.get_weights()
    damaged = np.array(arrays["classifier.weight"])
    damaged[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"classifier\.weight has 1 of"):
        assign_all(model, arrays.including("classifier.weight", damaged))
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def assign_all(model, arrays):
    names = kt.families.bert.FAMILY.names
    assign(names.tensors(model), names.today(arrays))


def test_what_is_lent_lasts_until_the_next(folder):
    arrays = open_arrays(folder / "model.safetensors")
    large = max(arrays, key=lambda name: np.prod(arrays.shapes[name]))
    lent = arrays.lent(large)
    np.testing.assert_array_equal(lent, arrays[large])
    assert not lent.flags.writeable
    again = arrays.lent("classifier.bias")
    assert np.shares_memory(lent, again)
    assert not np.shares_memory(arrays[large], arrays[large])


def test_values_that_are_large_are_not_infinite():
    with without_values():
        variable = keras.Variable(np.zeros, shape=(2,), dtype="float32")
    largest = np.finfo("float32").max
    assign([NamedTensor("bias", (variable,))], Arrays.of("file", {"bias": np.full(2, largest)}))
    np.testing.assert_array_equal(variable, [largest, largest])


def test_trained_variables_are_ordinary(folder, untraced):
    models = [kt.load(folder).model for _ in range(2)]
    before = models[1].get_weights()
    for variable in models[0].trainable_variables:
        variable.assign_sub(keras.ops.ones_like(variable))
    for old, kept, new in zip(
        before, models[1].get_weights(), models[0].get_weights(), strict=True
    ):
        np.testing.assert_array_equal(old, kept)
        np.testing.assert_array_equal(old - 1, new)


def test_the_collector_pauses():
    assert gc.isenabled()
    with paused_collector():
        assert not gc.isenabled()
        with paused_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), paused_collector():
        raise KeyError
    assert gc.isenabled()
