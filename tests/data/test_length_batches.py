"""Batches that are computed once and cached."""

import numpy as np
import tensorflow as tf

from keras_transformers.data import CachedBatches, LengthBatches


class Numbers(LengthBatches):
    """Rows 0, 1, ... as inputs, twice their values as targets."""

    def __init__(self, count, *, batch_size, shuffle=True, seed=0):
        super().__init__(np.ones(count, int), batch_size=batch_size, shuffle=shuffle, seed=seed)

    def batch(self, indices):
        return {"x": indices}, 2 * indices

    def of(self, examples):
        return Numbers(examples, batch_size=self.batch_size, shuffle=False)


def squares_of(count, calls, **options):
    def squares(inputs, targets):
        calls.assign_add(1)
        return {"x": inputs["x"] ** 2}, targets

    return CachedBatches(Numbers(count, **options), squares)


def rows(dataset):
    return [tuple(inputs["x"].numpy()) for inputs, _ in dataset]


def test_cached_batches_are_computed_once():
    calls = tf.Variable(0)
    batches = squares_of(10, calls, batch_size=2)
    assert (len(batches), batches.num_rows, batches.mean_lengths) == (5, 10, 1.0)
    found = rows(batches.dataset().take(20))
    passes = [found[start : start + 5] for start in range(0, 20, 5)]
    assert calls == 5
    assert all(sorted(part) == sorted(passes[0]) for part in passes)
    assert len({tuple(part) for part in passes}) > 1
    assert sorted(np.concatenate(passes[0])) == [i * i for i in range(10)]
    # Like a resumed run: the same order from any point on.
    again = squares_of(10, tf.Variable(0), batch_size=2)
    assert rows(again.dataset(skip=7).take(13)) == found[7:]


def test_cached_batches_of_other_examples_keep_the_order():
    calls = tf.Variable(0)
    others = squares_of(10, calls, batch_size=2).of(3)
    assert rows(others.dataset()) == rows(others.dataset()) == [(0, 1), (4,)]
    assert rows(others.dataset(skip=1)) == [(4,)]
    assert calls == 2
