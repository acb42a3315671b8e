"""What the tests of conversion share."""

import pytest


@pytest.fixture(autouse=True)
def _untraced(untraced: None) -> None:
    """Nearly every test asks another model, once."""
