"""Where a training runs: one device, all devices of a machine, several machines, or TPUs."""

import functools
import os
from typing import Literal

import tensorflow as tf

from keras_transformers.dependencies import graph_errors

__all__ = ["Precision", "Shard", "StrategyName", "shard"]

StrategyName = Literal["default", "mirrored", "multi_worker", "tpu", "parameter_server"]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
Shard = Literal["element", "file"]


@functools.cache
def create(name: StrategyName) -> tf.distribute.Strategy:
    """Returns a strategy by name, the same object each time.

    "mirrored" takes all GPUs of this machine, or all logical CPUs if there are none. "multi_worker"
    spans several machines, which `runs.clusters.join` must name first.

    Raises:
        ValueError: the name is unknown, or there is no such device.
    """
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    if name == "multi_worker":
        return tf.distribute.MultiWorkerMirroredStrategy()
    if name == "tpu":
        return _tpu_strategy()
    if name == "parameter_server":
        raise ValueError(
            "strategy='parameter_server': Keras' fit does not run under it, and its stale updates "
            "would change the recipes' results; take strategy='multi_worker', in which all "
            "machines share each update"
        )
    raise ValueError(f"no strategy {name!r}: there are {', '.join(StrategyName.__args__)}")


def _tpu_strategy() -> tf.distribute.Strategy:
    """Returns a strategy for all cores of the TPU that TPU_NAME names, or of this machine's."""
    place = os.environ.get("TPU_NAME", "local")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=place)
        if place != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, OSError, tf.errors.OpError) as error:
        reason = graph_errors.sentence(str(error)).partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"strategy='tpu': no TPU at TPU_NAME={place!r} ({reason}); run on a TPU VM, with the "
            "package tensorflow-tpu in place of tensorflow"
        ) from error


def shard(dataset: tf.data.Dataset, by: Shard = "element") -> tf.data.Dataset:
    """Sets how several workers share a dataset of whole batches; each example goes to one worker.

    "element": each worker makes all batches and takes its share of each. The updates are those of
    one worker, but each worker runs the whole input pipeline.
    "file": each worker makes its share of a batch only from its own files. This is cheap, but the
    batches differ from those of one worker. There must be at least one file per worker, and the
    dataset's number of batches must be unknown, as after `repeat`.

    Args:
        dataset: batches for all workers together.
        by: "element" or "file".
    """
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = (
        policy.DATA if by == "element" else policy.FILE
    )
    return dataset.with_options(options)
