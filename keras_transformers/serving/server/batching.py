"""Runs requests for the same signature in batches, where a row costs less than alone.

Only texts of similar length share a batch, so that long ones do not delay short ones. A few worker
threads do the work. A batch runs when it is full or when its first request has waited
`batch_timeout_s`; while all workers are busy, batches grow. A request waits for others only if the
previous one found some: a client that sends texts one by one gets immediate answers.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from keras_transformers.serving.protocol.errors import Code, RequestError, as_request_error
from keras_transformers.serving.protocol.requests import rows_of
from keras_transformers.serving.protocol.signatures import Arrays, SignatureInfo
from keras_transformers.serving.server.saved_models import SavedModel

__all__ = ["BatchingOptions"]

Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class BatchingOptions:
    """How requests are batched.

    Attributes:
        enabled: False runs every request alone.
        max_batch_size: maximum rows in a batch made of several requests.
        batch_timeout_s: the longest time that a request waits for others, once there are any.
        allowed_batch_sizes: row counts to pad batches to, for graphs that are compiled for each
            size; ascending, ending with max_batch_size. The padding repeats the first row, and its
            answers are dropped. None turns padding off.
        num_threads: how many batches run at the same time.

    Raises:
        ValueError: a number is out of range, or the allowed sizes do not fit.
    """

    enabled: bool = True
    max_batch_size: int = 32
    batch_timeout_s: float = 0.001
    allowed_batch_sizes: tuple[int, ...] | None = None
    num_threads: int = 2

    def __post_init__(self) -> None:
        if self.max_batch_size < 1 or self.num_threads < 1 or self.batch_timeout_s < 0:
            raise ValueError(
                f"max_batch_size {self.max_batch_size}, num_threads {self.num_threads}, "
                f"batch_timeout_s {self.batch_timeout_s}: must be at least 1, 1 and 0"
            )
        sizes = self.allowed_batch_sizes
        if sizes is not None and (
            list(sizes) != sorted(set(sizes))
            or not sizes
            or sizes[0] < 1
            or sizes[-1] != self.max_batch_size
        ):
            raise ValueError(
                f"allowed_batch_sizes {sizes}: they must ascend and end with max_batch_size "
                f"{self.max_batch_size}"
            )

    def padded(self, rows: int) -> int:
        """Returns the number of rows to pad a batch of `rows` to."""
        allowed = [size for size in self.allowed_batch_sizes or () if size >= rows]
        return min(allowed, default=rows)


@dataclass
class _Task:
    """One request to run.

    Attributes:
        inputs: name -> array.
        rows: the first dimension of all arrays; None if the request must run alone.
        deadline: a time of time.monotonic.
        future: receives the outputs or the error.
        since: when the request was submitted, by time.monotonic.
    """

    inputs: Arrays
    rows: int | None
    deadline: float
    future: "Future[Outputs]" = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)


@dataclass
class _Queue:
    """Tasks that may run together, oldest first."""

    model: SavedModel
    signature: SignatureInfo
    tasks: deque[_Task] = field(default_factory=deque)

    def ready_at(self, options: BatchingOptions) -> float:
        """Returns when the first batch should run, if it waits for others; 0 means now."""
        head = self.tasks[0]
        full = head.rows is None or sum(t.rows or 0 for t in self.tasks) >= options.max_batch_size
        return 0.0 if full else head.since + options.batch_timeout_s

    def pop(self, max_batch_size: int) -> list[_Task]:
        """Removes and returns the tasks of one batch, at least one."""
        batch = [self.tasks.popleft()]
        rows = batch[0].rows
        while (
            rows is not None and self.tasks and rows + (self.tasks[0].rows or 0) <= max_batch_size
        ):
            batch.append(self.tasks.popleft())
            rows += batch[-1].rows or 0
        return batch


class Scheduler:
    """Runs requests on worker threads, in batches.

    Args:
        options: see `BatchingOptions`.
        max_waiting: how many requests may wait; further ones are rejected.
        on_batch: called before each batch with its numbers of requests and rows.
    """

    def __init__(
        self,
        options: BatchingOptions,
        *,
        max_waiting: int = 256,
        on_batch: Callable[[int, int], None] = lambda requests, rows: None,
    ) -> None:
        self._options = options
        self._max_waiting = max_waiting
        self._on_batch = on_batch
        self._queues: dict[Hashable, _Queue] = {}
        self._num_waiting = 0  # requests that no worker has taken yet
        self._has_company = True  # whether several were waiting when the last batch was taken
        self._closed = False
        self._condition = threading.Condition()
        self._threads = [
            threading.Thread(target=self._work, name=f"serving-{i}", daemon=True)
            for i in range(options.num_threads)
        ]

    def start(self) -> None:
        """Starts the threads; requests may be submitted earlier."""
        for thread in self._threads:
            thread.start()

    def submit(
        self, model: SavedModel, signature: SignatureInfo, inputs: Arrays, *, deadline: float
    ) -> "Future[Outputs]":
        """Queues a request.

        Args:
            model: the model to run; it must stay open until the future is done.
            signature: one of the model's signatures.
            inputs: name -> array, as the signature takes them.
            deadline: a time of time.monotonic; a request still waiting then does not run.

        Returns:
            A future of the outputs or a RequestError.

        Raises:
            RequestError: too many requests are waiting, or the scheduler is closed.
        """
        rows = rows_of(inputs) if self._options.enabled and signature.takes_batches else None
        if rows is not None and not 0 < rows <= self._options.max_batch_size:
            rows = None
        task = _Task(inputs, rows, deadline)
        # Rows of different lengths do not fit into one array.
        shapes = tuple(array.shape[1:] for _, array in sorted(inputs.items()))
        key = (model, signature.name, rows is None, shapes, _length_class(inputs))
        with self._condition:
            if self._closed:
                raise RequestError(Code.UNAVAILABLE, "the server is stopping")
            if self._num_waiting >= self._max_waiting:
                raise RequestError(
                    Code.RESOURCE_EXHAUSTED, f"{self._num_waiting} requests are already waiting"
                )
            self._queues.setdefault(key, _Queue(model, signature)).tasks.append(task)
            self._num_waiting += 1
            self._condition.notify()
        return task.future

    def close(self) -> None:
        """Rejects new requests, answers the waiting ones, and ends the threads."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            queue, batch = taken
            tasks = [task for task in batch if _may_run(task)]
            if tasks:
                self._run(queue, tasks)
            del taken, queue, batch, tasks  # so that an idle worker keeps no model alive

    def _take(self) -> tuple[_Queue, list[_Task]] | None:
        """Waits for a batch to run; returns None once the scheduler is closed and empty."""
        with self._condition:
            while True:
                now = time.monotonic()
                waits = self._has_company and not self._closed
                due = [
                    (
                        queue.ready_at(self._options) if waits else 0.0,
                        queue.tasks[0].since,
                        key,
                    )
                    for key, queue in self._queues.items()
                ]
                ready = [item for item in due if item[0] <= now]
                if ready:
                    return self._pop(min(ready, key=lambda item: item[1])[2])
                if self._closed and not due:
                    return None
                next_due = min((item[0] for item in due), default=None)
                self._condition.wait(None if next_due is None else next_due - now)

    def _pop(self, key: Hashable) -> tuple[_Queue, list[_Task]]:
        queue = self._queues[key]
        self._has_company = self._num_waiting > 1
        batch = queue.pop(self._options.max_batch_size)
        self._num_waiting -= len(batch)
        if not queue.tasks:
            del self._queues[key]
        if self._queues:
            self._condition.notify()  # this worker is now busy, so wake another for the rest
        return queue, batch

    def _run(self, queue: _Queue, tasks: Sequence[_Task]) -> None:
        """Runs tasks together or, if that fails, one by one, so that a bad task fails alone."""
        try:
            outputs = self._outputs(queue, tasks)
        except Exception as error:  # the thread must survive any error of the runtime
            failure = as_request_error(error)
            if len(tasks) > 1 and failure.code != Code.DEADLINE_EXCEEDED:
                for task in tasks:
                    self._run(queue, [task])
            else:
                for task in tasks:
                    task.future.set_exception(failure)
            return
        for task, answer in zip(tasks, outputs, strict=True):
            task.future.set_result(answer)

    def _outputs(self, queue: _Queue, tasks: Sequence[_Task]) -> list[Outputs]:
        timeout_s = max(task.deadline for task in tasks) - time.monotonic()
        rows = [task.rows or 0 for task in tasks]
        padded = self._options.padded(sum(rows)) if tasks[0].rows else 0
        self._on_batch(len(tasks), sum(rows))
        if padded <= rows[0]:  # one task, no padding
            return [queue.model.run(queue.signature, tasks[0].inputs, timeout_s=timeout_s)]
        inputs = {}
        for name in tasks[0].inputs:
            parts = [task.inputs[name] for task in tasks]
            parts += [parts[0][:1]] * (padded - sum(rows))
            inputs[name] = np.concatenate(parts)
        outputs = queue.model.run(queue.signature, inputs, timeout_s=timeout_s)
        wrong = [name for name, array in outputs.items() if array.shape[:1] != (padded,)]
        if wrong:
            raise RequestError(
                Code.INTERNAL, f"outputs {wrong} do not have the {padded} rows of the inputs"
            )
        ends = np.cumsum(rows)
        return [
            {name: array[end - size : end] for name, array in outputs.items()}
            for size, end in zip(rows, ends, strict=True)
        ]


def _length_class(inputs: Arrays) -> int:
    """Returns 8 if the longest text has at most 255 bytes, 10 up to 1,023, 12 up to 4,095, ..."""
    texts = (text for array in inputs.values() if array.dtype == object for text in array.flat)
    longest = max(map(len, texts), default=0)
    return max(8, longest.bit_length() + longest.bit_length() % 2)


def _may_run(task: _Task) -> bool:
    """Returns whether the task is still wanted; fails it if its deadline has passed."""
    if not task.future.set_running_or_notify_cancel():
        return False
    if task.deadline <= time.monotonic():
        task.future.set_exception(
            RequestError(Code.DEADLINE_EXCEEDED, "the deadline passed while the request waited")
        )
        return False
    return True
