"""Corrects what Keras 3 gets wrong in `model.fit` under tf.distribute, for one model.

A model on one replica, without accumulation, is left alone. Otherwise `prepare` replaces methods of
this one model:

- Losses, gradients and metrics are those of the whole batch (`accumulation`). Keras averages the
  means of the replicas, and cannot accumulate gradients under a strategy (keras#20582).
- Gradients are summed over the replicas before the optimizer sees them. Keras clips them first
  (tensorflow#33929), and checks only one replica for fp16 overflow (keras#18666).
- Logged figures are computed across replicas, from sums and counts. Keras averages the replicas'
  figures, which gives NaN if one of them had nothing to count, and fails under several workers
  (keras#20585).
- Metrics are built from the data's element spec, not from a first batch, which Keras reduces over
  the replicas in a way that fails (keras#20585).
- Dropout draws different masks on each replica; Keras gives all of them the same seed
  (keras#20611).
- `predict_on_batch` returns each row once; Keras returns each row once per replica.

tests/training/test_distributed.py fails as soon as one of these is fixed upstream.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_transformers.dependencies.private_api import (
    own_strategy,
    replica_spec,
    seed_generators,
    set_symbolic_build,
    skip_gradient_sum,
    symbolic_build,
)
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.training.accumulation import Tree, WholeBatchSteps
from keras_transformers.training.recomputation import recompute_layers

_EpochIterator = Any  # Keras' private class: the batches of one epoch


def prepare(
    model: keras.Model,
    *,
    accumulate: int = 1,
    recompute: bool = False,
    r_drop: float = 0.0,
    static_shapes: bool = False,
) -> None:
    """Makes `fit` and `evaluate` correct under the strategy that the model was built in.

    Call it after each `compile`. The batch size counts all replicas together. Each replica takes a
    share; some shares may be one row larger, or empty.

        with strategy.scope():
            model = ...
            model.compile(optimizer, loss={"logits": TokenCrossentropy()}, ...)
        prepare(model, accumulate=4)
        model.fit(batches_of_128)  # on 2 replicas in 4 parts of 16 each

    Args:
        model: compiled, with `loss` a dict from outputs to `keras.losses.Loss` objects that average
            (see `accumulation.WholeBatchSteps`).
        accumulate: number of parts of a replica's share. The replica processes them in turn, for
            one update by the whole batch, in which all tokens count the same. (Keras'
            `gradient_accumulation_steps` gives each part the same weight, and counts each as an
            update.)
        recompute: whether layers recompute their activations; see `recompute_layers`.
        r_drop: the weight of R-Drop's divergence between two passes with different dropout, the
            paper's alpha; 0 for one pass. See `r_drop_loss`. A step takes twice the time.
        static_shapes: whether rows of weight 0 complete the batches, so that their shapes are few.
            No loss then counts these rows, whatever its reduction, and under a strategy each static
            shape gets a graph of its own.

    Raises:
        ValueError: `accumulate` is below 1, `r_drop` is below 0, the losses are not such a dict, or
            not known to R-Drop, `steps_per_execution` is above 1 under a strategy, the backend is
            not TensorFlow, or there are no layers to recompute.
    """
    if accumulate < 1:
        raise ValueError(f"accumulate={accumulate}: must be 1 or more parts per batch")
    if not 0 <= r_drop < math.inf:
        raise ValueError(f"r_drop={r_drop}: must be 0 or more, and finite; the paper has 5")
    if recompute:
        recompute_layers(model)
    is_tensorflow = keras.backend.backend() == "tensorflow"
    in_strategy = is_tensorflow and own_strategy(model) is not None
    if accumulate == 1 and not (r_drop or static_shapes or in_strategy):
        return
    if not is_tensorflow:
        raise ValueError(
            "gradients are accumulated, R-Drop trains, and rows of weight 0 are left out only on "
            "TensorFlow: set KERAS_BACKEND=tensorflow"
        )
    steps = WholeBatchSteps(model, accumulate, r_drop=r_drop, skip_empty_rows=static_shapes)
    model.train_function = model.test_function = None  # made by an earlier `fit`
    if not in_strategy:
        model.train_step = functools.partial(_step, model, steps.train)
        if static_shapes:
            model.test_step = functools.partial(_step, model, steps.test)
        return
    if model.steps_per_execution > 1:
        raise ValueError(
            f"steps_per_execution={model.steps_per_execution}: compile with 1 under a strategy"
        )
    train = functools.partial(_train_on_replica, steps, seed_generators(model))
    compile_step = functools.partial(_make_function, model, reduce_retracing=not static_shapes)
    model.make_train_function = functools.partial(compile_step, "train_function", train)
    model.make_test_function = functools.partial(compile_step, "test_function", steps.test)
    model.predict_on_batch = functools.partial(_predict_on_batch, _forward(model))
    set_symbolic_build(model, functools.partial(_build, model))
    # The gradients are already summed. An optimizer that scales the loss wraps another one.
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    skip_gradient_sum(optimizer)


def _step(model: keras.Model, step: Callable[[Tree], None], data: Tree) -> dict[str, Tensor]:
    """Replaces Keras' `train_step` and `test_step` on one replica."""
    step(data)
    return model.get_metrics_result()


