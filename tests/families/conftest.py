"""Lets the tests in the folders here import family_checks, and answer without graphs."""

import pytest


@pytest.fixture(autouse=True)
def _untraced(untraced: None) -> None:
    """Nearly every test asks another model, once."""
