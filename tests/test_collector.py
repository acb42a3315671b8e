"""Tests of the pause of Python's garbage collector."""

import gc
import weakref

import pytest

from keras_transformers.collector import paused_collector

OLDEST = 2


class Kept:
    """An object that can be in a cycle and has weak references."""


@pytest.fixture
def unfrozen():
    """Frees what conftest.py keeps from collections, until the test ends."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("unfrozen")
def test_what_is_made_inside_is_old_afterwards():
    with paused_collector():
        kept = Kept()
    assert any(other is kept for other in gc.get_objects(generation=OLDEST))


@pytest.mark.usefixtures("unfrozen")
def test_a_cycle_made_inside_is_collected_when_it_is_garbage():
    with paused_collector():
        kept = Kept()
        kept.itself = kept
    alive = weakref.ref(kept)
    del kept
    gc.collect()
    assert alive() is None


def test_what_the_program_has_frozen_stays_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    with paused_collector():
        pass
    assert gc.get_freeze_count() == frozen > 0