def _train_on_replica(
    steps: WholeBatchSteps, generators: list[keras.random.SeedGenerator], data: Tree
) -> None:
    """The training step on one of several replicas."""
    _reseed(generators, steps.model.optimizer.iterations)
    steps.train(data)


def _make_function(
    model: keras.Model,
    attribute: str,
    on_replica: Callable[[Tree], None],
    force: bool = False,
    *,
    reduce_retracing: bool,
) -> Callable[[Iterator[Tree]], dict[str, Tensor]]:
    """Replaces `make_train_function` and `make_test_function`."""
    import tensorflow as tf

    if getattr(model, attribute) is not None and not force:
        return getattr(model, attribute)
    strategy = model.distribute_strategy

    def on_batch(batch: Tree) -> dict[str, Tensor]:
        strategy.run(on_replica, args=(batch,))
        return model.get_metrics_result()  # outside of `run`: summed over the replicas

    def on_iterator(iterator: tf.data.Iterator) -> dict[str, Tensor]:
        return on_batch(iterator.get_next())

    if not model.run_eagerly:
        compiled = functools.partial(
            tf.function, reduce_retracing=reduce_retracing, autograph=False
        )
        on_batch, on_iterator = compiled(on_batch), compiled(on_iterator)

    def function(iterator: Iterator[Tree]) -> dict[str, Tensor]:
        if isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)):
            return on_iterator(iterator)
        return on_batch(next(iterator))  # from `train_on_batch`

    setattr(model, attribute, function)
    return function


def _build(model: keras.Model, iterator: _EpochIterator = None, data_batch: Tree = None) -> None:
    """Replaces `_maybe_symbolic_build`, without taking a batch from a shuffled dataset."""
    import tensorflow as tf

    if iterator is not None:
        spec = iterator.data_adapter.get_tf_dataset().element_spec
        # A dataset that is distributed already has one spec per replica.
        data_batch = tf.nest.map_structure(replica_spec, spec)
    with model.distribute_strategy.scope():
        symbolic_build(model, data_batch)


def _forward(model: keras.Model) -> Callable[[Tree], Tree]:
    import tensorflow as tf

    forward = functools.partial(model, training=False)
    return forward if model.run_eagerly else tf.function(forward, reduce_retracing=True)


def _predict_on_batch(forward: Callable[[Tree], Tree], x: Tree) -> Tree:
    """Replaces `predict_on_batch`; runs only on this worker's first device."""
    import tensorflow as tf

    inputs = tf.nest.map_structure(tf.convert_to_tensor, x)
    return tf.nest.map_structure(lambda output: output.numpy(), forward(inputs))


def _reseed(generators: list[keras.random.SeedGenerator], step: Tensor) -> None:
    """Sets the random generators' counters from the step and the replica.

    A generator's state is a seed and a counter, and each replica has a copy. The seed is the same
    on all replicas, so a checkpoint needs only one. What a replica draws depends only on the seed,
    the step and the replica, not on how many rows it has processed.
    """
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
    place = tf.cast(step, tf.int64) * context.num_replicas_in_sync + replica
    for generator in generators:
        seed = tf.cast(generator.state.value[0], tf.int64)
        counter = tf.random.stateless_uniform((), tf.stack([seed, place]), 0, 2**30, dtype=tf.int64)
        generator.state.assign(tf.cast(tf.stack([seed, counter]), generator.state.dtype))
