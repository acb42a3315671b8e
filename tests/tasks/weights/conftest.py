"""Fixtures for the tests of pipelines from folders of weights."""

import pytest


@pytest.fixture(autouse=True)
def _untraced(untraced: None) -> None:
    """Nearly every test asks another model, once."""
