"""Batches of a few static shapes hold the same rows as others; the rest has weight 0."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.data import CachedBatches, LengthBatches
from keras_transformers.data.images import ImageBatches
from keras_transformers.data.images.augmentation import Augmentation
from keras_transformers.data.images.labelled_images import Images
from keras_transformers.data.language_models import RowBatches, TokenStream
from keras_transformers.data.static_shapes import filled

LENGTHS = np.array([3, 1, 7, 2, 2, 9, 4, 4, 4, 1, 8])
BATCH = 4


class Rows(LengthBatches):
    """Row i has the number i + 1 as often as it is long, and targets that are one shorter."""

    def __init__(self, *, weighted=False, **options):
        super().__init__(LENGTHS, batch_size=BATCH, seed=3, **options)
        self.weighted = weighted
        self._rows = tf.RaggedTensor.from_row_lengths(
            tf.constant(np.repeat(np.arange(1, 12), LENGTHS), tf.int32), LENGTHS
        )

    def batch(self, indices):
        rows = tf.gather(self._rows, indices).to_tensor()
        targets = {"y": rows[:, 1:], "label": indices}
        if not self.weighted:
            return {"x": rows, "mask": rows > 0}, targets
        twice = tf.fill(tf.shape(indices), 2.0)
        weights = {"y": tf.cast(targets["y"] > 0, tf.float32), "label": twice}
        return {"x": rows, "mask": rows > 0}, targets, weights

    def of(self, examples):
        raise NotImplementedError


def trimmed(values, like):
    """Returns the part of `values` where `like` has some, and checks that the padding is 0."""
    part = tuple(slice(size) for size in like.shape)
    rest = values[: len(like)].numpy().copy()
    rest[part] = 0
    assert not rest.any()
    return values[part]


@pytest.mark.one_case
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("most", [1, 2, 20])
def test_the_same_rows_in_few_shapes(most, shuffle, weighted):
    options = {"shuffle": shuffle, "weighted": weighted}
    batches = Rows(static_shapes=most, **options)
    pairs = zip(batches.dataset().take(6), Rows(**options).dataset().take(6), strict=True)
    shapes = set()
    for found, expected in pairs:
        size = len(expected[0]["x"])
        inputs, targets, weights = found
        for values in tf.nest.flatten(found):
            assert len(values) == BATCH
        for values, like in zip(
            tf.nest.flatten((inputs, targets)), tf.nest.flatten(expected[:2]), strict=True
        ):
            np.testing.assert_array_equal(trimmed(values, like), like)
            # The rest is filled with the first row.
            np.testing.assert_array_equal(values[size:], np.repeat(values[:1], BATCH - size, 0))
        if weighted:
            for name, like in expected[2].items():
                np.testing.assert_array_equal(trimmed(weights[name], like), like)
        else:
            assert [list(value.shape) for value in weights.values()] == [[BATCH]] * 2
            assert all((value[:size] == 1.0).numpy().all() for value in weights.values())
        assert not any(value[size:].numpy().any() for value in weights.values())
        assert inputs["mask"].dtype == tf.bool
        assert inputs["x"].shape[1] == targets["y"].shape[1] + 1
        shapes.add(tuple(inputs["x"].shape))
    assert len(shapes) <= most


def test_one_shape_is_static():
    spec = Rows(shuffle=True, static_shapes=1).dataset().element_spec
    assert [tensor.shape for tensor in tf.nest.flatten(spec)] == [
        *[(BATCH, 9)] * 2,
        *[(BATCH,), (BATCH, 8)],
        *[(BATCH,)] * 2,
    ]
    inputs, *_ = Rows(shuffle=True, static_shapes=2).dataset().element_spec
    assert inputs["x"].shape.as_list() == [BATCH, None]


def test_they_continue_after_any_batch():
    options = {"shuffle": True, "static_shapes": 2}
    whole = list(Rows(**options).dataset().take(9))
    rest = list(Rows(**options).dataset(skip=4).take(5))
    tf.nest.map_structure(np.testing.assert_array_equal, rest, whole[4:])


def test_positions_are_counted_with_the_padding():
    for most in (1, 2, 3):
        batches = Rows(shuffle=False, static_shapes=most)
        sizes = [tf.size(inputs["x"]) for inputs, *_ in batches.dataset()]
        assert batches.num_positions == sum(sizes)


def test_cached_batches_keep_the_shapes():
    rows = Rows(shuffle=False, static_shapes=1)
    batches = CachedBatches(rows, lambda inputs, *rest: (inputs["x"] * 2, *rest))
    assert batches.dataset().element_spec[0].shape == (BATCH, 9)


def test_inputs_alone_are_filled_up():
    assert filled({"x": tf.constant([[1], [2]])}, 3)["x"].numpy().tolist() == [[1], [2], [1]]


def test_no_shape_is_refused():
    with pytest.raises(ValueError, match="static_shapes=0:.*1.*None"):
        Rows(shuffle=True, static_shapes=0)


def test_images_are_augmented_and_mixed_as_before():
    pixels = np.random.default_rng(0).integers(0, 256, (7, 4, 4, 1)).astype(np.uint8)
    images = Images(pixels, np.arange(7, dtype=np.int32) % 2, ["a", "b"], "memory")
    options = {"mean_length": 4, "batch_size": 4, "augmentation": Augmentation(mixup=0.5)}
    plain, fixed = (ImageBatches(images, **options, static_shapes=most) for most in (None, 1))
    for found, expected in zip(fixed.dataset().take(4), plain.dataset().take(4), strict=True):
        size = len(expected[0]["images"])
        assert found[0]["images"].shape == (4, 4, 4, 1)
        np.testing.assert_array_equal(found[0]["images"][:size], expected[0]["images"])
        np.testing.assert_array_equal(found[1]["logits"][:size], expected[1]["logits"])
        assert found[2]["logits"].numpy().tolist() == [1.0] * size + [0.0] * (4 - size)
    on_dev = fixed.of(images).dataset()
    assert on_dev.element_spec[0]["images"].shape == (4, 4, 4, 1)


@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_of_running_text(shuffle):
    ids = np.arange(60, dtype=np.int32)
    stream = TokenStream(ids, np.zeros_like(ids), 60, 60)
    options = {"length": 8, "batch_size": 4, "shuffle": shuffle}
    plain, fixed = (RowBatches(stream, **options, static_shapes=most) for most in (None, 1))
    assert fixed.dataset().element_spec[0]["token_ids"].shape == (4, 8)
    total = 0.0
    for found, expected in zip(fixed.dataset().take(4), plain.dataset().take(4), strict=False):
        size = len(expected[0]["token_ids"])
        for part, like in zip(found[:2], expected[:2], strict=True):
            for name, values in like.items():
                np.testing.assert_array_equal(part[name][:size], values)
        total += found[2]["logits"].numpy().sum()
        assert not found[2]["logits"][size:].numpy().any()
    assert total == (2 * fixed.num_rows * 8 if shuffle else 59)  # tokens in the batches above
