"""Where a training runs: on one device, on those of a machine, on several machines, on TPUs.

`Scaling` is what recipes inherit: the same options, with the same meaning, in all of them. A batch
size is always that of all replicas together, and of one part of it where gradients accumulate.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import keras
import tensorflow as tf

from keras_transformers.runs import clusters
from keras_transformers.runs import preemption
from keras_transformers.training.distributed import prepare
from keras_transformers.runs.resume.callback import Resumable

StrategyName = Literal["default", "mirrored", "multi_worker", "tpu", "parameter_server"]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
Shard = Literal["element", "file"]
T = TypeVar("T")

# Options of `Scaling` that say where a process runs, not what it computes: a run that goes on may
# have others, and those of one run differ from worker to worker.
PLACE = ("workers", "worker_index")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaling:
    """A recipe's configuration begins with these; they mean the same in all of them."""

    strategy: StrategyName = "default"  # default: one device; see docs/distributed_training.md
    workers: tuple[str, ...] = ()  # of multi_worker: host:port of each, the same list everywhere
    worker_index: int | None = None  # which of them this process is
    precision: Precision = "float32"  # mixed_bfloat16 is the one to take under a strategy
    accumulate: int = 1  # so many batches make one update, the same as of one so much larger

    def begin_strategy(self) -> None:
        """Joins the other workers, sets the precision. Call it before TensorFlow has work to do.

        From now on what is `Resumable` ends with status 75 if it is told to stop, or if another
        worker is gone; see `preemption`.

        Raises:
            ValueError: an option is wrong, or there is no such cluster or device.
        """
        if self.accumulate < 1:
            raise ValueError(f"--accumulate {self.accumulate}: not 1 or more")
        if self.strategy == "multi_worker":
            clusters.join(self.workers, self.worker_index)
        elif self.workers or self.worker_index is not None:
            raise ValueError(
                f"--workers and --worker-index are of --strategy multi_worker, not {self.strategy}"
            )
        elif (cluster := clusters.from_environment()) and len(cluster.workers) > 1:
            raise ValueError(
                f"{clusters.VARIABLE} names {len(cluster.workers)} workers, and each would train "
                f"alone under --strategy {self.strategy}: give --strategy multi_worker, or unset it"
            )
        if isinstance(self, Resumable) and self.strategy == "multi_worker":
            preemption.leave_with_the_others()
        create(self.strategy)
        if isinstance(self, Resumable):
            # Not before: while TensorFlow waits for the other workers Python hears no signal.
            preemption.leave_on_termination()
        keras.config.set_dtype_policy(self.precision)

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Where the model is to be built and compiled."""
        if self.strategy == "default":
            return contextlib.nullcontext()
        return create(self.strategy).scope()

    def prepare(self, model: keras.Model) -> None:
        """Makes `fit` of the compiled model right for these options; see `distributed.prepare`."""
        prepare(model, accumulate=self.accumulate)


@functools.cache
def create(name: StrategyName) -> tf.distribute.Strategy:
    """The strategy of that name; the same object each time.

    "mirrored" takes all GPUs of this machine, or all logical CPUs where there are none.
    "multi_worker" is one of several machines; `clusters.join` says which, before.

    Raises:
        ValueError: there is none of that name, or no such device.
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
            "--strategy parameter_server: Keras' fit does not run under it, and updates that come "
            "late make another training of it than these recipes were measured with; take "
            "--strategy multi_worker, which shares one update among all machines"
        )
    raise ValueError(f"no strategy {name!r}: there are {', '.join(StrategyName.__args__)}")


def _tpu_strategy() -> tf.distribute.Strategy:
    """All cores of the TPU that TPU_NAME names, or of the one in this machine."""
    place = os.environ.get("TPU_NAME", "local")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=place)
        if place != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, OSError, tf.errors.OpError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"--strategy tpu: no TPU at TPU_NAME={place!r} ({reason}); run on a TPU VM, with the "
            "package tensorflow-tpu in place of tensorflow"
        ) from error


def is_chief() -> bool:
    """Whether this process is the one of its training that writes files.

    True where there is but one.
    """
    cluster = clusters.from_environment()
    return cluster is None or cluster.worker_index == 0


def wait_for_all() -> None:
    """Returns when all workers are here; at once where there is but one."""
    cluster = clusters.from_environment()
    if cluster is not None and len(cluster.workers) > 1:
        create("multi_worker").reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0), axis=None)


def leave_together() -> None:
    """Returns when all workers are here, or have gone from here: the last thing of a program.

    The chief writes and exports while the others have nothing left to do. If it fails then, or is
    told to stop, they must not have ended well before: a scheduler would start it anew, alone, and
    it would wait for the others forever.
    """
    wait_for_all()
    with preemption.others_may_be_gone():  # the first to go would cut off who is still in the first
        wait_for_all()


def chief_first(make: Callable[[], T]) -> T:
    """What `make` returns; the chief calls it before the others do, who find what it wrote."""
    if is_chief():
        made = make()
        wait_for_all()
        return made
    wait_for_all()
    return make()


def load_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Loads a file that the chief wrote, once it has; all workers must see its folder."""
    wait_for_all()
    model.load_weights(Path(path))


def shard(dataset: tf.data.Dataset, by: Shard = "element") -> tf.data.Dataset:
    """How several workers share a dataset of whole batches; each example goes to one of them.

    "element": each worker makes all batches and takes its share of each: the updates are those of
    one worker, and the input pipeline costs each of them as much as it would cost one.
    "file": each worker reads its own files, and makes its share of a batch of these alone: cheap,
    with other batches than one worker would have. There must be a file or more for each, and the
    dataset must not say how many batches it has, as `repeat` does not.

    Args:
        dataset: of batches for all workers together.
        by: one of the two.
    """
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = (
        policy.DATA if by == "element" else policy.FILE
    )
    return dataset.with_options(options)
