"""The trials, run on NumPy functions: each fault is found by the trial meant for it."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.saved_model.checks import trials
from keras_transformers.saved_model.checks.trials import _Trials, made_up
from keras_transformers.saved_model.examples import encode_array, level, num_rows

SIGNATURE = {
    "inputs": {"text": {"dtype": "string", "shape": [None]}},
    "outputs": {
        "length": {"dtype": "float32", "shape": [None]},
        "words": {"dtype": "string", "shape": [None, None]},
    },
}


def strings(*values):
    return np.array(values, dtype=object)


def answer(inputs):
    """Returns the length of each text, and its words, padded to the longest text."""
    rows = [text.split() for text in inputs["text"]]
    width = max(map(len, rows), default=0)
    words = [row + [b""] * (width - len(row)) for row in rows]
    return {
        "length": np.array([len(text) for text in inputs["text"]], np.float32),
        "words": np.array(words, dtype=object).reshape(len(rows), width),
    }


def metadata(*batches):
    encoded = [
        {side: {k: encode_array(v) for k, v in arrays.items()} for side, arrays in pair}
        for pair in ((("inputs", batch), ("outputs", answer(batch))) for batch in batches)
    ]
    return {"tolerance": 1e-5, "signatures": {"f": SIGNATURE | {"examples": encoded}}}


EXAMPLES = metadata({"text": strings()}, {"text": strings(b"one", b"two words", b"three")})


def outcomes(function, stored=EXAMPLES, signature=SIGNATURE):
    trials = _Trials(lambda name, inputs: function(inputs), "f", signature, stored)
    return {finding.trial: finding for finding in trials.findings(4)}


def failed(function):
    return {trial for trial, finding in outcomes(function).items() if finding.outcome == "failed"}


BATCHES, TOGETHER = "batches of 1 to 4", "8 threads at the same time"


def test_a_good_function_passes_all():
    found = outcomes(answer)
    assert list(found) == [
        BATCHES,
        TOGETHER,
        "empty strings",
        "invalid UTF-8",
        "an empty batch",
    ]
    assert {finding.outcome for finding in found.values()} == {"passed"}


def test_a_row_that_depends_on_its_batch_is_found():
    def leaking(inputs):
        found = answer(inputs)
        return found | {"length": found["length"] + 0.01 * (len(found["length"]) - 3)}

    assert BATCHES in failed(leaking)
    assert TOGETHER not in failed(leaking)


def test_a_size_that_is_refused_is_found():
    def fixed(inputs):
        if len(inputs["text"]) > 3:
            raise tf.errors.InvalidArgumentError(None, None, "3 rows at most")
        return answer(inputs)

    assert BATCHES in failed(fixed)
    assert "3 rows at most" in outcomes(fixed)[BATCHES].detail


def test_calls_that_disturb_each_other_are_found():
    shared = threading.local(), [None]

    def careless(inputs):
        shared[1][0] = threading.get_ident()
        time.sleep(0.002)
        wrong = shared[1][0] != threading.get_ident()
        found = answer(inputs)
        return found | {"length": found["length"] + wrong}

    assert failed(careless) == {TOGETHER}


def test_awkward_texts_that_break_or_spoil_others_are_found():
    def breaking(inputs):
        if any(b"\xff" in text for text in inputs["text"]):
            raise RuntimeError("decoder is lost")
        return answer(inputs)

    def spoiling(inputs):
        found = answer(inputs)
        return found | {"length": found["length"] + (b"" in inputs["text"])}

    assert failed(breaking) == {"invalid UTF-8"}
    assert "decoder is lost" in outcomes(breaking)["invalid UTF-8"].detail
    assert failed(spoiling) == {"empty strings"}


def test_what_is_refused_as_invalid_is_no_failure():
    def strict(inputs):
        if b"" in inputs["text"]:
            raise tf.errors.InvalidArgumentError(None, None, "an empty text")
        return answer(inputs)

    found = outcomes(strict)["empty strings"]
    assert (found.outcome, "an empty text" in found.detail) == ("refused", True)

    def quoting(inputs):  # as TensorFlow does for a message that quotes such bytes
        [text.decode() for text in inputs["text"]]
        return answer(inputs)

    assert outcomes(quoting)["invalid UTF-8"].outcome == "refused"


def test_an_empty_batch_must_give_no_rows():
    def one_at_least(inputs):
        return answer(inputs if len(inputs["text"]) else {"text": strings(b"")})

    assert failed(one_at_least) == {"an empty batch"}


def test_without_examples_a_function_is_compared_with_itself():
    found = outcomes(answer, stored={})
    assert found["made-up inputs"].outcome == "passed"
    assert found[BATCHES].outcome == "passed"

    def refusing(inputs):
        raise tf.errors.InvalidArgumentError(None, None, "no record")

    (found,) = outcomes(refusing, stored={}).values()
    assert (found.outcome, "no record" in found.detail) == ("skipped", True)
    unknown = {"inputs": {"x": {"dtype": "float32", "shape": None}}}
    (found,) = outcomes(answer, stored={}, signature=unknown).values()
    assert found.detail == "no stored examples, and none could be generated"


def test_made_up_rows_fit_the_signature():
    specs = {
        "ids": {"dtype": "int32", "shape": [None, None]},
        "image": {"dtype": "float32", "shape": [None, 4, 3]},
    }
    rows = made_up(specs)
    assert {name: value.shape for name, value in rows.items()} == {
        "ids": (2, 1),
        "image": (2, 4, 3),
    }
    assert num_rows(rows) == 2
    assert made_up({"x": {"dtype": "float32", "shape": []}}) == {}
    assert made_up({}) == {}


@pytest.mark.parametrize("names", [("short", "long"), ("long", "short")])
def test_outputs_are_levelled_by_filling_up_but_floats_by_cutting(names):
    rows = {
        "short": {"w": strings(b"a")[None], "p": np.ones((1, 1), np.float32)},
        "long": {"w": strings(b"a", b"")[None], "p": np.array([[1, 7]], np.float32)},
    }
    left, right = level(*(rows[name] for name in names))
    assert left["w"].tolist() == right["w"].tolist() == [[b"a", b""]]
    assert left["p"].tolist() == right["p"].tolist() == [[1.0]]


RUN = {"f": SIGNATURE}


@pytest.mark.parametrize(
    ("requests", "outcome", "detail"),
    [
        ([("f", {"text": strings(b"a b")}), ("f", [b"example"])], "passed", "2 requests"),
        ([("g", [])], "failed", "request 1: ValueError: the export has no signature 'g'"),
        ([("f", {"text": np.zeros(1)})], "failed", "takes {'text': 'string'}, not {'text': 'fl"),
        ([("f", {"other": strings(b"a")})], "failed", "not {'other': 'string'}"),
        ([("f", {"text": strings(b"a")}), ("f", {"text": strings(None)})], "failed", "request 2: "),
        ([("f", {"text": strings(b"a")})] * 3, "failed", "3, and TF Serving takes 2"),
    ],
)
def test_warm_up_requests_are_answered(monkeypatch, tmp_path, requests, outcome, detail):
    monkeypatch.setattr(trials, "MAX_REQUESTS", 2)
    monkeypatch.setattr(trials, "read_requests", lambda folder: iter(requests))
    found = trials._warm_up(lambda name, inputs: answer(inputs), tmp_path, RUN)
    assert (found.trial, found.outcome) == ("warm-up requests", outcome)
    assert detail in found.detail


def test_warm_up_requests_that_cannot_be_read_here_are_skipped(monkeypatch, tmp_path):
    def missing(folder):
        raise ValueError("needs the extra") from ImportError("tensorflow_serving")

    monkeypatch.setattr(trials, "read_requests", missing)
    found = trials._warm_up(lambda name, inputs: answer(inputs), tmp_path, RUN)
    assert (found.outcome, found.detail) == ("skipped", "needs the extra")
