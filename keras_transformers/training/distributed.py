"""`model.fit` under tf.distribute: what stock Keras 3 gets wrong there, mended for one model.

On one replica without accumulation a model stays as Keras made it. Otherwise `prepare` replaces
methods of that model, and of no other:

- The losses, gradients and metrics are those of the whole batch (`accumulation`): Keras averages
  the means of replicas, and cannot accumulate gradients under a strategy (keras#20582).
- Gradients are summed over replicas before the optimizer sees them. Keras clips them before
  (tensorflow#33929), and asks one replica alone whether fp16 overflowed (keras#18666).
- The figures in the logs are read across replicas, from their sums and counts. Keras averages the
  replicas' own figures, NaN where a replica had nothing to count; under several workers it fails
  to (keras#20585).
- What it takes to build metrics is read off the kind of the data, not from a first batch, which
  Keras reduces over replicas in a way that fails (keras#20585).
- Dropout draws other masks on each replica; Keras gives all the same seed (keras#20611).
- `predict_on_batch` answers once for each row; Keras answers once for each row and replica.

tests/training/test_distributed.py fails when one of these is mended upstream.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras

from keras_transformers.private_api import (
    own_strategy,
    replica_spec,
    seed_generators,
    set_symbolic_build,
    skip_gradient_sum,
    symbolic_build,
)
from keras_transformers.training.accumulation import WholeBatchSteps


def prepare(model: keras.Model, *, accumulate: int = 1) -> None:
    """Makes `fit` and `evaluate` right under the strategy that the model was built in.

    Call it after `compile`, and again after another one. The batch size is that of all replicas
    together: each takes its share, of which some may have one row more or none at all.

        with strategy.scope():
            model = ...
            model.compile(optimizer, loss={"logits": TokenCrossentropy()}, ...)
        prepare(model, accumulate=4)
        model.fit(batches_of_128)  # on 2 replicas in 4 parts of 16 each

    Args:
        model: compiled, with `loss` a dict from outputs to `keras.losses.Loss` objects that average
            (see `accumulation.WholeBatchSteps`).
        accumulate: how many parts a replica takes its share in, one after the other, for one
            update: that of the whole batch, token by token. (Keras' `gradient_accumulation_steps`
            gives each part the same weight, and counts parts as updates.)

    Raises:
        ValueError: fewer parts than 1, losses that are no such dict, several steps an execution
            under a strategy, or another backend than TensorFlow.
    """
    if accumulate < 1:
        raise ValueError(f"accumulate={accumulate}: a batch is taken in 1 part or more")
    is_tensorflow = keras.backend.backend() == "tensorflow"
    in_strategy = is_tensorflow and own_strategy(model) is not None
    if accumulate == 1 and not in_strategy:
        return
    if not is_tensorflow:
        raise ValueError(
            "gradients are accumulated on TensorFlow only: set KERAS_BACKEND=tensorflow"
        )
    steps = WholeBatchSteps(model, accumulate)
    model.train_function = model.test_function = None  # those that an earlier `fit` made
    if not in_strategy:
        model.train_step = functools.partial(_train_step, model, steps)
        return
    if model.steps_per_execution > 1:
        raise ValueError(
            f"steps_per_execution={model.steps_per_execution}: compile with 1 under a strategy"
        )
    train = functools.partial(_train_on_replica, steps, seed_generators(model))
    model.make_train_function = functools.partial(_make_function, model, "train_function", train)
    model.make_test_function = functools.partial(_make_function, model, "test_function", steps.test)
    model.predict_on_batch = functools.partial(_predict_on_batch, _forward(model))
    set_symbolic_build(model, functools.partial(_build, model))
    # They have been summed already; one that scales the loss has another inside.
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    skip_gradient_sum(optimizer)


def _train_step(model: Any, steps: WholeBatchSteps, data: Any) -> dict[str, Any]:
    """What replaces Keras' `train_step` on one replica."""
    steps.train(data)
    return model.get_metrics_result()


def _train_on_replica(steps: WholeBatchSteps, generators: list[Any], data: Any) -> None:
    """The same on one replica of several."""
    _reseed(generators, steps.model.optimizer.iterations)
    steps.train(data)


def _make_function(
    model: Any, attribute: str, on_replica: Callable[[Any], None], force: bool = False
) -> Callable[[Any], dict[str, Any]]:
    """What replaces `make_train_function` and `make_test_function`."""
    import tensorflow as tf

    if getattr(model, attribute) is not None and not force:
        return getattr(model, attribute)
    strategy = model.distribute_strategy

    def on_batch(batch: Any) -> dict[str, Any]:
        strategy.run(on_replica, args=(batch,))
        return model.get_metrics_result()  # outside of `run`: summed over the replicas

    def on_iterator(iterator: Any) -> dict[str, Any]:
        return on_batch(iterator.get_next())

    if not model.run_eagerly:
        compiled = functools.partial(tf.function, reduce_retracing=True, autograph=False)
        on_batch, on_iterator = compiled(on_batch), compiled(on_iterator)

    def function(iterator: Any) -> dict[str, Any]:
        if isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)):
            return on_iterator(iterator)
        return on_batch(next(iterator))  # of `train_on_batch`

    setattr(model, attribute, function)
    return function


def _build(model: Any, iterator: Any = None, data_batch: Any = None) -> None:
    """What replaces `_maybe_symbolic_build`; it takes no batch away from a shuffled dataset."""
    import tensorflow as tf

    if iterator is not None:
        spec = iterator.data_adapter.get_tf_dataset().element_spec
        # That of a dataset distributed already has one for each replica.
        data_batch = tf.nest.map_structure(replica_spec, spec)
    with model.distribute_strategy.scope():
        symbolic_build(model, data_batch)


def _forward(model: Any) -> Callable[[Any], Any]:
    import tensorflow as tf

    forward = functools.partial(model, training=False)
    return forward if model.run_eagerly else tf.function(forward, reduce_retracing=True)


def _predict_on_batch(forward: Callable[[Any], Any], x: Any) -> Any:
    """What replaces `predict_on_batch`: on this worker's first device, without the others."""
    import tensorflow as tf

    inputs = tf.nest.map_structure(tf.convert_to_tensor, x)
    return tf.nest.map_structure(lambda output: output.numpy(), forward(inputs))


def _reseed(generators: list[Any], step: Any) -> None:
    """Sets the counters of random numbers by the update's number and the replica's.

    A generator's state is a seed and a counter; each replica has its own copy. The seeds stay the
    same for all, so that a checkpoint needs but one of them: what a replica draws follows from the
    seed, the step and the replica, however many rows it had before.
    """
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
    place = tf.cast(step, tf.int64) * context.num_replicas_in_sync + replica
    for generator in generators:
        seed = tf.cast(generator.state.value[0], tf.int64)
        counter = tf.random.stateless_uniform((), tf.stack([seed, place]), 0, 2**30, dtype=tf.int64)
        generator.state.assign(tf.cast(tf.stack([seed, counter]), generator.state.dtype))
