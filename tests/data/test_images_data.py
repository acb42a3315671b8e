import gzip
import logging

import numpy as np
import pytest
import tensorflow as tf
from checks import says

from keras_transformers.data.images.augmentation import (
    Augmentation,
    mixup,
    random_crop,
    random_flip,
    random_turn,
)
from keras_transformers.data.images.batches import ImageBatches
from keras_transformers.data.images.labelled_images import (
    FASHION_MNIST_LABELS,
    Images,
    load_digits,
    load_folder,
    load_idx,
    read_idx,
)
from keras_transformers.pipelines import ImageDecoder

SEED = tf.constant([3, 4], tf.int64)


def some_images(count=10, height=5, width=6, channels=1):
    """Each image is filled with its number, which also determines its label."""
    numbers = np.arange(count, dtype=np.uint8)
    pixels = np.broadcast_to(numbers[:, None, None, None], (count, height, width, channels))
    return Images(pixels, (numbers % 3).astype(np.int32), ["a", "b", "c"], "memory")


def batches(images, *, skip=0, **options):
    """Returns the batches of one pass, or of two passes if they are shuffled."""
    options = {"mean_length": 1, "batch_size": 4, "shuffle": False} | options
    made = ImageBatches(images, **options)
    passes = 2 if made.shuffle else 1
    found = made.dataset(skip=skip).take(passes * len(made))
    return [(x["images"].numpy(), y["logits"].numpy()) for x, y in found]


def numbers(batch):
    return [int(image[0, 0, 0]) for images, _ in batch for image in images]


# Batches


def test_unshuffled_batches_keep_the_order_and_pair_images_with_their_labels():
    found = batches(some_images())
    assert numbers(found) == list(range(10))
    assert [len(images) for images, _ in found] == [4, 4, 2]
    images, targets = found[1]
    assert (images.shape, images.dtype) == ((4, 5, 6, 1), np.float32)
    np.testing.assert_array_equal(targets, np.eye(3)[[1, 2, 0, 1]])


@pytest.mark.slow
@pytest.mark.parametrize(
    "augmentation", [None, Augmentation(crop_padding=1, mixup=0.5)], ids=["plain", "augmented"]
)
def test_passes_are_shuffled_anew_and_depend_on_the_seed_alone(augmentation):
    def two_passes(seed, skip=0):
        options = {"shuffle": True, "augmentation": augmentation, "seed": seed}
        return batches(some_images(), skip=skip, **options)

    one, again, other, rest = two_passes(0), two_passes(0), two_passes(1), two_passes(0, skip=2)
    for found, expected in ((again, one), (rest[:4], one[2:])):
        for batch, same in zip(found, expected, strict=True):
            np.testing.assert_array_equal(batch[0], same[0])
            np.testing.assert_array_equal(batch[1], same[1])
    if augmentation is None:
        for first in (one, other):
            passes = [numbers(first[:3]), numbers(first[3:])]
            assert sorted(passes[0]) == sorted(passes[1]) == list(range(10))
            assert list(range(10)) != passes[0] != passes[1]

    def pixels(found):
        return np.concatenate([images for images, _ in found])

    assert not np.array_equal(pixels(one[:3]), pixels(one[3:]))
    assert not np.array_equal(pixels(one[:3]), pixels(other[:3]))


def test_batches_know_how_many_and_how_long_they_are():
    made = ImageBatches(some_images(), mean_length=7, batch_size=2, accumulate=3)
    assert (made.num_rows, len(made), made.mean_lengths) == (10, 2, 7)
    assert made.shuffle
    dev = made.of(some_images(5))
    assert (dev.num_rows, len(dev), dev.mean_lengths) == (5, 3, 7)
    assert [len(x["images"]) for x, _ in dev.dataset()] == [2, 2, 1], "not accumulated"


