"""The scripts of docs/site, which import each other by name."""

import importlib
import sys
from pathlib import Path

import pytest

SITE = str(Path(__file__).parents[2] / "docs/site")


@pytest.fixture(scope="session")
def hooks():
    sys.path.insert(0, SITE)
    yield importlib.import_module("hooks")
    sys.path.remove(SITE)


@pytest.fixture(scope="session")
def languages(hooks):
    return hooks.languages
