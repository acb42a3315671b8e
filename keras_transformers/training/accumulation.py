"""Gradient accumulation: one update for a batch that is too large for the model at once."""

import functools
from collections.abc import Mapping
from typing import Any

import keras


def accumulate(model: keras.Model, num_parts: int) -> None:
    """Makes `model.fit` take each batch in parts, and update the weights once for all of them.

    The update is that of the whole batch, token by token: parts with more real tokens weigh more.
    (Keras' `gradient_accumulation_steps` gives each part the same weight, and counts parts as
    updates.) The losses in the logs, the metrics and the number of updates are those of the whole
    batches too; only dropout draws other masks. A batch that cannot be halved evenly has a smaller
    last part. Validation goes as before. Call it after `compile`, and again after another one. The
    losses see outputs and weights as they are: masks that Keras carries from layer to layer count
    nothing, and XLA is switched off.

        model.compile(optimizer, loss={"logits": TokenCrossentropy()}, ...)
        accumulate(model, 4)
        model.fit(batches_of_128)  # in parts of 32

    Args:
        model: compiled, with `loss` a dict from outputs to `keras.losses.Loss` objects that
            average: by `sample_weight` ("mean_with_sample_weight") or over all values
            ("sum_over_batch_size", Keras' default).
        num_parts: how many; 1 leaves the model as it is.

    Raises:
        ValueError: fewer parts than 1, losses that are no such dict, another backend than
            TensorFlow, or several replicas.
    """
    if num_parts < 1:
        raise ValueError(f"num_parts={num_parts}: a batch is taken in 1 part or more")
    if num_parts == 1:
        return
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "gradients are accumulated on TensorFlow only: set KERAS_BACKEND=tensorflow"
        )
    if model.distribute_strategy.num_replicas_in_sync > 1:
        raise ValueError(
            "gradients accumulate on one replica alone, not under a tf.distribute strategy"
        )
    losses = _Losses(model)
    model.jit_compile = False  # a part's size is known when it runs, which XLA does not take
    model.train_function = None  # one that an earlier `fit` made
    model.train_step = functools.partial(_train_step, model, losses, num_parts)


def _train_step(model: Any, losses: "_Losses", num_parts: int, data: Any) -> dict[str, Any]:
    """What replaces Keras' `train_step`."""
    import tensorflow as tf

    inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(data)
    batch_size = tf.shape(tf.nest.flatten(inputs)[0])[0]
    part_size = -(-batch_size // num_parts)
    totals = losses.totals(weights)
    if not model._compile_loss.built:  # Keras does that, and makes its means, in its own train_step
        model._compile_loss.build(targets, model.output)
    variables = model.trainable_variables
    reached = [False] * len(variables)  # by a gradient; Keras leaves the others alone

    def add_part(start: Any, gradients: Any, values: Any) -> tuple[Any, Any, Any]:
        def part(tree: Any) -> Any:
            stop = start + part_size
            return tf.nest.map_structure(lambda a: None if a is None else a[start:stop], tree)

        rows = tf.minimum(part_size, batch_size - start)
        share = tf.cast(rows / batch_size, tf.float32)
        with tf.GradientTape() as tape:
            outputs = model(part(inputs), training=True)
            found = losses(part(targets), outputs, part(weights), totals, share)
            # The layers' own losses, regularization for one.
            own = [share * tf.cast(loss, tf.float32) for loss in model.losses]
            total = tf.add_n([*losses.weighted(found), *own])
            scaled = model.optimizer.scale_loss(total)
        added = tape.gradient(scaled, variables)
        model.compute_metrics(part(inputs), part(targets), outputs, part(weights))
        reached[:] = [gradient is not None for gradient in added]
        gradients = [
            g if a is None else g + tf.cast(tf.convert_to_tensor(a), g.dtype)
            for g, a in zip(gradients, added, strict=True)
        ]
        parts = [total, *found]
        values = [v + tf.cast(f, tf.float32) for v, f in zip(values, parts, strict=True)]
        return start + part_size, gradients, values

    _, gradients, values = tf.while_loop(
        lambda start, *_: start < batch_size,
        add_part,
        (
            tf.constant(0),
            [tf.zeros(variable.shape, variable.dtype) for variable in variables],
            [tf.zeros(())] * (1 + len(losses.names)),
        ),
        parallel_iterations=1,  # or several parts would be in memory at once
    )
    pairs = zip(gradients, variables, reached, strict=True)
    model.optimizer.apply_gradients([(g if r else None, v) for g, v, r in pairs])
    # Keras' own, which it resets; of single losses there are some where there are several.
    means = {metric.name: metric for metric in model.metrics}
    for name, value in zip(["loss", *losses.names], values, strict=True):
        if name in means:
            means[name].update_state(value, sample_weight=batch_size)
    return model.get_metrics_result()


class _Losses:
    """A compiled model's losses, each as a sum over parts of the batch."""

    def __init__(self, model: Any) -> None:
        by_output = model.loss
        if not isinstance(by_output, Mapping) or not all(
            isinstance(loss, keras.losses.Loss) for loss in by_output.values()
        ):
            raise ValueError(
                f"loss={by_output!r}: compile the model with a dict from its outputs to "
                "keras.losses.Loss objects"
            )
        for name, loss in by_output.items():
            if loss.reduction not in ("mean_with_sample_weight", "sum_over_batch_size"):
                raise ValueError(f"the loss of {name!r} is no mean: reduction={loss.reduction!r}")
        factors = (model.get_compile_config() or {}).get("loss_weights") or {}
        self.losses: dict[str, Any] = dict(by_output)
        self.factors = {name: float(factors.get(name, 1.0)) for name in by_output}
        self.names = [f"{name}_loss" for name in by_output]

    def weighted(self, values: list[Any]) -> list[Any]:
        """The losses, each times its `loss_weights`."""
        return [self.factors[n] * value for n, value in zip(self.losses, values, strict=True)]

    def totals(self, weights: Any) -> dict[str, Any]:
        """The weights of the whole batch, summed, for each loss that divides by them."""
        return {
            name: keras.ops.sum(keras.ops.cast(_of(weights, name), "float32"))
            for name, loss in self.losses.items()
            if loss.reduction == "mean_with_sample_weight" and _of(weights, name) is not None
        }

    def __call__(
        self, targets: Any, outputs: Any, weights: Any, totals: Mapping[str, Any], share: Any
    ) -> list[Any]:
        """What a part of the batch, a share of its rows, adds to each loss."""
        found = []
        for name, loss in self.losses.items():
            values = keras.ops.cast(loss.call(targets[name], outputs[name]), "float32")
            weight = _of(weights, name)
            if weight is not None:
                values = values * _expand(keras.ops.cast(weight, "float32"), len(values.shape))
            if name in totals:  # 0 where nothing weighs anything
                mean = keras.ops.divide_no_nan(keras.ops.sum(values), totals[name])
            else:
                mean = keras.ops.mean(values) * share
            found.append(mean)
        return found


def _of(weights: Any, name: str) -> Any:
    return weights.get(name) if isinstance(weights, Mapping) else weights


def _expand(weight: Any, rank: int) -> Any:
    """Axes of 1 behind the weight's own."""
    return keras.ops.reshape(weight, (*keras.ops.shape(weight), *[1] * (rank - len(weight.shape))))
