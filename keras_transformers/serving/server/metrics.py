"""Collects the server's metrics for Prometheus, under TF Serving's names where it has them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PATH = "/monitoring/prometheus/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_MICROSECONDS = [10 * 1.8**exponent for exponent in range(33)]  # TF Serving's buckets
_SIZES = [2**exponent for exponent in range(12)]


class Metrics:
    """One server's metrics. All labels come from the server, so no request can add a series."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            ":tensorflow:serving:request_count",
            "Requests by model and status.",
            ["model_name", "status"],
            registry=self._registry,
        )
        self._latency = Histogram(
            ":tensorflow:serving:request_latency",
            "Time of a request in microseconds.",
            ["model_name", "API", "entrypoint"],
            buckets=_MICROSECONDS,
            registry=self._registry,
        )
        self._examples = Histogram(
            ":tensorflow:serving:request_example_counts",
            "Rows of a request.",
            ["model_name"],
            buckets=_SIZES,
            registry=self._registry,
        )
        self._batch_requests = Histogram(
            "keras_transformers:serving:batch_requests",
            "Requests of a batch.",
            buckets=_SIZES,
            registry=self._registry,
        )
        self._batch_rows = Histogram(
            "keras_transformers:serving:batch_rows",
            "Rows of a batch, without its padding.",
            buckets=_SIZES,
            registry=self._registry,
        )
        self._step_rows = Histogram(
            "keras_transformers:serving:step_rows",
            "Texts that get a token in one step of decoding.",
            buckets=_SIZES,
            registry=self._registry,
        )
        self._cancelled_runs = Counter(
            "keras_transformers:serving:cancelled_runs",
            "Runs that ended because nobody waited for their answers any more.",
            registry=self._registry,
        )
        self.in_flight = Gauge(
            "keras_transformers:serving:requests_in_flight",
            "Requests that wait or are being answered.",
            registry=self._registry,
        )

    def on_request(self, model: str, api: str, entrypoint: str, status: str, time_s: float) -> None:
        """Counts an answered request."""
        self._requests.labels(model, status).inc()
        self._latency.labels(model, api, entrypoint).observe(time_s * 1e6)

    def on_rows(self, model: str, rows: int) -> None:
        """Counts the rows of a request that is about to run."""
        self._examples.labels(model).observe(rows)

    def on_batch(self, requests: int, rows: int) -> None:
        """Counts a batch that is about to run."""
        self._batch_requests.observe(requests)
        self._batch_rows.observe(rows)

    def on_step(self, rows: int) -> None:
        """Counts a step of decoding that is about to run."""
        self._step_rows.observe(rows)

    def on_cancelled(self) -> None:
        """Counts a run that ended because nobody waited for it."""
        self._cancelled_runs.inc()

    def page(self) -> bytes:
        """Returns the page that Prometheus reads."""
        return generate_latest(self._registry)
