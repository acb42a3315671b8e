"""Fixtures for the tests of models."""

import keras
import pytest


@pytest.fixture
def zero_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Initializes models to zero, as random weights take most of a large model's build time."""
    for kind in (
        keras.initializers.TruncatedNormal,
        keras.initializers.RandomNormal,
        keras.initializers.GlorotUniform,
        keras.initializers.LecunNormal,
        keras.initializers.Orthogonal,
        keras.initializers.RandomUniform,
    ):
        monkeypatch.setattr(
            kind, "__call__", lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype)
        )
