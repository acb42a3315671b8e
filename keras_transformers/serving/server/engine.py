"""Admits requests of either protocol, finds their models and runs them within their timeout."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from keras_transformers.serving.protocol import tracing
from keras_transformers.serving.protocol.errors import Code, RequestError, invalid
from keras_transformers.serving.protocol.requests import rows_of
from keras_transformers.serving.protocol.signatures import Arrays, ModelSpec, SignatureInfo
from keras_transformers.serving.server.batching import BatchingOptions, Outputs, Scheduler
from keras_transformers.serving.server.decoding import Request
from keras_transformers.serving.server.decoding_threads import DecodingThreads
from keras_transformers.serving.server.limits import Limits
from keras_transformers.serving.server.metrics import Metrics
from keras_transformers.serving.server.models import Models, Version
from keras_transformers.serving.server.saved_models import SavedModel
from keras_transformers.serving.server.steps import Parts, beginning, outputs_of, texts_of

_SLOW_S = 1.0  # a first answer that takes longer is logged
_NEW_TOKENS = ("max_length", "max_new_tokens")  # inputs that limit how many tokens a model writes

_logger = logging.getLogger(__name__)


@dataclass
class Lease:
    """A version held to answer one request.

    Attributes:
        version: the version's number.
        model: the loaded model.
        run: runs one of the model's signatures.
        stream: answers one row in parts, while they are written: `text` is what to append, and so
            are the tokens, the other outputs are those so far. None if the signature does not
            write texts step by step, or there is not just one row.
    """

    version: int
    model: SavedModel
    run: Callable[[SignatureInfo, Arrays], Outputs]
    stream: Callable[[SignatureInfo, Arrays], AsyncGenerator[Outputs] | None]


class _Abandonable(Protocol):
    def abandon(self) -> None:
        """Gives an answer up."""


@dataclass
class Call:
    """A request in progress.

    Attributes:
        deadline: when the answer is due, by time.monotonic.
        model: the model's name; empty until the model is found.
        start: when the request arrived, by time.monotonic.
        is_abandoned: whether the client has left.
        answer: what the request waits for.
    """

    deadline: float
    model: str = ""
    start: float = field(default_factory=time.monotonic)
    is_abandoned: bool = False
    answer: _Abandonable | None = None

    def abandon(self) -> None:
        """Ends the request's work because its client has left; may be called by any thread."""
        self.is_abandoned = True
        if self.answer is not None:
            self.answer.abandon()


