"""Runs requests for the same signature in batches, where a row costs less than alone.

Only texts of similar length share a batch, so that long ones do not delay short ones, and little of
it is padding. A batch is full at so many rows or, of an export that reads tokens, at so many tokens
(`benchmarks/batch_tokens.py`). It runs when it is full or when its first request has waited
`batch_timeout_s`; while there is no room for another run, batches grow. A request waits for others
only if the previous one found some: a client that sends texts one by one gets immediate answers.

How long a run takes shows only while it is in progress: that of a language model may have five
steps or fifty thousand. So `num_threads` limits the runs that have just begun. One that takes
longer than `long_run_s` is a long run: it makes room for another, and as long as it is in progress,
further runs of its model count as long from their start. No model starts a run when it would be a
long one and there are `num_long_runs` already. A run ends as soon as nobody waits for its answers.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from keras_transformers.serving.protocol.errors import Code, RequestError, as_request_error
from keras_transformers.serving.protocol.requests import rows_of
from keras_transformers.serving.protocol.signatures import Arrays, SignatureInfo
from keras_transformers.serving.server.cancellation import Cancellation
from keras_transformers.serving.server.saved_models import SavedModel

__all__ = ["BatchingOptions"]

Outputs = dict[str, np.ndarray]
_BYTES_PER_TOKEN, _SPECIAL_TOKENS = 4, 2  # of a row of text


@dataclass(frozen=True)
class BatchingOptions:
    """How requests are batched.

    Attributes:
        enabled: False runs every request alone.
        max_batch_size: maximum rows in a batch made of several requests, and maximum texts that a
            language model writes together.
        max_batch_tokens: maximum tokens in such a batch, each row counted with as many as the
            longest has, because attention also computes padding. It holds for signatures that
            read texts as tokens (`reads_tokens`), for which larger batches make no token cheaper.
            Four bytes of text count as a token.
        max_cache_bytes: how much memory the keys and values of the texts that a language model
            writes may take; further texts wait. A step needs it twice.
        batch_timeout_s: the longest time that a request waits for others, once there are any.
        allowed_batch_sizes: row counts to pad batches to, for graphs that are compiled for each
            size; ascending, ending with max_batch_size. The padding repeats the first row, and its
            answers are dropped. None turns padding off.
        num_threads: how many batches run at the same time, without long runs.
        num_long_runs: how many long runs may be in progress before a model that has one must wait
            with its next.
        long_run_s: after how many seconds a run is a long one.

    Raises:
        ValueError: a number is out of range, or the allowed sizes do not fit.
    """

    enabled: bool = True
    max_batch_size: int = 32
    max_batch_tokens: int = 1024
    max_cache_bytes: int = 2**30
    batch_timeout_s: float = 0.001
    allowed_batch_sizes: tuple[int, ...] | None = None
    num_threads: int = 2
    num_long_runs: int = 2
    long_run_s: float = 0.25

    def __post_init__(self) -> None:
        for name in (
            *("max_batch_size", "max_batch_tokens", "max_cache_bytes"),
            *("num_threads", "num_long_runs"),
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: must be at least 1")
        for name in ("batch_timeout_s", "long_run_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: must be at least 0")
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

    @property
    def max_runs_of_a_model(self) -> int:
        """How many runs of one model may be in progress."""
        return max(self.num_threads, self.num_long_runs)

    def room(self, tasks: Iterable["_Task"]) -> int:
        """Returns how many more rows fit into a batch of tasks; below 0, it has too many."""
        rows, longest = 0, 0
        for task in tasks:
            rows += task.rows or 0
            longest = max(longest, task.length)
        most = self.max_batch_size
        return (min(most, self.max_batch_tokens // longest) if longest else most) - rows

    def padded(self, rows: int) -> int:
        """Returns the number of rows to pad a batch of `rows` to."""
        allowed = [size for size in self.allowed_batch_sizes or () if size >= rows]
        return min(allowed, default=rows)


class Answer(Future[Outputs]):
    """The outputs of a request, or its RequestError, in the future."""

    is_abandoned = False
    run: "_Run | None" = None  # the run that computes it

    def abandon(self) -> None:
        """Gives the answer up: its run does not start, or ends unless others share it."""
        self.is_abandoned = True
        if not self.cancel() and self.run is not None:
            self.run.end_if_abandoned()


@dataclass(eq=False)
class _Task:
    """One request to run.

    Attributes:
        inputs: name -> array.
        rows: the first dimension of all arrays; None if the request must run alone.
        length: the tokens of its longest row; 0 if they do not count.
        deadline: a time of time.monotonic.
        answer: receives the outputs or the error.
        since: when the request was submitted, by time.monotonic.
    """

    inputs: Arrays
    rows: int | None
    length: int
    deadline: float
    answer: Answer = field(default_factory=Answer)
    since: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class _Run:
    """Tasks that run together.

    Attributes:
        model: the model.
        signature: one of its signatures.
        tasks: the tasks, at least one.
        is_long: whether it is a long run.
        since: when it began, by time.monotonic.
        cancellation: ends it.
    """

    model: SavedModel
    signature: SignatureInfo
    tasks: Sequence[_Task]
    is_long: bool = False
    since: float = field(default_factory=time.monotonic)
    cancellation: Cancellation = field(default_factory=Cancellation)

    def end_if_abandoned(self) -> None:
        """Ends the run if all of its answers are abandoned."""
        if all(task.answer.is_abandoned for task in self.tasks):
            self.cancellation.cancel()


@dataclass
class _Queue:
    """Tasks that may run together, oldest first."""

    model: SavedModel
    signature: SignatureInfo
    tasks: deque[_Task] = field(default_factory=deque)

    def ready_at(self, options: BatchingOptions) -> float:
        """Returns when the first batch should run, if it waits for others; 0 means now."""
        head = self.tasks[0]
        full = head.rows is None or options.room(self.tasks) <= 0
        return 0.0 if full else head.since + options.batch_timeout_s

    def pop(self, options: BatchingOptions) -> list[_Task]:
        """Removes and returns the tasks of one batch, at least one."""
        batch = [self.tasks.popleft()]
        while (
            batch[0].rows is not None and self.tasks and options.room([*batch, self.tasks[0]]) >= 0
        ):
            batch.append(self.tasks.popleft())
        return batch


class Scheduler:
    """Runs requests on threads, in batches.

    Args:
        options: see `BatchingOptions`.
        max_waiting: how many requests may wait; further ones are rejected.
        on_batch: called before each batch with its numbers of requests and rows.
        on_cancelled: called for each run that ended because nobody waited for it.
    """

    def __init__(
        self,
        options: BatchingOptions,
        *,
        max_waiting: int = 256,
        on_batch: Callable[[int, int], None] = lambda requests, rows: None,
        on_cancelled: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._max_waiting = max_waiting
        self._on_batch = on_batch
        self._on_cancelled = on_cancelled
        self._queues: dict[Hashable, _Queue] = {}
        self._runs: list[_Run] = []  # in progress, oldest first
        self._num_waiting = 0  # requests that no thread has taken yet
        self._has_company = True  # whether several were waiting when the last batch was taken
        self._closed = False
        self._condition = threading.Condition()
        self._num_idle = 0
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Starts the threads; requests may be submitted earlier."""
        with self._condition:
            for _ in range(self._options.num_threads):
                self._start_thread()

    def submit(
        self, model: SavedModel, signature: SignatureInfo, inputs: Arrays, *, deadline: float
    ) -> Answer:
        """Queues a request.

        Args:
            model: the model to run; it must stay open until the answer is done.
            signature: one of the model's signatures.
            inputs: name -> array, as the signature takes them.
            deadline: a time of time.monotonic; a request still waiting then does not run.

        Returns:
            The outputs or a RequestError, in the future.

        Raises:
            RequestError: too many requests are waiting, or the scheduler is closed.
        """
        rows = rows_of(inputs) if self._options.enabled and signature.takes_batches else None
        if rows is not None and not 0 < rows <= self._options.max_batch_size:
            rows = None
        counts = rows is not None and signature.reads_tokens
        task = _Task(inputs, rows, _length(inputs) if counts else 0, deadline)
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
        task.answer.add_done_callback(lambda _: self._forget(key, task))
        return task.answer

    def close(self) -> None:
        """Rejects new requests, answers the waiting ones, and ends the threads."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
            threads = list(self._threads)  # those that start from now on end by themselves
        for thread in threads:
            thread.join()

    def _start_thread(self) -> None:
        name = f"serving-{len(self._threads)}"
        self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
        self._threads[-1].start()

    def _forget(self, key: Hashable, task: _Task) -> None:
        """Removes a task that was cancelled while it waited."""
        if not task.answer.cancelled():
            return
        with self._condition:
            queue = self._queues.get(key)
            if queue is not None and task in queue.tasks:
                queue.tasks.remove(task)
                self._num_waiting -= 1
                if not queue.tasks:
                    del self._queues[key]

    def _work(self) -> None:
        while (run := self._take()) is not None:
            try:
                run.tasks = [task for task in run.tasks if _may_run(task)]
                if run.tasks:
                    self._run(run)
            finally:
                with self._condition:
                    self._runs.remove(run)
                    self._condition.notify()
            del run  # so that an idle thread keeps no model alive

    def _take(self) -> _Run | None:
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
                    if self._has_room_for(queue.model, now)
                ]
                ready = [item for item in due if item[0] <= now]
                if ready:
                    return self._pop(min(ready, key=lambda item: item[1])[2])
                if self._closed and not self._queues:
                    return None
                times = [item[0] for item in due]
                if self._queues:  # a run that becomes a long one makes room
                    times += [
                        run.since + self._options.long_run_s
                        for run in self._runs
                        if not run.is_long
                    ]
                self._num_idle += 1
                self._condition.wait(max(0.0, min(times) - now) if times else None)
                self._num_idle -= 1

    def _has_room_for(self, model: SavedModel, now: float) -> bool:
        """Returns whether a run of this model may begin."""
        for run in self._runs:
            run.is_long = run.is_long or now >= run.since + self._options.long_run_s
        num_long = sum(run.is_long for run in self._runs)
        if self._has_long_run(model):
            return num_long < self._options.num_long_runs
        return len(self._runs) - num_long < self._options.num_threads

    def _has_long_run(self, model: SavedModel) -> bool:
        return any(run.is_long and run.model is model for run in self._runs)

    def _pop(self, key: Hashable) -> _Run:
        """Takes a batch from a queue; the caller holds the lock."""
        queue = self._queues[key]
        self._has_company = self._num_waiting > 1
        batch = queue.pop(self._options)
        self._num_waiting -= len(batch)
        if not queue.tasks:
            del self._queues[key]
        run = _Run(queue.model, queue.signature, batch, self._has_long_run(queue.model))
        self._runs.append(run)
        if not self._num_idle:  # one must be left to see when a run becomes a long one
            self._start_thread()
        elif self._queues:
            self._condition.notify()  # this thread is now busy, so wake another for the rest
        return run

    def _run(self, run: _Run) -> None:
        """Runs tasks together or, if that fails, one by one, so that a bad task fails alone."""
        for task in run.tasks:
            task.answer.run = run
        run.end_if_abandoned()
        try:
            outputs = self._outputs(run)
        except Exception as error:  # the thread must survive any error of the runtime
            failure = as_request_error(error)
            if run.cancellation.is_cancelled:
                self._on_cancelled()
            elif len(run.tasks) > 1 and failure.code != Code.DEADLINE_EXCEEDED:
                for task in run.tasks:
                    self._run(_Run(run.model, run.signature, [task]))
                return
            for task in run.tasks:
                task.answer.set_exception(failure)
            return
        for task, answer in zip(run.tasks, outputs, strict=True):
            task.answer.set_result(answer)

    def _outputs(self, run: _Run) -> list[Outputs]:
        tasks = run.tasks
        rows = [task.rows or 0 for task in tasks]
        padded = self._options.padded(sum(rows)) if tasks[0].rows else 0
        self._on_batch(len(tasks), sum(rows))
        limits: dict[str, Any] = {
            "timeout_s": max(task.deadline for task in tasks) - time.monotonic(),
            "cancellation": run.cancellation,
        }
        if padded <= rows[0]:  # one task, no padding
            inputs = tasks[0].inputs
            return [run.model.run(run.signature, inputs, **limits)]
        inputs = {}
        for name in tasks[0].inputs:
            parts = [task.inputs[name] for task in tasks]
            parts += [parts[0][:1]] * (padded - sum(rows))
            inputs[name] = np.concatenate(parts)
        outputs = run.model.run(run.signature, inputs, **limits)
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


def _length(inputs: Arrays) -> int:
    """Returns about how many tokens the longest row of texts has."""
    num_bytes = sum(
        np.vectorize(len, otypes=[int])(array).reshape(len(array), -1).sum(axis=1)
        for array in inputs.values()
        if array.dtype == object and array.size
    )
    return int(np.max(num_bytes, initial=0)) // _BYTES_PER_TOKEN + _SPECIAL_TOKENS


def _length_class(inputs: Arrays) -> int:
    """Returns 8 if the longest text has at most 255 bytes, 10 up to 1,023, 12 up to 4,095, ..."""
    texts = (text for array in inputs.values() if array.dtype == object for text in array.flat)
    longest = max(map(len, texts), default=0)
    return max(8, longest.bit_length() + longest.bit_length() % 2)


def _may_run(task: _Task) -> bool:
    """Returns whether the task is still wanted; fails it if its deadline has passed."""
    if not task.answer.set_running_or_notify_cancel():
        return False
    if task.deadline <= time.monotonic():
        task.answer.set_exception(
            RequestError(Code.DEADLINE_EXCEEDED, "the deadline passed while the request waited")
        )
        return False
    return True
