"""Records OpenTelemetry spans of requests, if tracing was started; otherwise it does nothing.

A trace goes from the gateway to the model: both pass on W3C's `traceparent`. It needs the extra
`tracing`, which only `start` imports.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from keras_transformers.dependencies.extras import needing

_NAME = "keras_transformers"

_tracer: Any = None  # opentelemetry.trace.Tracer


def start(endpoint: str, *, service: str) -> Callable[[], None]:
    """Sends spans to a collector from now on.

    Args:
        endpoint: the collector's URL for OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces.
        service: the name of this process in the traces.

    Returns:
        What sends the remaining spans and ends tracing.

    Raises:
        MissingExtraError: the extra `tracing` is not installed.
        ValueError: the endpoint is not a URL.
    """
    check_endpoint(endpoint)
    with needing("tracing"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
    use(provider)

    def stop() -> None:
        use(None)
        provider.shutdown()

    return stop


@contextlib.contextmanager
def to_collector(endpoint: str | None, *, service: str) -> Iterator[None]:
    """Sends the spans of the block to a collector; does nothing if `endpoint` is None.

    Args:
        endpoint: see `start`.
        service: see `start`.
    """
    stop = None if endpoint is None else start(endpoint, service=service)
    try:
        yield
    finally:
        if stop is not None:
            stop()


def check_endpoint(endpoint: str) -> None:
    """Checks that a collector's address is a URL; ValueError if it is none."""
    if not endpoint.startswith(("http://", "https://")):
        raise ValueError(
            f"tracing endpoint {endpoint!r}: pass a collector's URL, such as "
            "http://127.0.0.1:4318/v1/traces"
        )


def use(provider: Any) -> None:
    """Records spans with a TracerProvider; None ends that."""
    global _tracer
    _tracer = None if provider is None else provider.get_tracer(_NAME)


@contextlib.contextmanager
def span(
    name: str,
    kind: Literal["server", "client", "internal"] = "internal",
    *,
    parent: Mapping[str, str] | None = None,
    **attributes: str | int,
) -> Iterator[Any]:
    """Records the block as a span; an error that leaves the block is its status.

    Args:
        name: what the block does.
        kind: whether it answers a request, sends one, or neither.
        parent: the headers of a request, of which `traceparent` has the span that sent it.
        **attributes: details; "." in their names is written as "__".

    Yields:
        The span; None if nothing is recorded.
    """
    if _tracer is None:
        yield None
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = None if parent is None else TraceContextTextMapPropagator().extract(parent)
    details = {key.replace("__", "."): value for key, value in attributes.items()}
    with _tracer.start_as_current_span(
        name, context=context, kind=SpanKind[kind.upper()], attributes=details
    ) as recorded:
        yield recorded


def record(name: str, start: float, end: float, **attributes: str | int) -> None:
    """Records what has ended as a span.

    Args:
        name: what it was.
        start: when it began, by time.monotonic.
        end: when it ended.
        **attributes: see `span`.
    """
    if _tracer is None:
        return
    offset = time.time() - time.monotonic()
    details = {key.replace("__", "."): value for key, value in attributes.items()}
    recorded = _tracer.start_span(name, start_time=_ns(start + offset), attributes=details)
    recorded.end(end_time=_ns(end + offset))


def headers() -> dict[str, str]:
    """Returns `traceparent` for a request to another process; empty if nothing is recorded."""
    if _tracer is None:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
