"""The programs that tests/training/test_distributed.py starts: trainings on several replicas.

    python replicas.py all FOLDER ADDRESS ADDRESS    "mirrored", and two workers at host:port
    python replicas.py stock FOLDER ADDRESS ADDRESS  the same for Keras without `prepare`
    python replicas.py precision FOLDER              the first of "mirrored" in lower precision
    python replicas.py table FOLDER                  how far replicas are from one, after "all"

"mirrored" is two logical CPUs in one process, and one replica alone. Each process writes its
results to an .npz file in FOLDER; the test compares them. Stock Keras is run to see whether it
still goes wrong. Most of the time goes into imports, done once for all processes, and into tracing:
what can share a trace does.
"""

import contextlib
import functools
import multiprocessing.connection
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.evaluation.perplexity import Perplexity
from keras_transformers.runs import clusters, workers
from keras_transformers.training import strategies
from keras_transformers.training.distributed import prepare
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.optimizers import adamw, lamb

RNG = np.random.default_rng(0)
ROWS, LENGTH, VOCABULARY, BATCH = 17, 5, 11, 8  # batches of 8, 8 and 1: that is none for one
TOKENS = RNG.integers(0, VOCABULARY, (ROWS, LENGTH))
LENGTHS = RNG.integers(1, LENGTH + 1, ROWS)
LENGTHS[12:16] = 0  # all that the second replica gets of the second batch is padding
WEIGHTS = (np.arange(LENGTH) < LENGTHS[:, None]).astype("float32")

OPTIMIZERS = {  # the norms to clip by are below what the gradients have
    "sgd": lambda: keras.optimizers.SGD(0.5),
    "adamw": lambda: adamw(1e-2, clip_norm=0.2),
    "lamb": lambda: lamb(1e-2, clip_norm=0.2),
    # Keras' own first scale, 2^15, overflows here, and six updates are too few to find another.
    "scaled adamw": lambda: keras.optimizers.LossScaleOptimizer(
        adamw(1e-2, clip_norm=0.2), initial_scale=2.0**8
    ),
}
PARTS = {"sgd": 1, "adamw": 3, "lamb": 1}  # of a batch, on several replicas; on one it is whole
SCORED = "sgd"  # with which evaluation and prediction are tried, which have no optimizer


def build(optimizer):
    """A model with a loss by token and one by row, a regularizer, a norm, rows that repeat."""
    keras.utils.set_random_seed(0)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    hidden = keras.layers.Embedding(VOCABULARY, 6)(token_ids)
    hidden = keras.layers.Dense(
        6, activation="tanh", kernel_regularizer=keras.regularizers.L2(0.01)
    )(hidden)
    hidden = keras.layers.LayerNormalization()(hidden)
    pooled = keras.ops.mean(hidden, axis=1)
    outputs = {
        "logits": keras.layers.Dense(VOCABULARY, name="logits", dtype="float32")(hidden),
        "label": keras.layers.Dense(2, use_bias=False, name="label", dtype="float32")(pooled),
    }
    model = keras.Model({"token_ids": token_ids}, outputs)
    model.compile(
        optimizer,
        loss={
            "logits": TokenCrossentropy(),
            "label": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        },
        loss_weights={"logits": 2.0, "label": 0.5},
        weighted_metrics={"logits": [Perplexity()], "label": ["accuracy"]},
        jit_compile=False,
    )
    return model


def data(*, shuffle=True):
    targets = {"logits": TOKENS[:, ::-1].copy(), "label": TOKENS[:, 0] % 2}
    weights = {"logits": WEIGHTS, "label": np.ones(ROWS, "float32")}
    rows = ({"token_ids": TOKENS}, targets, weights)
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(BATCH)
    return dataset.shuffle(3, seed=1) if shuffle else dataset  # another order in each epoch


def trained(scope, optimizer, parts=1, *, scored):
    """What a training leaves: its weights, figures of epochs, and if scored scores, predictions."""
    with scope:
        model = build(OPTIMIZERS[optimizer]())
    prepare(model, accumulate=parts)
    dev = data(shuffle=False)
    history = model.fit(data(), validation_data=dev if scored else None, epochs=2, verbose=0)
    found = {f"weight {i}": w for i, w in enumerate(model.get_weights())}
    found |= {f"log {name}": np.array(values) for name, values in history.history.items()}
    found["updates"] = model.optimizer.iterations.numpy()
    if scored:
        scores = model.evaluate(dev, return_dict=True, verbose=0)
        found |= {f"score {name}": np.array(value) for name, value in scores.items()}
        found["on batch"] = model.predict_on_batch({"token_ids": TOKENS[:5]})["label"]
        found["predictions"] = model.predict(dev, verbose=0)["label"]
    return found


def of_optimizers(name, scope, *, in_parts=True):
    """Trainings with each of them."""
    found = {}
    for optimizer, parts in PARTS.items():
        parts = parts if in_parts else 1
        results = trained(scope(), optimizer, parts, scored=optimizer == SCORED)
        found |= named(f"{name}/{optimizer}", results)
    return found