class Engine:
    """Answers the requests of both protocols.

    Args:
        models: the models to serve.
        limits: see `Limits`.
        batching: see `BatchingOptions`.

    Attributes:
        models: the models to serve.
        limits: the limits on requests.
        metrics: counts every request.
    """

    def __init__(self, models: Models, *, limits: Limits, batching: BatchingOptions) -> None:
        self.models = models
        self.limits = limits
        self.metrics = Metrics()
        self._lock = threading.Lock()
        self._num_requests = 0  # requests in progress
        self._held_bytes = 0  # the size of their bodies
        self._batching = batching
        self._decoding = DecodingThreads(
            most_rows=batching.max_batch_size,
            most_bytes=batching.max_cache_bytes,
            on_step=self.metrics.on_step,
            on_cancelled=self.metrics.on_cancelled,
        )
        self._scheduler = Scheduler(
            batching,
            max_waiting=limits.max_requests,
            on_batch=self.metrics.on_batch,
            on_cancelled=self.metrics.on_cancelled,
        )

    def start(self) -> None:
        """Starts loading models and running requests."""
        self._scheduler.start()
        self.models.start()

    @contextlib.contextmanager
    def call(self, api: str, entrypoint: str, timeout_s: float | None = None) -> Iterator[Call]:
        """Counts a request and sets its deadline.

        Args:
            api: "REST" or "GRPC".
            entrypoint: the method, such as "Predict".
            timeout_s: the client's timeout, if any; the shorter of this and the limit applies.

        Raises:
            RequestError: the block raises it.
        """
        limit = self.limits.timeout_s
        seconds = limit if timeout_s is None else min(limit, timeout_s)
        now = time.monotonic()
        call, status = Call(now + seconds, start=now), "OK"
        try:
            yield call
        except RequestError as error:
            status = error.code.name
            raise
        except Exception:
            status = Code.INTERNAL.name
            raise
        except BaseException:  # the server is being stopped
            status = Code.CANCELLED.name
            raise
        finally:
            duration = time.monotonic() - call.start
            self.metrics.on_request(call.model, api, entrypoint, status, duration)

    @contextlib.contextmanager
    def slot(self, size: int) -> Iterator[None]:
        """Admits a request once it has arrived, so that slow clients cannot hold a slot.

        Args:
            size: the size of its body in bytes.

        Raises:
            RequestError: too many requests are in progress, or their bodies together are too large.
        """
        limits = self.limits
        with self._lock:
            if self._num_requests >= limits.max_requests:
                raise _busy(f"{limits.max_requests} requests are in progress")
            if self._held_bytes + size > limits.max_held_bytes:
                raise _busy(f"the requests in progress have {self._held_bytes} bytes")
            self._num_requests += 1
            self._held_bytes += size
        try:
            with self.metrics.in_flight.track_inprogress():
                yield
        finally:
            with self._lock:
                self._num_requests -= 1
                self._held_bytes -= size

    @contextlib.contextmanager
    def lease(self, call: Call, spec: ModelSpec) -> Iterator[Lease]:
        """Finds the model of a request and keeps it loaded inside the block.

        Raises:
            RequestError: there is no such name, version or label.
        """
        if not spec.name:
            raise invalid("Missing model name in request.")
        model = self.models[spec.name]
        call.model = spec.name
        with model.lease(spec.version, spec.label) as (version, saved_model):

            def run(signature: SignatureInfo, inputs: Arrays) -> Outputs:
                return self._run(call, version, saved_model, signature, inputs)

            def stream(signature: SignatureInfo, inputs: Arrays) -> AsyncGenerator[Outputs] | None:
                begin = beginning(saved_model, signature)
                if begin is None or rows_of(inputs) != 1:
                    return None
                return self._stream(call, version, saved_model, signature, begin, inputs)

            yield Lease(version.number, saved_model, run, stream)

    def _run(
        self,
        call: Call,
        version: Version,
        model: SavedModel,
        signature: SignatureInfo,
        inputs: Arrays,
    ) -> Outputs:
        rows = max((array.shape[0] for array in inputs.values() if array.ndim), default=1)
        if rows > self.limits.max_rows:
            raise invalid(
                f"{rows} rows in one request, but the limit is {self.limits.max_rows}: split it"
            )
        self._check_new_tokens(inputs)
        begin = beginning(model, signature) if self._batching.enabled else None
        if begin is not None and rows_of(inputs) is not None:
            request = self._write(call, version, model, signature, begin, inputs)
            with tracing.span("decoding", model=call.model, rows=rows):
                self._result(call, model, begin, request, request.done)
            return outputs_of(request.texts, signature)
        self.metrics.on_rows(call.model, rows_of(inputs) or 1)
        # A run may outlive its request, and needs the model until it ends.
        version.acquire_again()
        try:
            answer = self._scheduler.submit(model, signature, inputs, deadline=call.deadline)
        except Exception:
            version.release()
            raise
        answer.add_done_callback(lambda _: version.release())
        start = time.monotonic()
        outputs = self._result(call, model, signature, answer, answer)
        if answer.run is not None:
            begun, together = answer.run.since, len(answer.run.tasks)
            details = {"model": call.model, "signature": signature.name, "rows": rows}
            tracing.record("queue wait", start, begun)
            tracing.record("batch run", begun, time.monotonic(), requests=together, **details)
        return outputs

    def _write(
        self,
        call: Call,
        version: Version,
        model: SavedModel,
        signature: SignatureInfo,
        begin: SignatureInfo,
        inputs: Arrays,
        on_news: Callable[[], None] | None = None,
    ) -> Request:
        """Lets a request's texts be written, step by step."""
        texts = texts_of(model, signature, begin, inputs, as_it_comes=on_news is not None)
        self.metrics.on_rows(call.model, len(texts))
        request = Request(texts, call.deadline, on_news or (lambda: None))
        version.acquire_again()
        request.done.add_done_callback(lambda _: version.release())
        try:
            self._decoding.submit(model, request)
        except RequestError as error:
            request.done.set_exception(error)
        return request

    async def _stream(
        self,
        call: Call,
        version: Version,
        model: SavedModel,
        signature: SignatureInfo,
        begin: SignatureInfo,
        inputs: Arrays,
    ) -> AsyncGenerator[Outputs]:
        self._check_new_tokens(inputs)
        start = time.monotonic()
        loop, has_news = asyncio.get_running_loop(), asyncio.Event()

        def on_news() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, because the server stops
                loop.call_soon_threadsafe(has_news.set)

        is_first = begin.name not in model.answered
        request = self._write(call, version, model, signature, begin, inputs, on_news)
        request.done.add_done_callback(lambda _: on_news())
        self._hold(call, request)
        try:
            parts = Parts(request.texts[0], signature)
            while not request.done.done():
                try:
                    async with asyncio.timeout(call.deadline - time.monotonic()):
                        await has_news.wait()
                except TimeoutError:
                    raise self._too_late(call, is_first=is_first) from None
                has_news.clear()
                if (part := parts.next()) is not None:
                    yield part
            self._result(call, model, begin, request, request.done)
            if (part := parts.next()) is not None:
                yield part
        finally:
            request.abandon()
            tracing.record("decoding", start, time.monotonic(), model=call.model, rows=1)

    def _hold(self, call: Call, answer: _Abandonable) -> None:
        call.answer = answer
        if call.is_abandoned:
            answer.abandon()

    def _result(
        self,
        call: Call,
        model: SavedModel,
        signature: SignatureInfo,
        answer: _Abandonable,
        future: "Future[Any]",
    ) -> Any:
        """Waits for what a request asked for, until its deadline."""
        self._hold(call, answer)
        is_first, start = signature.name not in model.answered, time.monotonic()
        try:
            outputs = future.result(timeout=max(0.0, call.deadline - time.monotonic()))
            if is_first and (seconds := time.monotonic() - start) > _SLOW_S:
                _logger.info(
                    "the first answer of %s to %r took %.1f s, because it optimized the graph; "
                    "`keras-transformers warm-up %s` does so before a version is served",
                    call.model,
                    signature.name,
                    seconds,
                    model.path,
                )
            return outputs
        except TimeoutError:
            answer.abandon()
            raise self._too_late(call, is_first=is_first) from None
        except CancelledError:
            raise RequestError(Code.CANCELLED, "the client has left") from None
        except RequestError as error:
            if error.code == Code.DEADLINE_EXCEEDED:  # the runtime's words are of notifications
                raise self._too_late(call, is_first=is_first) from None
            raise

    def _check_new_tokens(self, inputs: Arrays) -> None:
        limit = self.limits.max_new_tokens
        for name in _NEW_TOKENS:
            values = inputs.get(name)
            if values is not None and values.dtype.kind in "iu" and (values > limit).any():
                row = int(np.argmax(values.reshape(-1) > limit))
                raise invalid(
                    f"{name} is {values.reshape(-1)[row]} in row {row}, but this server writes at "
                    f"most {limit} new tokens: ask for fewer, or serve with a larger "
                    "--max-new-tokens"
                )

    def _too_late(self, call: Call, *, is_first: bool) -> RequestError:
        seconds, limit = call.deadline - call.start, self.limits.timeout_s
        # The difference of two times is not exact.
        is_limit = limit - seconds < 1e-3
        remedy = "serve with a larger --timeout" if is_limit else "wait longer"
        note = (
            ", or ask again, because a signature's first answer takes longest" if is_first else ""
        )
        return RequestError(
            Code.DEADLINE_EXCEEDED,
            f"no answer within {seconds:.3g} s: ask for less, or {remedy}{note}",
        )

    def statuses(self, spec: ModelSpec) -> list[Version]:
        """Returns the versions for a status request.

        Raises:
            RequestError: there are no such versions.
        """
        if not spec.name:
            raise invalid("Missing model name in request.")
        if spec.name not in self.models:
            raise RequestError(
                Code.NOT_FOUND, f"Could not find any versions of model {spec.name[:200]}"
            )
        model = self.models[spec.name]
        number = model.number_of(spec.version, spec.label)
        versions = model.versions()
        if number is not None:
            versions = [version for version in versions if version.number == number]
        if not versions:
            of = "any versions" if number is None else f"version {number}"
            raise RequestError(Code.NOT_FOUND, f"Could not find {of} of model {spec.name}")
        return versions

    def close(self) -> None:
        """Answers the requests in progress, then unloads the models."""
        self._scheduler.close()
        self._decoding.close()
        self.models.close()


def _busy(reason: str) -> RequestError:
    return RequestError(Code.RESOURCE_EXHAUSTED, f"{reason}: try again later")
