"""Metrics say which command, commit, seed and machine made them."""

import re
import shlex
import sys

import keras

from keras_transformers.runs.origin import origin
from keras_transformers.saved_model.metadata import of_environment


def test_a_run_can_be_repeated_from_its_origin(monkeypatch):
    command = ["recipes/classification.py", "--train-file", "my train.tsv", "--seed", "3"]
    monkeypatch.setattr(sys, "orig_argv", ["/opt/bin/python3.11", *command])
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    found = origin(model, seed=3)
    assert shlex.split(found["command"]) == ["python", *command]
    assert (found["parameters"], found["seed"]) == (10, 3)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["day"])
    assert found["machine"]["processor"]
    assert found["machine"]["cores"] >= 1
    assert found.items() >= of_environment().items()
    assert origin(None, seed=0)["parameters"] is None
