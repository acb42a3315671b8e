"""What the tests of exports share: an export of the tiny classifier."""

import subprocess
from pathlib import Path

import pytest
import tiny

import keras_transformers as kt
from keras_transformers.saved_model.checks import check


@pytest.fixture
def new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks of exports run in processes that were started for them."""
    monkeypatch.setattr(check, "subprocess", subprocess)


@pytest.fixture(scope="session")
def classify():
    """The pipeline of `exported`."""
    return tiny.pipeline("classification")


@pytest.fixture(scope="session")
def exported(classify, tmp_path_factory) -> Path:
    """An export of one-text classification: read only."""
    scores = {"accuracy on SST-2 dev": 0.91}
    return kt.export(classify, tmp_path_factory.mktemp("base"), scores=scores, check=False)
