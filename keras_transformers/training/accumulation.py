"""One update per batch, whether it is divided into parts, among replicas, or both.

Keras averages a loss over what a replica sees at once and then averages these means. Here sums are
divided by the weights of the whole batch, over all parts and all replicas, so that every token
counts the same. `distributed.prepare` puts these steps into a model.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_transformers.dependencies.private_api import compile_loss
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.training.r_drop import check_losses, r_drop_loss

Tree = Any  # a tensor, or tensors in dicts, lists and tuples


@dataclasses.dataclass(frozen=True)
class _Batch:
    """A replica's share of a batch, and the totals that weigh it against the other shares.

    Attributes:
        data: inputs, targets and sample weights (or None): trees of tensors, rows first.
        rows: number of rows; an int if it is static.
        all_rows: number of rows on all replicas, float32.
        counted: number of those rows that losses count, float32.
        totals: sum of the weights over all replicas, float32, for each loss that divides by them.
    """

    data: tuple[Tree, Tree, Tree]
    rows: Tensor | int
    all_rows: Tensor
    counted: Tensor
    totals: Mapping[str, Tensor]


_Sums = tuple[list[Tensor], list[Tensor]]  # gradients and losses
# Called with a part and the sums so far; returns them with the part's added.
_AddPart = Callable[[_Batch, list[Tensor], list[Tensor]], _Sums]


class WholeBatchSteps:
    """Trains and evaluates on a replica's share of a batch.

    Logged losses, metrics and the number of updates are those of the whole batch; only dropout
    draws different masks. Masks that Keras passes from layer to layer do not affect the losses. A
    share without rows is skipped.

    Args:
        model: compiled, with `loss` a dict from outputs to `keras.losses.Loss` objects that
            average: by `sample_weight` ("mean_with_sample_weight") or over all values
            ("sum_over_batch_size", Keras' default).
        num_parts: number of parts of a share in training; the last one may be smaller.
        r_drop: weight of R-Drop's divergence; 0 trains with one pass.
        skip_empty_rows: whether losses count only the rows that have a weight, as if the others
            were not there.

    Raises:
        ValueError: the losses are not such a dict, or R-Drop does not know them.
    """

    def __init__(
        self,
        model: keras.Model,
        num_parts: int,
        *,
        r_drop: float = 0.0,
        skip_empty_rows: bool = False,
    ) -> None:
        self.model = model
        self.num_parts = num_parts
        self.losses = _Losses(model)
        self.r_drop = r_drop
        self.skip_empty_rows = skip_empty_rows
        if r_drop:
            check_losses(self.losses.losses)

    def train(self, data: Tree) -> None:
        """Updates the weights and this replica's metrics."""
        import tensorflow as tf

        model = self.model
        batch = self._batch(data)
        variables = model.trainable_variables
        reached = [False] * len(variables)  # by a gradient; Keras skips the others

        def add_part(part: _Batch, gradients: list[Tensor], values: list[Tensor]) -> _Sums:
            with tf.GradientTape() as tape:
                outputs = self._outputs(part.data[0])
                losses = self._losses_of(part, *outputs)
                scaled = model.optimizer.scale_loss(losses[0])
            added = tape.gradient(scaled, variables)
            reached[:] = [gradient is not None for gradient in added]
            self._measure(part, outputs[0])
            gradients = [
                g if a is None else g + tf.cast(tf.convert_to_tensor(a), g.dtype)
                for g, a in zip(gradients, added, strict=True)
            ]
            return gradients, [value + loss for value, loss in zip(values, losses, strict=True)]

        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        gradients, values = self._in_parts(batch, self.num_parts, add_part, zeros)
        gradients = _sum_over_replicas(gradients)
        pairs = zip(gradients, variables, reached, strict=True)
        model.optimizer.apply_gradients([(g if r else None, v) for g, v, r in pairs])
        self._log(batch, values)

    def test(self, data: Tree) -> None:
        """Updates this replica's metrics."""
        batch = self._batch(data)

        def add_part(part: _Batch, none: list[Tensor], values: list[Tensor]) -> _Sums:
            outputs = self.model(part.data[0], training=False)
            losses = self._losses_of(part, outputs)
            self._measure(part, outputs)
            return none, [value + loss for value, loss in zip(values, losses, strict=True)]

        _, values = self._in_parts(batch, 1, add_part, [])
        self._log(batch, values)

    def _batch(self, data: Tree) -> _Batch:
        import tensorflow as tf

        inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(data)
        loss = compile_loss(self.model)
        if not loss.built:  # Keras' own train_step does the same
            loss.build(targets, self.model.output)
        first = tf.nest.flatten(inputs)[0]
        rows = first.shape[0] if first.shape[0] is not None else tf.shape(first)[0]
        local = self.losses.totals(weights)
        skips = self.skip_empty_rows and weights is not None
        counted = _rows_with_weight(weights) if skips else rows
        all_rows, counted, *totals = _sum_over_replicas(
            [tf.cast(rows, tf.float32), tf.cast(counted, tf.float32), *local.values()]
        )
        return _Batch(
            (inputs, targets, weights),
            rows,
            all_rows,
            counted,
            dict(zip(local, totals, strict=True)),
        )

    def _in_parts(self, batch: _Batch, num_parts: int, add: _AddPart, start: list[Tensor]) -> _Sums:
        """Calls `add` for each part, passing on what it returned for the previous one."""
        import tensorflow as tf

        values = [tf.zeros(())] * (1 + len(self.losses.names))
        is_static = isinstance(batch.rows, int)
        # The loop below skips an empty share. XLA cannot compile it for rows that vary, and without
        # a strategy it needs none: it compiles each number of rows, and no batch is empty.
        alone = tf.distribute.get_replica_context().num_replicas_in_sync == 1
        if num_parts == 1 and ((is_static and batch.rows) or (self.model.jit_compile and alone)):
            return add(batch, start, values)
        # XLA can only compile parts of one known size.
        is_even = is_static and batch.rows and batch.rows % num_parts == 0
        if self.model.jit_compile and not is_even:
            raise ValueError(
                f"jit_compile=True needs a fixed number of rows per batch, a multiple of "
                f"{num_parts} on each replica; found {batch.rows if is_static else 'any number'}: "
                "drop the last batch, or compile with jit_compile=False"
            )
        size = -(-batch.rows // num_parts)

        def add_part(
            first: Tensor, *state: list[Tensor]
        ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
            rows = size if is_even else tf.minimum(size, batch.rows - first)
            data = tf.nest.map_structure(
                lambda tensor: None if tensor is None else _slice(tensor, first, rows), batch.data
            )
            return first + size, *add(dataclasses.replace(batch, data=data, rows=rows), *state)

        _, gradients, sums = tf.while_loop(
            lambda first, *_: first < batch.rows,
            add_part,
            (tf.constant(0), start, values),
            parallel_iterations=1,  # otherwise several parts are in memory at once
        )
        return gradients, sums

    def _outputs(self, inputs: Tree) -> list[Mapping[str, Tensor]]:
        """Returns one pass's outputs, or those of R-Drop's two, run as one on twice the rows."""
        import tensorflow as tf

        if not self.r_drop:
            return [self.model(inputs, training=True)]
        twice = tf.nest.map_structure(lambda tensor: tf.concat([tensor, tensor], axis=0), inputs)
        outputs = self.model(twice, training=True)
        halves = tf.nest.map_structure(lambda tensor: tf.split(tensor, 2, axis=0), outputs)
        return [{name: pair[i] for name, pair in halves.items()} for i in range(2)]

    def _losses_of(self, part: _Batch, *outputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Returns what a part adds to the whole batch's loss, and to the loss of each output.

        Args:
            part: part of the batch.
            outputs: those of one pass, or of R-Drop's two.
        """
        import tensorflow as tf

        _, targets, weights = part.data
        rows = tf.cast(part.rows, tf.float32)
        share = tf.math.divide_no_nan(rows, part.counted)
        losses = self.losses(targets, outputs, weights, part.totals, share, r_drop=self.r_drop)
        # Losses that layers add, such as regularization.
        of_layers = [rows / part.all_rows * tf.cast(loss, tf.float32) for loss in self.model.losses]
        return [tf.add_n([*self.losses.weighted(losses), *of_layers]), *losses]

    def _measure(self, part: _Batch, outputs: Mapping[str, Tensor]) -> None:
        inputs, targets, weights = part.data
        self.model.compute_metrics(inputs, targets, outputs, weights)

    def _log(self, batch: _Batch, values: list[Tensor]) -> None:
        """Adds this replica's part of the batch's losses to the means that Keras shows.

        As in Keras, a batch counts by its rows in the total loss, and once in those of outputs.
        """
        import tensorflow as tf

        rows = tf.cast(batch.rows, tf.float32)
        # Keras' own metrics, which it resets; it has one per output only if there are several.
        means = {metric.name: metric for metric in self.model.metrics}
        for name, value in zip(["loss", *self.losses.names], values, strict=True):
            if name in means:
                counts = batch.counted if name == "loss" else 1.0
                means[name].total.assign_add(value * counts)
                means[name].count.assign_add(rows / batch.all_rows * counts)


class _Losses:
    """A compiled model's losses, each as a sum over parts of the batch."""

    def __init__(self, model: keras.Model) -> None:
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
                raise ValueError(
                    f"the loss of {name!r} has reduction={loss.reduction!r}: take one that "
                    "averages, such as 'mean_with_sample_weight'"
                )
        factors = (model.get_compile_config() or {}).get("loss_weights") or {}
        self.losses: dict[str, keras.losses.Loss] = dict(by_output)
        self.factors = {name: float(factors.get(name, 1.0)) for name in by_output}
        self.names = [f"{name}_loss" for name in by_output]

    def weighted(self, values: list[Tensor]) -> list[Tensor]:
        """Returns the losses, each times its factor in `loss_weights`."""
        return [self.factors[n] * value for n, value in zip(self.losses, values, strict=True)]

    def totals(self, weights: Tree) -> dict[str, Tensor]:
        """Returns the sum of these rows' weights, for each loss that divides by it."""
        return {
            name: keras.ops.sum(keras.ops.cast(_of(weights, name), "float32"))
            for name, loss in self.losses.items()
            if loss.reduction == "mean_with_sample_weight" and _of(weights, name) is not None
        }

    def __call__(
        self,
        targets: Mapping[str, Tensor],
        passes: Sequence[Mapping[str, Tensor]],
        weights: Tree,
        totals: Mapping[str, Tensor],
        share: Tensor,
        *,
        r_drop: float,
    ) -> list[Tensor]:
        """Returns what a part with this share of the batch's rows adds to each loss."""
        terms = []
        for name, loss in self.losses.items():
            outputs = [outputs[name] for outputs in passes]
            if len(outputs) == 1:
                values = loss.call(targets[name], *outputs)
            else:
                values = r_drop_loss(loss, targets[name], outputs[0], outputs[1], r_drop)
            values = keras.ops.cast(values, "float32")
            weight = _of(weights, name)
            if weight is not None:
                values = values * _expand(keras.ops.cast(weight, "float32"), len(values.shape))
            if name in totals:  # 0 if all weights are 0
                mean = keras.ops.divide_no_nan(keras.ops.sum(values), totals[name])
            else:
                mean = keras.ops.mean(values) * share
            terms.append(mean)
        return terms


def _rows_with_weight(weights: Tree) -> Tensor:
    """Returns the number of rows with a weight above 0 in one of the trees' tensors (rows, ...)."""
    import tensorflow as tf

    largest = [
        tf.reduce_max(tensor, axis=list(range(1, len(tensor.shape))))
        for tensor in tf.nest.flatten(weights)
    ]
    return tf.math.count_nonzero(tf.reduce_max(tf.stack(largest), axis=0), dtype=tf.int32)


def _of(weights: Tree, name: str) -> Tensor | None:
    return weights.get(name) if isinstance(weights, Mapping) else weights


def _expand(weight: Tensor, rank: int) -> Tensor:
    """Appends axes of size 1 up to `rank`."""
    return keras.ops.reshape(weight, (*keras.ops.shape(weight), *[1] * (rank - len(weight.shape))))


def _slice(tensor: Tensor, first: Tensor, rows: Tensor | int) -> Tensor:
    """Returns `rows` rows from `first`; their number is static if `rows` is an int."""
    import tensorflow as tf

    others = [-1 if size is None else size for size in tensor.shape[1:]]
    return tf.slice(tensor, [first, *[0] * len(others)], [rows, *others])


def _sum_over_replicas(tensors: list[Tensor]) -> list[Tensor]:
    """Sums each tensor over all replicas; all of them get the sums."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return tensors
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)
