"""What the tests of conversion share: the folder of files that other libraries wrote."""

import functools

import pytest
from left_behind import Unpack, unpacked


@pytest.fixture(autouse=True)
def _untraced(untraced: None) -> None:
    """Nearly every test asks another model, once."""


@pytest.fixture(scope="session")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    """Takes a path such as "hf4_tf/bert_cls"; returns it, unpacked from its archive, or skips."""
    return functools.partial(unpacked, into=tmp_path_factory.mktemp("left_behind"))
