"""Turns images into sequences of patches (ViT), and resizes position embeddings."""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.tensors import Initializer, Shape, Tensor

__all__ = ["ClassToken", "PatchEmbedding", "StemConvolution"]

Interpolation = Literal["bilinear", "bicubic"]
Grid = tuple[int, int]  # rows and columns of patches


def patch_grid(image_size: int | tuple[int, int], patch_size: int) -> Grid:
    """Counts the rows and columns of whole patches in an image.

    Args:
        image_size: (height, width) in pixels, or one number for both.
        patch_size: side of a patch in pixels.

    Raises:
        ValueError: the image is smaller than a patch.

    Example:
        >>> patch_grid(224, 16), patch_grid((384, 384), 14)
        ((14, 14), (27, 27))
    """
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    if patch_size < 1 or min(height, width) < patch_size:
        raise ValueError(
            f"image_size={image_size} has no whole patch of patch_size={patch_size}: "
            "use smaller patches or larger images"
        )
    return height // patch_size, width // patch_size


@keras.saving.register_keras_serializable(PACKAGE)
class PatchEmbedding(keras.layers.Layer):
    """Cuts images into square patches and maps each patch to a vector.

    Dosovitskiy et al. 2020, section 3.1: a convolution whose stride equals its kernel size,
    computed as one matrix product. Patches come row by row. As in the convolution, pixels to the
    right of the last whole patch or below it are dropped: 6 of 384 with patches of 14.

    Args:
        patch_size: side of a patch in pixels, p.
        hidden_dim: width of a vector, H.
        kernel_initializer: initializer of the (p, p, channels, H) kernel.

    Attributes:
        grid: (rows, columns) of patches, set when the layer is built.

    Raises:
        ValueError: when the layer is built, if images have an unknown size or are smaller than a
            patch.

    Example:
        >>> PatchEmbedding(4, 8)(keras.ops.ones((2, 12, 8, 3))).shape
        TensorShape([2, 6, 8])
    """

    def __init__(
        self,
        patch_size: int,
        hidden_dim: int,
        *,
        kernel_initializer: Initializer = "lecun_normal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.patch_size = patch_size
        self.hidden_dim = hidden_dim
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, input_shape: Shape) -> None:
        """Creates the kernel and the bias for images (batch, height, width, channels)."""
        _, height, width, channels = input_shape
        if None in (height, width, channels):
            raise ValueError(
                f"images have shape {tuple(input_shape)}, but height, width and channels must be "
                "known, because each position has its own embedding"
            )
        self.grid = patch_grid((height, width), self.patch_size)
        # Without this, Keras accepts images with 1 channel where the model expects more.
        self.input_spec = keras.layers.InputSpec(shape=(None, height, width, channels))
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.patch_size, self.patch_size, channels, self.hidden_dim),
            initializer=self.kernel_initializer,
        )
        self.bias = self.add_weight(name="bias", shape=(self.hidden_dim,), initializer="zeros")

    def call(self, images: Tensor) -> Tensor:
        """Maps (batch, height, width, channels) to (batch, patches, hidden_dim)."""
        (rows, columns), size, channels = self.grid, self.patch_size, images.shape[-1]
        images = images[:, : rows * size, : columns * size]
        patches = ops.reshape(images, (-1, rows, size, columns, size, channels))
        patches = ops.transpose(patches, (0, 1, 3, 2, 4, 5))  # (batch, row, column, p, p, channels)
        length = size * size * channels
        patches = ops.reshape(patches, (-1, length))  # (batch * patches, p * p * channels)
        vectors = ops.matmul(patches, ops.reshape(self.kernel, (length, -1))) + self.bias
        return ops.reshape(vectors, (-1, rows * columns, self.hidden_dim))

    def compute_output_spec(self, images: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        rows, columns = patch_grid(tuple(images.shape[1:3]), self.patch_size)
        shape = (images.shape[0], rows * columns, self.hidden_dim)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "patch_size": self.patch_size,
            "hidden_dim": self.hidden_dim,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


@keras.saving.register_keras_serializable(PACKAGE)
class StemConvolution(keras.layers.Conv2D):
    """A 3 x 3 convolution with stride 2, padding "same" and no bias, as one matrix product.

    It equals `keras.layers.Conv2D`, which with TensorFlow 2.21 and oneDNN returns an empty batch
    with the shape of its input; exports must handle empty batches.

    Args:
        filters: number of output channels, F.

    Example:
        >>> StemConvolution(4)(keras.ops.ones((0, 28, 27, 1))).shape
        TensorShape([0, 14, 14, 4])
    """

    def __init__(self, filters: int, **kwargs: Any) -> None:
        fixed = {"kernel_size": 3, "strides": 2, "padding": "same", "use_bias": False}
        super().__init__(filters, **(kwargs | fixed | {"data_format": "channels_last"}))

    def call(self, images: Tensor) -> Tensor:
        """Maps (batch, height, width, channels) to (batch, rows, columns, F): half, rounded up."""
        sizes = images.shape[1:3]
        rows, columns = (-(-size // 2) for size in sizes)
        # As in TensorFlow, the odd pixel of padding goes to the right and to the bottom.
        totals = [max(0, (-(-size // 2) - 1) * 2 + 3 - size) for size in sizes]
        margins = [(total // 2, total - total // 2) for total in totals]
        images = ops.pad(images, [(0, 0), *margins, (0, 0)])
        windows = [
            images[:, row : row + 2 * rows - 1 : 2, column : column + 2 * columns - 1 : 2]
            for row in range(3)
            for column in range(3)
        ]
        stacked = ops.concatenate(windows, axis=-1)  # (batch, rows, columns, 9 * channels)
        return ops.matmul(stacked, ops.reshape(self.kernel, (-1, self.filters)))


@keras.saving.register_keras_serializable(PACKAGE)
class ClassToken(keras.layers.Layer):
    """Prepends a learned vector, the class token, to every sequence."""

    def build(self, input_shape: Shape) -> None:
        """Creates the vector, initially zero."""
        self.class_token = self.add_weight(
            name="class_token", shape=(input_shape[-1],), initializer="zeros"
        )

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch, length, hidden) to (batch, 1 + length, hidden)."""
        shape = (ops.shape(inputs)[0], 1, inputs.shape[-1])
        return ops.concatenate([ops.broadcast_to(self.class_token, shape), inputs], axis=1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns (batch, 1 + length, hidden)."""
        batch, length, hidden = input_shape
        return (batch, None if length is None else 1 + length, hidden)


def resize_positions(
    embeddings: np.ndarray, grid: Grid, new_grid: Grid, *, interpolation: Interpolation = "bilinear"
) -> np.ndarray:
    """Interpolates position embeddings in two dimensions, for images of another resolution.

    Dosovitskiy et al. 2020, section 3.2. The class token's embedding does not change.

    Args:
        embeddings: (1 + rows * columns, hidden), the class token, then the patches row by row.
        grid: current (rows, columns) of patches.
        new_grid: new (rows, columns) of patches.
        interpolation: "bilinear" as in the paper's code (`scipy.ndimage.zoom` of order 1, corners
            aligned), or "bicubic" as in Hugging Face's `interpolate_pos_encoding` (PyTorch,
            a = -0.75, corners not aligned).

    Returns:
        (1 + new rows * new columns, hidden), with the dtype of `embeddings`.

    Raises:
        ValueError: the number of embeddings is not 1 + rows * columns, or the interpolation is
            unknown.

    Example:
        >>> positions = np.array([[9.0], [0.0], [2.0]])  # class token, two patches
        >>> resize_positions(positions, (1, 2), (1, 3)).ravel()
        array([9., 0., 1., 2.])
    """
    if interpolation not in ("bilinear", "bicubic"):
        raise ValueError(f"interpolation={interpolation!r} is unknown: use 'bilinear' or 'bicubic'")
    if len(embeddings) != 1 + grid[0] * grid[1]:
        raise ValueError(
            f"{len(embeddings)} position embeddings do not match a class token and "
            f"{grid[0]} x {grid[1]} patches"
        )
    weights = _bilinear if interpolation == "bilinear" else _bicubic
    by_row, by_column = (weights(*sizes) for sizes in zip(grid, new_grid, strict=True))
    patches = embeddings[1:].astype("float64").reshape(*grid, -1)  # (row, column, hidden)
    resized = np.einsum("ir,jc,rch->ijh", by_row, by_column, patches, optimize=True)
    resized = resized.reshape(-1, embeddings.shape[-1]).astype(embeddings.dtype)
    return np.concatenate([embeddings[:1], resized])


def _bilinear(size: int, new_size: int) -> np.ndarray:
    """Returns the weight of each old point in each new one, with ends aligned: (new_size, size)."""
    points = np.linspace(0, size - 1, new_size)
    return np.maximum(0.0, 1.0 - np.abs(points[:, None] - np.arange(size)))


def _bicubic(size: int, new_size: int) -> np.ndarray:
    """Returns weights of the four nearest points, with pixel edges aligned and ends repeated."""
    points = (np.arange(new_size) + 0.5) * size / new_size - 0.5
    matrix = np.zeros((new_size, size))
    for offset in (-1, 0, 1, 2):
        neighbours = np.floor(points).astype(int) + offset
        inside = np.clip(neighbours, 0, size - 1)
        np.add.at(matrix, (np.arange(new_size), inside), _cubic(np.abs(points - neighbours)))
    return matrix


def _cubic(distance: np.ndarray) -> np.ndarray:
    """Computes Keys' cubic convolution kernel with PyTorch's a = -0.75."""
    a, t = -0.75, distance
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return np.where(t <= 1, near, far)