def test_a_split_is_drawn_by_the_seed_and_loses_nothing():
    images = some_images()
    for seed in (0, 1):
        train, test = images.split(0.2, seed=seed)
        assert (len(train), len(test)) == (8, 2)
        both = np.concatenate([train.items, test.items])[:, 0, 0, 0]
        assert sorted(both) == list(range(10))
        assert list(test.labels) == [number % 3 for number in test.items[:, 0, 0, 0]]
    first, again = (images.split(0.2, seed=0)[1].items for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, images.split(0.2, seed=1)[1].items)
    with pytest.raises(ValueError, match="0.01.*0.*10 images"):
        images.split(0.01, seed=0)


def test_images_that_do_not_belong_together_are_refused():
    pixels, labels = np.zeros((2, 3, 3, 1), np.uint8), np.zeros(2, np.int32)
    with pytest.raises(ValueError, match=r"\(1,\).*2 images"):
        Images(pixels, labels[:1], ["a"], "here")
    with pytest.raises(ValueError, match="0.*0.*0 names"):
        Images(pixels, labels, [], "here")
    with pytest.raises(ValueError, match="here: no images"):
        Images(pixels[:0], labels[:0], ["a"], "here")
    with pytest.raises(ValueError, match=r"items of shape \(2, 3, 3\)"):
        Images(pixels[..., 0], labels, ["a"], "here")
    with pytest.raises(ValueError, match="batch_size is 0"):
        batches(Images(pixels, labels, ["a"], "here"), batch_size=0)


# Augmentation


def test_crops_move_images_and_fill_with_black():
    images = np.arange(1, 1 + 40 * 3 * 4, dtype="float32").reshape(40, 3, 4, 1)
    cropped = random_crop(tf.constant(images), 1, SEED).numpy()
    moves = set()
    for before, after in zip(images, cropped, strict=True):
        padded = np.pad(before, [(1, 1), (1, 1), (0, 0)])
        found = [
            (row, column)
            for row in range(3)
            for column in range(3)
            if np.array_equal(padded[row : row + 3, column : column + 4], after)
        ]
        assert len(found) == 1
        moves.update(found)
    assert len(moves) == 9  # all of them occur


def test_flips_mirror_about_half_of_the_images():
    images = np.arange(200 * 2 * 3, dtype="float32").reshape(200, 2, 3, 1)
    found = random_flip(tf.constant(images), SEED).numpy()
    flipped = [np.array_equal(a, b[:, ::-1]) for a, b in zip(found, images, strict=True)]
    kept = [np.array_equal(a, b) for a, b in zip(found, images, strict=True)]
    assert sum(flipped) + sum(kept) == 200
    assert 70 < sum(flipped) < 130


def test_mixup_mixes_neighbours_and_their_targets_alike():
    rows = 2000
    images = np.arange(rows, dtype="float32")[:, None, None, None]
    targets = np.eye(rows, dtype="float32")
    mixed, mixed_targets = (x.numpy() for x in mixup(images, targets, 0.4, SEED))
    np.testing.assert_allclose(mixed_targets.sum(axis=1), 1.0, atol=1e-6)
    share = mixed_targets[np.arange(rows), np.arange(rows)]
    following = (np.arange(rows) + 1) % rows
    np.testing.assert_allclose(mixed_targets[np.arange(rows), following], 1 - share, atol=1e-6)
    expected = share * np.arange(rows) + (1 - share) * following
    np.testing.assert_allclose(mixed[:, 0, 0, 0], expected, rtol=1e-4, atol=1e-3)
    # Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)).
    assert share.mean() == pytest.approx(0.5, abs=0.03)
    assert share.var() == pytest.approx(1 / (4 * 1.8), abs=0.01)


