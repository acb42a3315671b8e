"""Which weights to split over devices when a model is larger than one of them (JAX).

Each block's first products split their columns, and its second ones their rows, so that a block
needs one sum over the devices for its attention and one for its feed-forward network.

Source: Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053.
"""

import keras

__all__ = ["tensor_parallel_layout"]

_COLUMNS = r"(query|key|value|intermediate|gate|masked_lm_dense|pooler|output_projection)"


def tensor_parallel_layout(
    mesh: keras.distribution.DeviceMesh, *, axis: str = "model"
) -> keras.distribution.LayoutMap:
    """Returns the layout of this package's Transformers for `keras.distribution.ModelParallel`.

    Matrices of attention, feed-forward networks and token embeddings are split; norms, positions
    and the biases of second products are on every device. Whatever the number of devices, the model
    computes the same.

    Args:
        mesh: the devices, such as `DeviceMesh((2, 4), ["batch", "model"], devices)`.
        axis: the axis of the mesh over which to split. Its size must divide the hidden size, the
            inner size of the feed-forward networks, and the size of the keys.

    Returns:
        The layout map.

    Raises:
        ValueError: the mesh has no such axis.

    Example:
        >>> devices = keras.distribution.list_devices()
        >>> mesh = keras.distribution.DeviceMesh((1, 1), ["batch", "model"], devices[:1])
        >>> tensor_parallel_layout(mesh)["decoder_layer_0/feed_forward/gate/kernel"].axes
        (None, 'model')
    """
    if axis not in mesh.axis_names:
        raise ValueError(f"axis={axis!r}: the mesh has {', '.join(map(repr, mesh.axis_names))}")
    layout = keras.distribution.LayoutMap(mesh)
    layout[rf".*{_COLUMNS}/kernel"] = (None, axis)
    layout[rf".*{_COLUMNS}/bias"] = (axis,)
    layout[r".*(attention|feed_forward)/output/kernel"] = (axis, None)
    layout[r".*token_embedding/embeddings"] = (None, axis)
    return layout
