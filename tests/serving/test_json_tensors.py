"""The tests of TF Serving's util/json_tensor_test.cc, applied to our conversion."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.serving.protocol import json_tensors
from keras_transformers.serving.protocol.errors import RequestError
from keras_transformers.serving.protocol.json_tensors import read_inputs, write_outputs
from keras_transformers.serving.protocol.json_values import parse, shorten
from keras_transformers.serving.protocol.signatures import SignatureInfo, TensorInfo


def signature(**dtypes):
    inputs = {name: TensorInfo(f"{name}:0", dtype, None) for name, dtype in dtypes.items()}
    return SignatureInfo("serving_default", "tensorflow/serving/predict", inputs, {})


def read(text, **dtypes):
    return read_inputs(parse(text.encode()), signature(**dtypes))


@pytest.mark.parametrize(
    ("dtype", "text", "expected"),
    [
        (tf.int32, "[[1,2],[3,4],[5,6]]", [[1, 2], [3, 4], [5, 6]]),
        (tf.float32, "[1, 2.0, 3, 5.003, 0.007, 0.0]", [1, 2, 3, 5.003, 0.007, 0]),
        (tf.float64, "[1.0, 2, 0.662, 1e300]", [1, 2, 0.662, 1e300]),
        (tf.float64, "[NaN, Infinity, -Infinity]", [np.nan, np.inf, -np.inf]),
        (tf.float32, "[NaN, Infinity, -Infinity]", [np.nan, np.inf, -np.inf]),
        (tf.string, '[{"b64": "aGVsbG8="}, {"b64": "d29ybGQ"}]', [b"hello", b"world"]),
        (tf.string, '[[{"b64": "aGVsbG8="}], ["\u00fc"]]', [[b"hello"], ["ü".encode()]]),
        (tf.bool, "[true, false]", [True, False]),
        (tf.uint8, "[0, 255]", [0, 255]),
        (tf.uint64, "[18446744073709551615]", [2**64 - 1]),
        (tf.int32, "[[], []]", np.zeros((2, 0))),
    ],
)
@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_one_input(dtype, text, expected, key):
    arrays, format = read(f'{{"{key}": {text}}}', default=dtype)
    array = arrays["default"]
    assert format == {"instances": "row", "inputs": "column"}[key]
    assert array.dtype == (object if dtype == tf.string else dtype.as_numpy_dtype)
    np.testing.assert_array_equal(array, np.array(expected, array.dtype))


def test_one_named_input_of_base64():
    text = '{"instances": [{"default": [[{"b64": "aGVsbG8="}], [{"b64": "d29ybGQ="}]]}]}'
    arrays, _ = read(text, default=tf.string)
    assert arrays["default"].tolist() == [[[b"hello"], [b"world"]]]


def test_a_scalar_in_a_column():
    arrays, _ = read('{"inputs": {"a": {"b64": "aGVsbG8="}, "b": 3}}', a=tf.string, b=tf.int64)
    assert (arrays["a"].shape, arrays["a"][()], arrays["b"].shape) == ((), b"hello", ())


def test_several_inputs():
    text = """{"instances": [
        {"i": [[1,2],[3,4],[5,6]], "s": ["foo", "bar"], "f": [1.0, NaN]},
        {"i": [[7,8],[9,0],[1,2]], "s": ["baz", "bat"], "f": [2.0, Infinity]}]}"""
    arrays, _ = read(text, i=tf.int32, s=tf.string, f=tf.float32)
    assert arrays["i"].tolist() == [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 0], [1, 2]]]
    assert arrays["s"].tolist() == [[b"foo", b"bar"], [b"baz", b"bat"]]
    np.testing.assert_array_equal(arrays["f"], np.array([[1, np.nan], [2, np.inf]], "float32"))


@pytest.mark.parametrize(
    ("text", "dtype", "message"),
    [
        ("[[1,2],[3,4],[5,6,7]]", tf.int32, "Expecting tensor size: 2 but got: 3"),
        ("[[1,2],[3,4],[[5,6]]]", tf.int32, r"Expecting shape \[2\] but got: \[1,2\]"),
        ("[1, [1]]", tf.int32, r"Expecting shape \[\] but got: \[1\]"),
        ('[[1,2],["a", "b"]]', tf.int32, "not of expected type: int32"),
        ("[[[1],[2,3]]]", tf.int32, "Encountered list at unexpected size: 2 at level: 1"),
        ("[[1,[2]]]", tf.int32, "Encountered list at unexpected level: 1"),
        ("[[[1],2]]", tf.int32, "found at incorrect level"),
        ("[1.0]", tf.int32, "Type: Number is not of expected type: int32"),
        ("[2147483648]", tf.int32, "not of expected type: int32"),
        ("[256]", tf.uint8, "not of expected type: uint8"),
        ("[-1]", tf.uint32, "not of expected type: uint32"),
        ("[1]", tf.bool, "Type: Number is not of expected type: bool"),
        (f"[{2.0**1023}]", tf.float32, "to float without loss of precision"),
        ("[16777217]", tf.float32, "without loss of precision"),
        ("[9007199254740993]", tf.float64, "to double without loss of precision"),
        ('[{"b64": "!"}]', tf.string, "Unable to base64 decode"),
        ('["\\ud800"]', tf.string, "is not Unicode text: half of a surrogate pair; write"),
        ("[" * 40 + "]" * 40, tf.int32, "more than 32"),
        ("[1]", tf.complex64, "is not implemented"),
    ],
)
def test_values_that_do_not_fit(text, dtype, message):
    with pytest.raises(RequestError, match=message):
        read(f'{{"instances": {text}}}', default=dtype)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"instances": [{"i": 1, "s": "a"}, [1, 20]]}', "Expecting object but got list at item 1"),
        ('{"instances": [1]}', "instances is a plain list"),
        ('{"instances": [{"i": 1}]}', "keys must be equal to: i,s"),
        ('{"instances": [{"i": 1, "s": "a", "x": 0}]}', "keys must be equal to: i,s"),
        ('{"inputs": [1]}', "inputs is a plain value/list"),
        ('{"inputs": {"i": 1}}', "Missing named input: s in 'inputs' object"),
        ('{"inputs": {"i": 1, "s": "a", "x": 0}}', "has no named input of the signature"),
    ],
)
def test_names_that_do_not_fit(text, message):
    with pytest.raises(RequestError, match=message):
        read(text, i=tf.int32, s=tf.string)


def test_a_value_among_objects():
    with pytest.raises(RequestError, match="value/list.*1"):
        read('{"instances": [["baz"], {"s": ["bat"]}]}', s=tf.string)


def test_floats_are_written_with_the_fewest_digits():
    values = np.array([[9e6, 999999, 0.5], [0.0003, 3e-05, 555557.5]], "float32")
    assert json.dumps(write_outputs({"y": values}, "row")) == (
        '{"predictions": [[9000000.0, 999999.0, 0.5], [0.0003, 3e-05, 555557.5]]}'
    )
    special = np.array([np.nan, np.inf, 3, -np.inf], "float32")
    text = json.dumps(write_outputs({"y": special}, "column"))
    assert text == '{"outputs": [NaN, Infinity, 3.0, -Infinity]}'
    random = np.random.default_rng(0).normal(size=200).astype("float32")
    back = np.array(write_outputs({"y": random}, "row")["predictions"], "float32")
    np.testing.assert_array_equal(back, random)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float64, tf.int8, tf.bool])
def test_other_types_are_written(dtype):
    array = np.array([1, 0], dtype.as_numpy_dtype)
    assert write_outputs({"y": array}, "row") == {"predictions": [1, 0]}


def test_several_outputs():
    outputs = {
        "f": np.array([[1], [2]], "float32"),
        "s": np.array([[b"a", b"\xff"], [b"c", b"d"]], object),
        "s_bytes": np.array([b"hello", b"world"], object),
    }
    assert write_outputs(outputs, "row") == {
        "predictions": [
            {"f": [1.0], "s": ["a", "\ufffd"], "s_bytes": {"b64": "aGVsbG8="}},
            {"f": [2.0], "s": ["c", "d"], "s_bytes": {"b64": "d29ybGQ="}},
        ]
    }
    assert write_outputs(outputs, "column")["outputs"]["s"] == [["a", "\ufffd"], ["c", "d"]]


def test_empty_outputs():
    empty = {"a": np.zeros((0, 1, 2), object), "b": np.zeros((0, 3), "float32")}
    assert write_outputs(empty, "row") == {"predictions": []}
    assert write_outputs({"a": np.zeros((2, 0), object)}, "row") == {"predictions": [[], []]}
    assert write_outputs({"a": np.zeros((2, 3, 0, 4), object)}, "row") == {
        "predictions": [[[], [], []], [[], [], []]]
    }


def test_outputs_that_json_cannot_have():
    with pytest.raises(RequestError, match="1 expecting: 2"):
        write_outputs({"a": np.zeros(2), "b": np.zeros(1)}, "row")
    with pytest.raises(RequestError, match="has no shape information"):
        write_outputs({"a": np.zeros(())}, "row")
    with pytest.raises(RequestError, match="tensor type: complex64"):
        write_outputs({"a": np.zeros(2, "complex64")}, "row")


NUMBERS = [
    [0, 1.5, -3],
    [2**24 - 1, -(2**24) + 1],
    [2**24],
    [-(2**24)],
    [2**53],
    [1e38, 3.5e38],
    [1e30, 1],
    [float("nan"), float("inf"), -float("inf"), 1],
    [10**400],
    [True, 1],
    [True, False],
    [127, -128],
    [128],
    [2**63 - 1, -(2**63)],
    [2**63],
    [None],
    ["a", "é", "\ud800"],
    ["a", "é"],
    ["a", {"b64": "YQ=="}],
    [],
]


@pytest.mark.parametrize(
    "name", ["float32", "float64", "float16", "int8", "int64", "bool", "string"]
)
@pytest.mark.filterwarnings("ignore:overflow encountered")  # in float16
def test_many_values_are_taken_at_once_as_each_alone_would_be(name, monkeypatch):
    def outcomes():
        for values in NUMBERS:
            for document in (
                {"instances": values},
                {"instances": [values, values]},
                {"inputs": values},
                {"inputs": [[values], [values]]},
            ):
                try:
                    (array,) = read(json.dumps(document), default=tf.as_dtype(name))[0].values()
                    yield array.dtype.name, array.shape, repr(array.tolist())
                except RequestError as error:
                    yield str(error)

    at_once = list(outcomes())
    with monkeypatch.context() as patch:
        patch.setattr(json_tensors, "scalars", lambda values, dtype: None)
        assert at_once == list(outcomes())
    values = {"string": ["a"], "bool": [True]}.get(name, [1])
    monkeypatch.setattr(json_tensors, "scalar", None)  # nobody calls it for each value
    for document in ({"instances": 9 * values}, {"inputs": [9 * values, 9 * values]}):
        read(json.dumps(document), default=tf.as_dtype(name))


def test_a_quoted_value_is_written_only_as_far_as_it_is_shown():
    """A value may be as large as a request; what follows the quote is not even looked at."""
    value = {"rows": [[index, "é"] for index in range(100)]}
    assert shorten(value) == json.dumps(value)[:200]
    assert shorten([*range(200), object()]) == json.dumps(list(range(200)))[:200]
