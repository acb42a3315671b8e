"""ViT, the Transformer for images: Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words".

Tiny and small are the sizes of Touvron et al. 2021 (DeiT), without its distillation token. A model
is an encoder; `keras_transformers.heads.classifier` adds the classes. `copy_weights` moves
weights to another resolution.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_transformers.dependencies.private_api import set_value
from keras_transformers.layers import (
    FeedForward,
    FirstTokenPooler,
    MultiHeadAttention,
    PositionEmbedding,
    TransformerBlock,
)
from keras_transformers.layers.dense import Activation, activation_function
from keras_transformers.layers.patches import (
    ClassToken,
    Interpolation,
    PatchEmbedding,
    StemConvolution,
    patch_grid,
    resize_positions,
)
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "copy_weights", "num_parameters", "vit"]

_PAPER = "Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929"
_SMALL_PAPER = "Touvron et al. 2021, https://arxiv.org/abs/2012.12877"

_BASE = {"num_layers": 12, "num_heads": 12, "hidden_dim": 768}
_LARGE = {"num_layers": 24, "num_heads": 16, "hidden_dim": 1024}
SIZES: dict[str, dict[str, int]] = {
    "vit_tiny16": {"patch_size": 16, "num_layers": 12, "num_heads": 3, "hidden_dim": 192},
    "vit_small16": {"patch_size": 16, "num_layers": 12, "num_heads": 6, "hidden_dim": 384},
    "vit_b16": {"patch_size": 16, **_BASE},
    "vit_b32": {"patch_size": 32, **_BASE},
    "vit_l16": {"patch_size": 16, **_LARGE},
    "vit_l32": {"patch_size": 32, **_LARGE},
    "vit_h14": {"patch_size": 14, "num_layers": 32, "num_heads": 16, "hidden_dim": 1280},
}


def vit(
    *,
    patch_size: int,
    num_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    image_size: int | tuple[int, int] = 224,
    num_channels: int = 3,
    stem_filters: Sequence[int] = (),
    use_representation_layer: bool = False,
    pixel_mean: float | Sequence[float] = 0.5,
    pixel_std: float | Sequence[float] = 0.5,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    activation: Activation = "gelu",
    norm_epsilon: float = 1e-6,
    position_range: float = 0.02,
    name: str = "vit",
) -> keras.Model:
    """Builds a ViT encoder.

    The model scales pixels itself, so training and serving cannot scale them differently. Weights
    are initialized as in the paper's code: Glorot uniform for the matrices.

    Args:
        patch_size: side of a patch in pixels, the 16 of ViT-B/16; with `stem_filters`, in positions
            of the convolutions' output.
        num_layers: number of encoder layers, L; they are pre-norm, with one more norm at the end.
        num_heads: number of attention heads.
        hidden_dim: width, the paper's D.
        intermediate_dim: inner width of the feed-forward networks (MLP size); 4 D by default.
        image_size: (height, width) in pixels, or one number for both; it determines the number of
            positions.
        num_channels: 3 for RGB, 1 for grey.
        stem_filters: widths of convolutions before the patches, 3 x 3 with stride 2, each with a
            norm over the channels and `activation`. Each halves height and width, and patches are
            cut from the last one's output, as in the paper's hybrid, which has a ResNet there. With
            patches of 1 it is the stem of Xiao et al. 2021, "Early Convolutions Help Transformers
            See Better", except for their batch norm and ReLU.
        use_representation_layer: whether a dense layer with tanh follows the class token, as in
            pretraining (the paper's section 3.2; Hugging Face: the pooler of ViTModel, which
            ViTForImageClassification lacks).
        pixel_mean: subtracted from pixels scaled to 0 to 1; one number, or one per channel.
        pixel_std: divisor after that; a mean and std of 0.5 scale pixels to -1 to 1.
        dropout: rate on the embeddings, inside the feed-forward networks and on each sub-layer's
            output.
        attention_dropout: rate on the attention probabilities.
        activation: "gelu" is the erf form (Hugging Face), "gelu_approximate" the tanh form
            (the paper's code, which uses JAX's default).
        norm_epsilon: added to the variance in every norm; Hugging Face's default is 1e-12.
        position_range: standard deviation of the position embeddings' initial normal distribution.
            The paper's 0.02 suits 768 dimensions; a narrow model learns sooner with 0.5, near the
            size of its patch embeddings.
        name: the model's name.

    Returns:
        A functional model. Input: `images` (batch, height, width, channels), pixel values 0 to 255.
        Outputs: `sequence_output` (batch, 1 + patches, D), after the last norm, and `pooled_output`
        (batch, D), its first vector, the class token's.

    Raises:
        ValueError: `hidden_dim` is not a multiple of `num_heads`, or the image, after the
            convolutions if there are any, is smaller than a patch.

    Example:
        >>> model = vit(patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, image_size=8)
        >>> model.count_params() == 4 * 4 * 3 * 8 + 8 + 8 + (4 + 1) * 8 + 872 + 16
        True
    """
    seen = _stem_size(image_size, len(stem_filters))
    if stem_filters and min(seen) < patch_size:
        raise ValueError(
            f"image_size={image_size} has no whole patch of patch_size={patch_size} after "
            f"{len(stem_filters)} convolutions, which leave {seen[0]} x {seen[1]} places"
        )
    rows, columns = patch_grid(seen if stem_filters else image_size, patch_size)
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    images = keras.Input((height, width, num_channels), name="images")
    scale, offset = _scaling(pixel_mean, pixel_std)
    hidden = keras.layers.Rescaling(scale, offset, name="pixel_scaling")(images)
    for index, filters in enumerate(stem_filters):
        hidden = StemConvolution(filters, name=f"stem_{index}")(hidden)
        hidden = keras.layers.LayerNormalization(epsilon=norm_epsilon, name=f"stem_norm_{index}")(
            hidden
        )
        hidden = keras.layers.Activation(
            activation_function(activation), name=f"stem_activation_{index}"
        )(hidden)
    hidden = PatchEmbedding(patch_size, hidden_dim, name="patch_embedding")(hidden)
    hidden = ClassToken(name="class_token")(hidden)
    hidden = PositionEmbedding(
        1 + rows * columns,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=position_range),
        name="position_embedding",
    )(hidden)
    hidden = keras.layers.Dropout(dropout, name="embeddings_dropout")(hidden)
    for index in range(num_layers):
        initializer = keras.initializers.GlorotUniform()
        hidden = TransformerBlock(
            MultiHeadAttention(
                num_heads,
                hidden_dim,
                attention_dropout=attention_dropout,
                kernel_initializer=initializer,
            ),
            FeedForward(
                intermediate_dim or 4 * hidden_dim,
                hidden_dim,
                activation=activation,
                dropout=dropout,
                kernel_initializer=initializer,
            ),
            norm_position="pre",
            norm_epsilon=norm_epsilon,
            dropout=dropout,
            name=f"encoder_layer_{index}",
        )(hidden)
    hidden = keras.layers.LayerNormalization(epsilon=norm_epsilon, name="encoder_norm")(hidden)
    pooled = hidden[:, 0]
    if use_representation_layer:
        pooled = FirstTokenPooler(hidden_dim, activation="tanh", name="pooler")(hidden)
    return keras.Model(
        inputs={"images": images},
        outputs={"sequence_output": hidden, "pooled_output": pooled},
        name=name,
    )


def _stem_size(image_size: int | tuple[int, int], num_convolutions: int) -> tuple[int, int]:
    """Returns (height, width) after the stem's convolutions, which halve both, rounding up."""
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    return -(-height // 2**num_convolutions), -(-width // 2**num_convolutions)


def _scaling(mean: float | Sequence[float], std: float | Sequence[float]) -> tuple[Any, Any]:
    """Returns the factor and offset that turn a pixel into (pixel / 255 - mean) / std."""
    means, stds = np.asarray(mean, "float64"), np.asarray(std, "float64")
    return (1.0 / (255.0 * stds)).tolist(), (-means / stds).tolist()


def num_parameters(
    *,
    patch_size: int,
    num_layers: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    image_size: int | tuple[int, int] = 224,
    num_channels: int = 3,
    stem_filters: Sequence[int] = (),
    use_representation_layer: bool = False,
) -> int:
    """Computes the parameter count of `vit` with these arguments, without building it."""
    h, i = hidden_dim, intermediate_dim or 4 * hidden_dim
    rows, columns = patch_grid(_stem_size(image_size, len(stem_filters)), patch_size)
    widths = [num_channels, *stem_filters]
    stem = sum(3 * 3 * before * after + 2 * after for before, after in itertools.pairwise(widths))
    embeddings = stem + patch_size**2 * widths[-1] * h + h + h + (1 + rows * columns) * h
    layer = (4 * h * h + 4 * h) + 2 * h + (2 * h * i + i + h) + 2 * h
    return embeddings + num_layers * layer + 2 * h + use_representation_layer * (h * h + h)


def copy_weights(
    source: keras.Model, target: keras.Model, *, interpolation: Interpolation = "bilinear"
) -> None:
    """Copies weights to a ViT for another resolution, resizing the position embeddings.

    Args:
        source: a model from `vit` or a named factory, with or without a head.
        target: the same model with another `image_size`, often larger, for fine-tuning.
        interpolation: see `keras_transformers.layers.patches.resize_positions`.

    Raises:
        ValueError: the two differ in more than the number of positions. The message lists every
            difference, and the target is unchanged.

    Example:
        >>> size = {"patch_size": 4, "num_layers": 1, "num_heads": 2, "hidden_dim": 8}
        >>> copy_weights(vit(**size, image_size=8), vit(**size, image_size=16))
    """
    theirs, ours = ({v.path: v for v in model.weights} for model in (source, target))
    values = {path: np.asarray(variable) for path, variable in theirs.items()}
    path = "position_embedding/embeddings"
    if path in values and path in ours:
        grids = [model.get_layer("patch_embedding").grid for model in (source, target)]
        values[path] = resize_positions(values[path], *grids, interpolation=interpolation)
    troubles = [f"only one has {path}" for path in sorted(theirs.keys() ^ ours.keys())]
    troubles += [
        f"{path} is {values[path].shape} and {tuple(variable.shape)}"
        for path, variable in ours.items()
        if path in values and values[path].shape != tuple(variable.shape)
    ]
    if troubles:
        raise ValueError(
            f"the weights of {source.name!r} do not fit {target.name!r}: {'; '.join(troubles)}"
        )
    for path, variable in ours.items():
        set_value(variable, values[path])


# Exact counts of the encoder for 224 x 224 RGB images, without representation layer or head.
_NUM_PARAMETERS = {
    "vit_tiny16": 5_524_416,
    "vit_small16": 21_665_664,
    "vit_b16": 85_798_656,
    "vit_b32": 87_455_232,
    "vit_l16": 303_301_632,
    "vit_l32": 305_510_400,
    "vit_h14": 630_764_800,
}
_PAPER_FIGURES = {
    "vit_tiny16": "5M",
    "vit_small16": "22M",
    "vit_b16": "86M",
    "vit_l16": "307M",
    "vit_h14": "632M",
}
_PAPER_NOTES = {
    "vit_tiny16": "truncated, not rounded; 5,717,416 with a head for 1,000 classes",
    "vit_l16": "304,326,632 with a head for 1,000 classes, which is not 307M either",
    "vit_h14": "632,045,800 with a head for 1,000 classes",
}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            vit,
            name,
            size,
            summary=f"ViT with patches of {size['patch_size']} x {size['patch_size']} pixels, "
            f"{size['num_layers']} layers, {size['num_heads']} heads and width "
            f"{size['hidden_dim']}, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_SMALL_PAPER if name in ("vit_tiny16", "vit_small16") else _PAPER,
        paper_figure=_PAPER_FIGURES.get(name, ""),
        paper_note=_PAPER_NOTES.get(name, ""),
        symbols={
            "P": 1 + (224 // size["patch_size"]) ** 2,
            "H": size["hidden_dim"],
            "I": 4 * size["hidden_dim"],
        },
        count=functools.partial(
            num_parameters,
            patch_size=size["patch_size"],
            num_layers=size["num_layers"],
            hidden_dim=size["hidden_dim"],
        ),
    )
    for name, size in SIZES.items()
}
