"""Runs a job's stages of independent tasks: on this machine, or as an Apache Beam pipeline.

A task writes its results to files and returns counts, so any engine, number of workers and number
of attempts produce the same files.
"""

import dataclasses
import multiprocessing
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Protocol

from keras_transformers.dependencies.extras import needing
from keras_transformers.files import one_line
from keras_transformers.jobs import places

__all__ = ["Beam", "Engine", "Local", "Stage"]


@dataclasses.dataclass(frozen=True)
class Stage:
    """Holds tasks that may run at the same time, each independent of the others.

    Attributes:
        name: what the tasks do, in a few words.
        function: runs a task and returns name -> count, for monitoring. Workers import it. It
            raises ValueError if retrying cannot help.
        tasks: the function's arguments, one per call, all different.
    """

    name: str
    function: Callable[[Any], Mapping[str, int]]
    tasks: Sequence[Any]


class Engine(Protocol):
    """Runs stages."""

    def __call__(self, stages: Sequence[Stage], notes: places.Place) -> None:
        """Runs stage after stage.

        Args:
            stages: the stages to run; each starts when the one before it has ended.
            notes: a folder that the driver and all workers can reach, for errors.

        Raises:
            ValueError: a task raised it; no later stage has started.
        """


@dataclasses.dataclass(frozen=True)
class Local:
    """Runs tasks on this machine.

    Args:
        num_processes: how many tasks to run at the same time, each in its own process. These
            processes import the calling script, so above 1 it needs an `if __name__ == "__main__"`
            guard. 1 runs all tasks in this process.

    Raises:
        ValueError: the number is below 1.
    """

    num_processes: int = 1

    def __post_init__(self) -> None:
        if self.num_processes < 1:
            raise ValueError(f"num_processes={self.num_processes}: must be 1 or more")

    def __call__(self, stages: Sequence[Stage], notes: places.Place) -> None:
        """Runs stage after stage; see `Engine`."""
        if self.num_processes == 1:
            for stage in stages:
                for task in stage.tasks:
                    stage.function(task)
            return
        context = multiprocessing.get_context("spawn")  # TensorFlow cannot be forked
        is_quiet = "keras_transformers.quiet" in sys.modules
        with ProcessPoolExecutor(self.num_processes, context, _begin_process, (is_quiet,)) as pool:
            for stage in stages:
                list(pool.map(stage.function, stage.tasks))


@dataclasses.dataclass(frozen=True)
class Beam:
    """Runs tasks as one Apache Beam pipeline, on the runner that its options name.

    The workers need this package, and must be able to reach all places that the tasks read and
    write. The tasks' counts become Beam's counters in the namespace `keras_transformers`.

    Args:
        options: options of the pipeline, each name=value, such as `runner=DirectRunner`.

    Example:
        >>> Beam(("runner=FlinkRunner", "flink_master=localhost:8081")).flags()
        ['--runner=FlinkRunner', '--flink_master=localhost:8081']
    """

    options: tuple[str, ...] = ()

    def flags(self) -> list[str]:
        """Returns the options in the form of Beam's command line."""
        return [f"--{option.lstrip('-')}" for option in self.options]

    def __call__(self, stages: Sequence[Stage], notes: places.Place) -> None:
        """Runs stage after stage; see `Engine`."""
        with needing("beam"):
            import apache_beam as beam
            from apache_beam.options.pipeline_options import PipelineOptions
        folder = f"{notes}/errors-{uuid.uuid4().hex}"
        with beam.Pipeline(options=PipelineOptions(self.flags())) as pipeline:
            failed = pipeline | beam.Create([])
            for stage in stages:
                tasks = (
                    pipeline
                    | f"{stage.name}: list" >> beam.Create(stage.tasks)
                    | f"{stage.name}: spread" >> beam.Reshuffle()
                )
                # Beam completes a side input before it starts what uses it: stages do not overlap.
                new = tasks | stage.name >> beam.FlatMap(
                    _attempt, stage.function, folder, beam.pvalue.AsIter(failed)
                )
                failed = (failed, new) | f"{stage.name}: errors" >> beam.Flatten()
        messages = sorted(
            {places.read(f"{folder}/{name}")["error"] for name in places.names(folder)}
        )
        places.remove(folder)
        if messages:
            more = f" (and {len(messages) - 1} more errors)" if messages[1:] else ""
            raise ValueError(messages[0] + more)


def _attempt(
    task: Any,
    function: Callable[[Any], Mapping[str, int]],
    notes: places.Place,
    failed: Iterable[bool],
) -> list[bool]:
    """Runs a task on a Beam worker, unless one of an earlier stage has failed.

    Returns:
        An empty list on success. Errors other than ValueError go to Beam, which retries the task.
    """
    from apache_beam.metrics import Metrics

    if any(failed):
        return [True]
    try:
        counts = function(task)
    except ValueError as error:
        places.write(f"{notes}/{uuid.uuid4().hex}.json", {"error": one_line(error)})
        return [True]
    for name, count in counts.items():
        Metrics.counter("keras_transformers", name).inc(count)
    return []


def _begin_process(is_quiet: bool) -> None:
    """Sets TensorFlow up for one thread; it reads these when it first computes."""
    if is_quiet:
        import keras_transformers.quiet  # noqa: F401  before TensorFlow is loaded
    os.environ.update(
        CUDA_VISIBLE_DEVICES="-1", TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1"
    )