def test_no_augmentation_changes_nothing_and_each_seed_does_something_else():
    images = np.random.default_rng(0).normal(size=(6, 4, 4, 1)).astype("float32")
    targets = np.eye(6, dtype="float32")
    same, same_targets = Augmentation()(tf.constant(images), tf.constant(targets), SEED)
    np.testing.assert_array_equal(same, images)
    np.testing.assert_array_equal(same_targets, targets)
    augment = Augmentation(crop_padding=2, flip=True, mixup=1.0)
    one, again, other = (
        augment(tf.constant(images), tf.constant(targets), tf.constant([3, n], tf.int64))[0]
        for n in (4, 4, 5)
    )
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.1
    for name in ("rotation", "zoom", "crop_padding", "mixup"):
        with pytest.raises(ValueError, match=f"{name}=-1: must be 0"):
            Augmentation(**{name: -1})
    with pytest.raises(ValueError, match="zoom=1: must be below 1"):
        Augmentation(zoom=1)


@pytest.mark.parametrize("size", [(5, 5), (4, 4)])
def test_the_largest_turn_is_that_of_numpy(size, monkeypatch):
    monkeypatch.setattr(tf.random, "stateless_uniform", lambda shape, *_: tf.ones(shape))
    images = np.random.default_rng(0).random((2, *size, 3), np.float32)
    found = random_turn(tf.constant(images), 90.0, 0.0, SEED)
    np.testing.assert_allclose(found, np.rot90(images, axes=(1, 2)), atol=1e-5)


def test_zoom_shrinks_width_and_height_around_the_centre(monkeypatch):
    monkeypatch.setattr(tf.random, "stateless_uniform", lambda shape, *_: tf.ones(shape))
    across = np.broadcast_to(np.arange(1, 8, dtype=np.float32), (7, 7))
    images = np.stack([across, across.T])[..., None]  # 1 to 7, along the width and the height
    found = random_turn(tf.constant(images), 0.0, 0.5, SEED)[..., 0].numpy()
    expected = [0, 1, 2.5, 4, 5.5, 7, 0]  # 1.5 pixels apart, and black
    for image in (found[0], found[1].T):
        np.testing.assert_allclose(image[3], expected, atol=1e-5)
        np.testing.assert_array_equal(image[[0, -1]], 0)


# IDX files and digits


def idx(array):
    header = bytes([0, 0, 8, array.ndim])
    return header + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.fixture
def idx_folder(tmp_path):
    """Four files like MNIST's, the training images gzipped."""
    pixels = np.arange(5 * 3 * 4, dtype=np.uint8).reshape(5, 3, 4)
    packed = gzip.compress(idx(pixels), mtime=0)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(packed)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.array([0, 1, 2, 1, 0], np.uint8)))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(pixels[:2] + 100))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([2, 0], np.uint8)))
    return tmp_path


def test_an_idx_file_without_values_is_named(tmp_path):
    sizes = (0, 2**32 - 1, 2**32 - 1)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(bytes([0, 0, 8, 3]) + b"".join(size.to_bytes(4, "big") for size in sizes))
    with pytest.raises(ValueError, match="idx3-ubyte.*4294967295.*fetch"):
        read_idx(file, num_axes=3)


def test_idx_files(idx_folder):
    found = load_idx(idx_folder)
    train, test = found["train"], found["test"]
    assert (len(train), len(test), train.shape) == (5, 2, (3, 4, 1))
    assert list(train.label_names) == ["0", "1", "2"] == list(test.label_names)
    assert train.items[1, 0, 2, 0] == 14
    assert test.items[1, 2, 3, 0] == 123
    assert test.labels.tolist() == [2, 0]
    assert train.majority_share == 0.4
    named = load_idx(idx_folder, label_names=FASHION_MNIST_LABELS)
    assert named["test"].label_names[9] == "Ankle boot"
    with pytest.raises(ValueError, match="0.*2.*2 names"):
        load_idx(idx_folder, label_names=["a", "b"])


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("t10k-images-idx3-ubyte", b"", "starts with the bytes ; an IDX file of uint8 in 3 axes"),
        ("t10k-images-idx3-ubyte", idx(np.zeros((2, 3), np.uint8)), "00 00 08 02; .* 00 00 08 03"),
        ("t10k-images-idx3-ubyte", idx(np.zeros((2, 3, 4), np.uint8))[:-1], "39 bytes, but .* 40"),
        ("t10k-labels-idx1-ubyte", idx(np.zeros(3, np.uint8)), r"\(3,\) labels for 2 images"),
        ("train-images-idx3-ubyte.gz", b"no gzip", "damaged gzip data"),
        ("train-images-idx3-ubyte.gz", gzip.compress(b"x" * 99, mtime=0)[:-9], "damaged gzip data"),
    ],
)
def test_damaged_idx_files_are_named(idx_folder, name, data, text):
    (idx_folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=text) as raised:
        load_idx(idx_folder)
    assert name.removesuffix(".gz").replace("labels-idx1", "images-idx3") in str(
        raised.value
    ) or name in str(raised.value)


