"""Infers the arguments of an encoder's builder from the shapes of its arrays."""

import re
from typing import Any

from keras_transformers.convert.containers.arrays import Arrays

_TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")
_HEAD_DIM = 64  # in all models that Google published


def encoder_arguments(
    arrays: Arrays, family: str, *, num_heads: int | None, missing: str
) -> dict[str, Any]:
    """Returns the arguments of BERT's builder, with the tanh form of GELU.

    Args:
        arrays: the encoder's arrays, under Hugging Face's names.
        family: the prefix of the names, such as "bert".
        num_heads: the number of attention heads, if known; by default, the width divided by 64.
        missing: the file that would contain the number, for the error message.

    Raises:
        ValueError: the shapes are not those of an encoder.
    """
    shapes = arrays.shapes
    layers = {
        int(match[1])
        for name in shapes
        if (match := re.match(rf"{family}\.encoder\.layer\.(\d{{1,4}})\.", name))
    }
    first = f"{family}.encoder.layer.0.intermediate.dense.weight"
    names = [*(f"{family}.embeddings.{table}.weight" for table in _TABLES), first]
    sizes = [shapes.get(name, ()) for name in names]
    if any(len(size) != 2 for size in sizes) or layers != set(range(len(layers))):
        what = ", ".join(f"{name} {size}" for name, size in zip(names, sizes, strict=True))
        raise ValueError(
            f"{arrays.source} is not a whole encoder: it has {what}, and the layers "
            f"{sorted(layers)[:20]}"
        )
    (size, _), (positions, _), (segments, _), (inner, width) = sizes
    heads = num_heads or width // _HEAD_DIM
    if not heads or width % heads:
        raise ValueError(
            f"{arrays.source}: {heads} attention heads do not divide the width {width}: add the "
            f"model's {missing} beside it"
        )
    return {
        "vocabulary_size": size,
        "num_layers": len(layers),
        "num_heads": heads,
        "hidden_dim": width,
        "intermediate_dim": inner,
        "max_sequence_length": positions,
        "num_segments": segments,
        "activation": "gelu_approximate",
        "norm_epsilon": 1e-12,
    }
