import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.saved_model.checks import check

pytestmark = pytest.mark.kernels


def test_differences_are_reported_with_their_place():
    expected = {
        "p": np.array([[0.5, 0.5], [0.25, 0.75]], np.float32),
        "label": np.array([b"x", b"y"], dtype=object),
    }
    assert not list(check.differences(expected, expected, 1e-5))
    close = expected | {"p": expected["p"] + np.float32(7e-6)}
    assert not list(check.differences(close, expected, 1e-5))
    far = {"p": expected["p"].copy(), "label": np.array([b"x", b"z"], dtype=object)}
    far["p"][1, 0] += 0.125
    label, p = check.differences(far, expected, 1e-5)
    assert label == "output 'label': 1 of 2 values differ, at (1,) b'z' instead of b'y'"
    assert p.startswith("output 'p': 1 of 4 values differ, at (1, 0)")
    assert "difference 0.125" in p


@pytest.mark.parametrize("size", [1e-4, 1.0, 3e4])
def test_floats_may_differ_by_a_share_of_the_largest(size):
    """A number near 0 is a difference of larger ones, and is rounded as they are."""
    expected = {"logits": np.array([[1.0, -0.5, 1e-7]], np.float32) * np.float32(size)}
    step = np.array([[0, 0, size]], np.float32)
    for share, number in ((5e-6, 0), (2e-5, 1)):
        found = {"logits": expected["logits"] + np.float32(share) * step}
        assert len(list(check.differences(found, expected, 1e-5))) == number
        # Other rows of the stored examples may be larger.
        assert not list(check.differences(found, expected, 1e-5, {"logits": 10 * size}))


def test_masked_and_infinite_scores_are_not_the_largest():
    stored = [{"s": np.array([-1e9, 3.0, -np.inf], np.float32)}, {"s": np.zeros(0, np.float32)}]
    assert check.largest_values([*stored, {"label": np.array([b"x"], object)}]) == {"s": 3.0}


@pytest.mark.parametrize(
    ("actual", "text"),
    [
        ({}, r"outputs \[\] instead of \['p'\]"),
        ({"p": np.zeros((3,), np.float32)}, r"shape \(3,\) instead of .* \(2,\)"),
        ({"p": np.zeros((2,), np.float64)}, "float64 of shape"),
        ({"p": np.array([0.0, np.nan], np.float32)}, r"at \(1,\) .*nan"),
    ],
)
def test_other_outputs_are_differences(actual, text):
    expected = {"p": np.zeros((2,), np.float32)}
    (difference,) = check.differences(actual, expected, 1e-5)
    assert re.search(text, difference)


def test_the_error_of_floats_is_a_share_of_their_size():
    def stored(*values):
        outputs = {
            "p": {"dtype": "float32", "shape": [2], "values": list(values)},
            "label": {"dtype": "string", "shape": [1], "values": [str(values)]},
        }
        specs = {"p": {"dtype": "float32"}, "label": {"dtype": "string"}}
        return {"s": {"outputs": specs, "examples": [{"inputs": {}, "outputs": outputs}] * 2}}

    found = dict(check.relative_errors(stored(3.0, 4.5), stored(3.0, 4.0)))
    assert found == {"signature 's', output 'p'": pytest.approx(0.1)}
    assert dict(check.relative_errors(stored(0.0, 0.0), stored(0.0, 0.0))).popitem()[1] == 0.0
    (of_another_text,) = check.relative_errors(
        stored(3.0, 4.5), stored(3.0, 4.0), of_same_texts=True
    )
    assert of_another_text[1] == 0.0


def test_a_wrong_method_name_is_found(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "copy")
    updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(str(folder))
    updater.replace_method_name("classify", "tensorflow/serving/predict")
    updater.save()
    (failure,) = check.failures(str(folder))
    assert failure.startswith("V1 session loader: ValueError: signature 'classify' has")
    assert failure.endswith("'tensorflow/serving/predict' instead of 'tensorflow/serving/classify'")


@pytest.mark.usefixtures("new_processes")
def test_a_check_that_cannot_run_says_why(exported, monkeypatch):
    monkeypatch.setattr(check.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="(?s)status 1 .*not published"):
        check.self_check(exported)


@pytest.mark.usefixtures("new_processes")
def test_a_process_that_fails_tells_its_last_lines(tmp_path, monkeypatch):
    (tmp_path / "probe.py").write_text("def main(path):\n    open(path)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ChildProcessError, match=r"(?s)ended with status 1 .*No such file.*nowhere"):
        check.in_fresh_process("probe", str(tmp_path / "nowhere"))


@pytest.mark.usefixtures("new_processes")
def test_a_check_that_hangs_is_an_error(exported, monkeypatch):
    monkeypatch.setattr(check, "_TIMEOUT_S", 0.05)
    with pytest.raises(RuntimeError, match=r"took more than 0.05 s.*check=False"):
        check.self_check(exported)


def test_infinities_differ_from_all_but_themselves():
    def differing(found, expected):
        arrays = ({"y": np.array(values, np.float32)} for values in (found, expected))
        return list(check.differences(*arrays, 1e-5))

    assert differing([np.inf, -np.inf, 1], [np.inf, -np.inf, 1]) == []
    for found, expected in ([np.inf, -np.inf], [np.inf, 1], [1, -np.inf], [np.nan, np.nan]):
        assert len(differing([found], [expected])) == 1, (found, expected)
