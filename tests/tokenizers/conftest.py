"""Runs the tests of tokenizers with tensorflow-text's ops, and slowly with core ops too."""

from collections.abc import Iterator

import pytest

from keras_transformers.dependencies.text_library import tensorflow_text
from keras_transformers.tokenizers.text_ops import using_ops

MADE_OF_BOTH = (
    "wordpiece",
    "bert_characters",
    "sentence",
    "mpnet",
    "case_markers",
    "xlm_roberta",
    "camembert",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of tokenizers that have two forms run with each."""
    if any(name in str(metafunc.definition.path) for name in MADE_OF_BOTH):
        forms = ["tensorflow-text"] if tensorflow_text() else []
        core = pytest.param("core", marks=[pytest.mark.slow] if forms else [])
        metafunc.parametrize("ops", [*forms, core], indirect=True, scope="function")


@pytest.fixture(autouse=True)
def ops(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The ops that tokenizers use in the test; None leaves the choice to them."""
    chosen = getattr(request, "param", None)
    with using_ops(chosen):
        yield chosen
