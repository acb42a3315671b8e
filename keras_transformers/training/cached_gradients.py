"""Losses over large batches in the memory of small ones."""

import functools

import keras

from keras_transformers.dependencies.private_api import seed_generators
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.training.accumulation import Tree

__all__ = ["cache_gradients"]


def cache_gradients(model: keras.Model, *, chunk: int) -> None:
    """Makes a model compute its outputs in chunks, and its loss over the whole batch.

    A loss that compares a batch's examples, such as `InBatchContrast`, learns more from larger
    batches, and accumulated gradients do not give it more to compare. Here a first pass computes
    all outputs and keeps only these; the loss over all of them gives their gradients; a second
    pass, with the same dropout, carries these back chunk by chunk. The update equals that of the
    whole batch (Gao et al. 2021, "GradCache", arXiv:2101.06983), in a third more time.

    Args:
        model: compiled, on one replica, with one output and losses over it.
        chunk: examples per pass.

    Raises:
        ValueError: `chunk` is below 1, the backend is not TensorFlow, or there is a strategy.
    """
    if chunk < 1:
        raise ValueError(f"chunk={chunk}: must be 1 or more examples")
    if keras.backend.backend() != "tensorflow":
        raise ValueError("gradients are cached only on TensorFlow: set KERAS_BACKEND=tensorflow")
    import tensorflow as tf

    if tf.distribute.in_cross_replica_context() and tf.distribute.has_strategy():
        raise ValueError("gradients are cached on one replica only: leave out the strategy")
    model.train_function = None
    model.train_step = functools.partial(_train_step, model, chunk, seed_generators(model))


def _train_step(
    model: keras.Model, chunk: int, generators: list[keras.random.SeedGenerator], data: Tree
) -> dict[str, Tensor]:
    import tensorflow as tf

    inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(data)
    rows = tf.shape(tf.nest.flatten(inputs)[0])[0]
    (output,) = model.output
    num_chunks = -(-rows // chunk)

    def part(index: Tensor) -> Tree:
        return tf.nest.map_structure(lambda x: x[index * chunk : (index + 1) * chunk], inputs)

    before = [tf.identity(generator.state) for generator in generators]

    def forward(index: Tensor, chunks: tf.TensorArray) -> tuple[Tensor, tf.TensorArray]:
        return index + 1, chunks.write(index, model(part(index), training=True)[output])

    chunks = tf.TensorArray(
        model.output[output].dtype,
        num_chunks,
        infer_shape=False,
        element_shape=tf.TensorShape(model.output[output].shape),
    )
    _, chunks = tf.while_loop(
        lambda index, _: index < num_chunks, forward, (0, chunks), parallel_iterations=1
    )
    outputs = chunks.concat()
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        loss = model.compute_loss(inputs, targets, {output: outputs}, weights, training=True)
        scaled = model.optimizer.scale_loss(loss)
    of_outputs = tape.gradient(scaled, outputs)
    for generator, state in zip(generators, before, strict=True):  # the same dropout again
        generator.state.assign(state)
    variables = model.trainable_variables

    def backward(index: Tensor, gradients: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        with tf.GradientTape() as tape:
            again = model(part(index), training=True)[output]
        added = tape.gradient(
            again, variables, output_gradients=of_outputs[index * chunk : (index + 1) * chunk]
        )
        return index + 1, [
            total if one is None else total + tf.cast(tf.convert_to_tensor(one), total.dtype)
            for total, one in zip(gradients, added, strict=True)
        ]

    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
    _, gradients = tf.while_loop(
        lambda index, _: index < num_chunks, backward, (0, zeros), parallel_iterations=1
    )
    model.optimizer.apply_gradients(zip(gradients, variables, strict=True))
    means = {metric.name: metric for metric in model.metrics}
    means["loss"].update_state(loss, sample_weight=rows)
    return model.compute_metrics(inputs, targets, {output: outputs}, weights)