class Sum(keras.losses.Loss):
    """The mean over rows of what the model says."""

    def call(self, y_true, y_pred):
        return keras.ops.sum(y_pred, axis=-1)


def linear(scope, optimizer, x, *, dropout=0.0, stock=False, parts=1, epochs=1):
    """A model w x, w from 0, that minimizes the mean of its rows `x`, all in one batch.

    A step of SGD with rate 1 makes w minus the mean of the rows, after dropout.
    """
    keras.utils.set_random_seed(0)
    with scope:
        inputs = keras.Input((x.shape[1],), name="x")
        rows = keras.layers.Dropout(dropout)(inputs)
        output = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")(rows)
        model = keras.Model({"x": inputs}, {"y": output})
        model.compile(optimizer(), loss={"y": Sum()}, jit_compile=False)
    if not stock:
        prepare(model, accumulate=parts)
    model.fit(one_batch(x), epochs=epochs, shuffle=False, verbose=0)
    return model


def one_batch(x):
    return tf.data.Dataset.from_tensor_slices(({"x": x}, {"y": x[:, :1]})).batch(len(x))


def sgd(**options):
    return functools.partial(keras.optimizers.SGD, 1.0, **options)


def kernel(model):
    return model.get_weights()[0][:, 0]


def masks(strategy, *, stock=False):
    """Of 2 rows of 256 ones, one a replica: the share of those kept by both, one or none."""
    x = np.ones((2, 256), "float32")
    found = kernel(linear(strategy.scope(), sgd(), x, dropout=0.5, stock=stock))
    return np.array([(found == -value).mean() for value in (2, 1, 0)])


def resumed_masks(strategy):
    """Two updates, and two with all that one process would save in between.

    Of the three rows one replica has two, and of its two parts one more than the other.
    """
    x = np.ones((3, 64), "float32")
    whole = linear(strategy.scope(), sgd(), x, dropout=0.5, parts=2)
    again = linear(strategy.scope(), sgd(), x, dropout=0.5, parts=2, epochs=0)
    state = [v.numpy() for v in (*whole.variables, *whole.optimizer.variables)]
    for variable in again.variables:  # as of another process, that has drawn other numbers
        variable.assign(keras.ops.ones_like(variable))
    for variable, value in zip((*again.variables, *again.optimizer.variables), state, strict=True):
        variable.assign(value)
    for model in (whole, again):
        model.fit(one_batch(x), shuffle=False, verbose=0)
    return np.stack([kernel(whole), kernel(again)])


def clipped(strategy, *, stock=False):
    """The mean (0.5, 0.5) clipped by its norm to 0.6, where each replica has a norm of 0.5.

    And how many rows it predicts of a batch of 3.
    """
    x = np.eye(2, dtype="float32")
    model = linear(strategy.scope(), sgd(global_clipnorm=0.6), x, stock=stock)
    rows = model.predict_on_batch({"x": np.ones((3, 2), "float32")})["y"]
    return np.array([*kernel(model), len(rows)])


def overflown(strategy, *, stock=False):
    """Weights, and the scales of both replicas, after steps that overflow fp16 on the second."""
    keras.config.set_dtype_policy("mixed_float16")
    x = np.array([[0.0], [60_000.0]], "float32")
    model = linear(strategy.scope(), sgd(), x, stock=stock, epochs=3)
    keras.config.set_dtype_policy("float32")
    scales = strategy.experimental_local_results(model.optimizer.dynamic_scale.value)
    return np.array([*kernel(model), *(scale.numpy() for scale in scales)])


def accumulated_by_keras(strategy):
    """What goes wrong, "" if nothing."""
    x = np.ones((2, 4), "float32")
    optimizer = sgd(gradient_accumulation_steps=2)
    return error_of(lambda: linear(strategy.scope(), optimizer, x, stock=True))


def error_of(function):
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def rows_seen(strategy, dataset):
    """The ids that this process gets of a dataset of ids, with the number of the batch."""
    found = [
        [number, element]
        for number, batch in enumerate(strategy.experimental_distribute_dataset(dataset))
        for replica in strategy.experimental_local_results(batch)
        for element in replica.numpy()
    ]
    return np.array(found, "int64").reshape(-1, 2)


def token_batches():
    """Ids in batches of 5, 1, 4 and 7, as a limit of tokens makes them."""
    starts = tf.data.Dataset.from_tensor_slices(([0, 5, 6, 10], [5, 6, 10, 17]))
    return starts.map(tf.range)


def files(folder):
    """Ids from three files, in batches of 4."""
    paths = sorted(str(path) for path in Path(folder).glob("ids-*.txt"))
    lines = tf.data.Dataset.from_tensor_slices(paths).interleave(
        tf.data.TextLineDataset, cycle_length=1
    )
    return lines.map(tf.strings.to_number).batch(4)


def sharing(strategy, folder):
    """Who gets which rows, by the kind of batches and of sharing."""
    return {
        "rows/batches": rows_seen(strategy, tf.data.Dataset.range(17).batch(8)),
        "rows/token batches": rows_seen(strategy, token_batches()),
        "rows/element": rows_seen(strategy, strategies.shard(files(folder))),
        "rows/file": rows_seen(strategy, strategies.shard(files(folder), "file")),
    }


