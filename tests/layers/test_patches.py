import keras
import numpy as np
import pytest

from keras_transformers.layers.patches import (
    ClassToken,
    PatchEmbedding,
    patch_grid,
    resize_positions,
)


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


@pytest.mark.parametrize(("height", "width"), [(12, 20), (13, 23)])
def test_patches_are_a_convolution_with_a_stride(height, width):
    """This includes sizes for which the last pixels are dropped."""
    images = random(2, height, width, 3)
    layer = PatchEmbedding(4, 6)
    found = layer(images)
    layer.bias.assign(random(6))
    found = layer(images)
    convolution = keras.layers.Conv2D(6, 4, strides=4, data_format="channels_last")
    convolution.build(images.shape)
    convolution.kernel.assign(layer.kernel)
    convolution.bias.assign(layer.bias)
    expected = keras.ops.reshape(convolution(images), (2, -1, 6))
    assert found.shape == (2, 15, 6)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert layer.grid == (3, 5)


def test_images_of_unknown_size_or_without_a_patch_are_refused():
    with pytest.raises(ValueError, match="height, width and channels"):
        PatchEmbedding(4, 6)(keras.Input((None, 8, 3)))
    with pytest.raises(ValueError, match=r"image_size=\(8, 3\).*patch_size=4"):
        PatchEmbedding(4, 6)(keras.Input((8, 3, 3)))
    with pytest.raises(ValueError, match="patch_size=0"):
        patch_grid(8, 0)


def test_the_class_token_stands_first():
    layer = ClassToken()
    inputs = random(2, 3, 4)
    layer.build(inputs.shape)
    layer.class_token.assign([1.0, 2.0, 3.0, 4.0])
    outputs = np.asarray(layer(inputs))
    np.testing.assert_array_equal(outputs[:, 0], [[1, 2, 3, 4]] * 2)
    np.testing.assert_array_equal(outputs[:, 1:], inputs)


@pytest.mark.parametrize(
    ("grid", "new_grid"), [((3, 3), (5, 4)), ((6, 5), (3, 7)), ((2, 2), (1, 1))]
)
def test_bilinear_positions_equal_scipys_zoom(grid, new_grid):
    """Calls the function that the paper's code calls."""
    ndimage = pytest.importorskip("scipy.ndimage", reason="needs scipy: pip install -e .[dev]")
    positions = random(1 + grid[0] * grid[1], 4)
    zoom = (new_grid[0] / grid[0], new_grid[1] / grid[1], 1)
    patches = ndimage.zoom(positions[1:].reshape(*grid, 4), zoom, order=1).reshape(-1, 4)
    found = resize_positions(positions, grid, new_grid)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[0], positions[0])
    np.testing.assert_allclose(found[1:], patches, atol=1e-6)


@pytest.mark.reference
@pytest.mark.parametrize(
    ("grid", "new_grid"), [((3, 3), (5, 4)), ((6, 5), (3, 7)), ((14, 14), (24, 24))]
)
def test_bicubic_positions_equal_pytorchs_interpolation(grid, new_grid):
    """Calls the function that Hugging Face's `interpolate_pos_encoding` calls."""
    import torch

    positions = random(1 + grid[0] * grid[1], 4)
    patches = torch.tensor(positions[1:].reshape(1, *grid, 4)).permute(0, 3, 1, 2)
    patches = torch.nn.functional.interpolate(patches, size=new_grid, mode="bicubic")
    expected = patches.permute(0, 2, 3, 1).reshape(-1, 4).numpy()
    found = resize_positions(positions, grid, new_grid, interpolation="bicubic")
    np.testing.assert_allclose(found[1:], expected, atol=1e-5)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_the_same_resolution_and_constant_positions_stay(interpolation):
    positions = random(13, 4)
    same = resize_positions(positions, (3, 4), (3, 4), interpolation=interpolation)
    np.testing.assert_array_equal(same, positions)
    flat = resize_positions(np.full((13, 2), 3.0), (3, 4), (7, 2), interpolation=interpolation)
    np.testing.assert_allclose(flat, 3.0, rtol=1e-12)


def test_positions_of_another_grid_and_unknown_interpolations_are_refused():
    with pytest.raises(ValueError, match="10 position embeddings .* 3 x 4 patches"):
        resize_positions(random(10, 4), (3, 4), (3, 3))
    with pytest.raises(ValueError, match="interpolation='nearest' is unknown"):
        resize_positions(random(10, 4), (3, 3), (3, 3), interpolation="nearest")