def test_a_missing_idx_file_is_named(idx_folder):
    (idx_folder / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match="train-labels-idx1-ubyte: no such file"):
        load_idx(idx_folder)
    with pytest.raises(FileNotFoundError, match="none: no such file"):
        read_idx("none", num_axes=1)


def test_the_digits():
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install -e .[dev]")
    digits = load_digits()
    assert (len(digits), digits.shape, len(digits.label_names)) == (1797, (8, 8, 1), 10)
    assert (digits.items.min(), digits.items.max(), digits.items.dtype) == (0, 255, np.uint8)
    assert digits.labels[:10].tolist() == list(range(10))


# Folders


def png(pixels):
    return tf.io.encode_png(np.asarray(pixels)).numpy()


def picture(height=7, width=9, channels=3):
    random = np.random.default_rng(channels)
    return random.integers(0, 256, (height, width, channels)).astype(np.uint8)


@pytest.fixture
def folder(tmp_path):
    for name, shade in (("black", 0), ("white", 255)):
        (tmp_path / name).mkdir()
        for number in range(3):
            pixels = np.full((4 + number, 6, 1), shade, np.uint8)
            (tmp_path / name / f"{number}.PNG").write_bytes(png(pixels))
    (tmp_path / "white" / "photo.jpeg").write_bytes(tf.io.encode_jpeg(picture(8, 8)).numpy())
    return tmp_path


def test_a_folder_of_classes(folder, caplog):
    (folder / "white" / "notes.txt").write_text("no image")
    (folder / "README").write_text("no class")
    with caplog.at_level(logging.WARNING):
        images = load_folder(folder, ImageDecoder((5, 5), 1))
    assert says(caplog.text, "skipped 2 entries")
    assert (len(images), images.shape) == (7, (5, 5, 1))
    assert list(images.label_names) == ["black", "white"]
    (found, targets), (more, _) = batches(images)
    np.testing.assert_allclose(found[:3], 0.0)
    np.testing.assert_allclose(found[3], 255.0, atol=1e-3)
    np.testing.assert_array_equal(targets, np.eye(2)[[0, 0, 0, 1]])
    assert more.shape == (3, 5, 5, 1)
    train, test = images.split(0.3, seed=0)
    assert (len(train), len(test)) == (5, 2)
    assert batches(test)[0][0].shape == (2, 5, 5, 1)


def test_files_that_do_not_decode_are_named_all_at_once(folder):
    (folder / "black" / "bad.png").write_bytes(b"no image")
    (folder / "white" / "cut.jpg").write_bytes(tf.io.encode_jpeg(picture(20, 20)).numpy()[:200])
    with pytest.raises(ValueError, match="2 rows cannot be read: .*bad.png.*cut.jpg.*repair"):
        load_folder(folder, ImageDecoder((5, 5)))


def test_folders_that_hold_no_classes(folder):
    decoder = ImageDecoder((5, 5))
    with pytest.raises(FileNotFoundError, match="none: no such folder"):
        load_folder(folder / "none", decoder)
    with pytest.raises(ValueError, match="0 folders,.*two"):
        load_folder(folder / "black", decoder)
    (folder / "grey").mkdir()
    with pytest.raises(ValueError, match="grey: no .png, .jpg, .jpeg"):
        load_folder(folder, decoder)