def mirrored(folder):
    """Two replicas in this process, and one."""
    strategy = two_replicas()
    found = of_optimizers("one", contextlib.nullcontext, in_parts=False)
    found |= of_optimizers("several", strategy.scope)
    for function in (masks, clipped, overflown):
        found[function.__name__] = function(strategy)
    found["resumed_masks"] = resumed_masks(strategy)
    return found | sharing(strategy, folder)


def stock(folder):
    """What stock Keras makes of two replicas in this process."""
    strategy = two_replicas()
    found = {f.__name__: f(strategy, stock=True) for f in (masks, clipped, overflown)}
    return found | {"accumulated": np.array(accumulated_by_keras(strategy))}


def precision(folder):
    """Two replicas in lower precision, and one in float32."""
    strategy = two_replicas()
    found = named("float32", trained(contextlib.nullcontext(), "adamw", scored=True))
    for policy, optimizer in (("mixed_bfloat16", "adamw"), ("mixed_float16", "scaled adamw")):
        keras.config.set_dtype_policy(policy)
        found |= named(policy, trained(strategy.scope(), optimizer, 3, scored=True))
    return found


def worker(folder):
    """A worker of several, each with one replica."""
    clusters.join((), None)
    strategy = strategies.create("multi_worker")
    found = {"is chief": np.array(workers.is_chief())}
    found |= of_optimizers("several", strategy.scope)
    found |= sharing(strategy, folder)
    model = linear(strategy.scope(), sgd(), np.ones((2, 4), "float32"))
    weights = Path(folder) / "chief.weights.h5"
    if workers.is_chief():  # alone: nothing of it may wait for the others
        model.save_weights(weights)
    model.set_weights([0 * weight for weight in model.get_weights()])
    workers.load_weights(model, weights)
    found["loaded"] = kernel(model)
    export = Path(folder) / "export"
    if workers.is_chief():
        time.sleep(2)
        export.touch()
    workers.leave_together()
    return found | {"waited": np.array(export.exists())}


def stock_worker(folder):
    """What stock Keras makes of several workers."""
    clusters.join((), None)
    strategy = strategies.create("multi_worker")
    x = np.ones((2, 4), "float32")
    wrong = error_of(lambda: linear(strategy.scope(), sgd(), x, stock=True))
    workers.leave_together()
    return {"fit": np.array(wrong)}


def table(folder):
    """The largest differences from one replica, by strategy, optimizer and kind of figure."""
    print("| strategy | optimizer | parts | weights | losses and metrics | predictions |")
    print("|---|---|---|---|---|---|")
    one = np.load(Path(folder) / "mirrored.npz")
    for process in ("mirrored", "worker0", "worker1"):
        several = np.load(Path(folder) / f"{process}.npz")
        for optimizer, parts in PARTS.items():
            cells = [process, optimizer, parts]
            for kinds in (("weight",), ("log", "score"), ("predictions", "on batch")):
                names = [
                    n for n in one if n.startswith(tuple(f"one/{optimizer}/{k}" for k in kinds))
                ]
                pairs = [(one[n], several[n.replace("one/", "several/")]) for n in names]
                differences = [np.abs(a - b).max() for a, b in pairs]
                cells.append(f"{max(differences):.1e}" if differences else "")
            print(f"| {' | '.join(map(str, cells))} |")


def two_replicas():
    strategy = strategies.create("mirrored")
    assert strategy.num_replicas_in_sync == 2
    return strategy


def named(prefix, arrays):
    return {f"{prefix}/{name}": value for name, value in arrays.items()}


def run(kind, folder, config=None):
    """Writes what one process finds; `config` is the TF_CONFIG of a worker."""
    name = kind
    if config is not None:
        os.environ[clusters.VARIABLE] = config
        name += str(clusters.from_environment().worker_index)
    else:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
    kinds = (mirrored, precision, stock, stock_worker, worker)
    results = {function.__name__: function for function in kinds}[kind](folder)
    np.savez(Path(folder) / name, **results)


def run_all(kind, kind_of_worker, folder, addresses):
    """Runs one process and the workers; one that fails ends the others, which may wait for it."""
    configs = [clusters.Cluster(addresses, index).config() for index in range(len(addresses))]
    context = multiprocessing.get_context("fork")  # TensorFlow survives it before its first work
    running = [
        context.Process(target=run, args=arguments)
        for arguments in [(kind, folder), *((kind_of_worker, folder, c) for c in configs)]
    ]
    for process in running:
        process.start()
    while running:
        multiprocessing.connection.wait([process.sentinel for process in running])
        if any(process.exitcode for process in running):
            for process in running:
                process.kill()
            sys.exit(1)
        running = [process for process in running if process.is_alive()]


if __name__ == "__main__":
    kind, folder, *addresses = sys.argv[1:]
    if kind == "table":
        table(folder)
    elif kind == "all":
        run_all("mirrored", "worker", folder, tuple(addresses))
    elif kind == "stock":
        run_all("stock", "stock_worker", folder, tuple(addresses))
    else:
        run(kind, folder)
