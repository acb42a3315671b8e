r"""Stress-tests the local server: many requests, changing versions, and malicious requests.

    pip install -e '.[serving]'
    python benchmarks/serving_soak.py TEXTS saved_models/fill_mask_en ANOTHER_BASE_PATH \
        --requests 200000 --seconds 3600

    python benchmarks/serving_soak.py TEXTS saved_models/sentiment_en --leaving LANGUAGE_MODEL

TEXTS is a file with one text per line, plain or .gz. One server, in a separate process, serves a
copy of each export; clients in threads of this process call all of them by REST and gRPC, while
versions are published, rolled back, deleted and damaged (see `Operator`). A tenth of the requests
are malicious. Every answer is compared with the SavedModel's own, computed here beforehand.

Memory is read before each change of the versions, when one version of each model is loaded. The
exit status is 1 if an answer is wrong or missing, or if the median memory of the last quarter is
5 % above that of the second (not the first: the first runs of a graph allocate memory that is
kept).

With --leaving, the soak is another one: 20 clients ask LANGUAGE_MODEL, the base path of an export
with the signature `generate`, for 59,000 tokens each, and leave after some seconds without an
answer, while one client asks the classifiers all the time. It prints how long their answers took,
and how many of the runs were cancelled. The exit status is 1 if an answer took a second, or if a
request is left at the end.
"""

import argparse
import contextlib
import gzip
import itertools
import os
import random
import re
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
from serving import Running, called_directly, serving
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from keras_transformers.files import read_lines
from keras_transformers.saved_model.publishing import prune, publish, rollback
from keras_transformers.saved_model.versions import resolve, staging_folder, version_folders
from keras_transformers.serving import Client, RequestError

HOSTILE_SHARE = 0.1
ROWS = (1, 1, 1, 2, 4)  # of a request, each as likely
MAX_GROWTH = 0.05
LEAVING_CLIENTS, TOKENS, SLOWEST_S = 20, 59_000, 1.0


def bodies(generator: random.Random) -> list[bytes]:
    """Returns bodies of Predict requests that must be refused."""
    return [
        b"",
        b"[" * 10_000,
        bytes(generator.randrange(256) for _ in range(200)),
        b'{"instances": [1, 2]}',
        b'{"instances": [{"text": null}]}',
        b'{"inputs": ' + b"9" * 5_000 + b"}",
        b'{"signature_name": "nobody", "instances": ["a"]}',
        b'{"instances": [' + b",".join([b'"a"'] * 2_000) + b"]}",
        b" " * (17 * 1024 * 1024),
    ]


def hostile(
    kind: int, model: str, http: httpx.Client, channel: grpc.Channel, bodies: Sequence[bytes]
) -> tuple[str, bool]:
    """Sends a malicious request; returns its kind, and whether it was refused properly."""
    url = f"/v1/models/{model}:predict"
    if kind < len(bodies):
        return f"body {kind}", http.post(url, content=bodies[kind]).status_code in (400, 413)
    if kind == len(bodies):
        return "path", http.get("/v1/models/..%2f..%2fetc%2fpasswd").status_code == 404
    if kind == len(bodies) + 1:
        response = http.get(f"/v1/models/{model}", headers={"Host": "evil.example"})
        return "another's name", response.status_code == 403
    if kind == len(bodies) + 2:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        error = call.future(b"\xff" + bodies[2], timeout=120).exception()
        return "gRPC message", _is_invalid(error)
    if kind == len(bodies) + 3:
        message = PredictRequest()
        message.model_spec.name = model
        sizes = [TensorShapeProto.Dim(size=2**62)] * 300
        message.inputs["text"].CopyFrom(TensorProto(tensor_shape=TensorShapeProto(dim=sizes)))
        call = PredictionServiceStub(channel).Predict
        return "gRPC dimensions", _is_invalid(call.future(message, timeout=120).exception())
    if kind == len(bodies) + 4:
        body, headers = gzip.compress(bytes(20 * 1024 * 1024)), {"Content-Encoding": "gzip"}
        return "gzip", http.post(url, content=body, headers=headers).status_code in (413, 415)
    if kind == len(bodies) + 5:
        with socket.create_connection((http.base_url.host, http.base_url.port)) as connection:
            connection.sendall(f"POST {url} HTTP/1.1\r\nContent-Length: 1000\r\n\r\n[".encode())
        return "half a body", True
    with contextlib.suppress(httpx.HTTPError):  # disconnects before the answer arrives
        http.post(url, content=b'{"instances": ["a b c"]}', timeout=0.001)
    return "gone", True


def _is_invalid(error: Any) -> bool:
    return error is not None and error.code() == grpc.StatusCode.INVALID_ARGUMENT


def same(found: Any, expected: Any) -> bool:
    """Returns whether an answer is the model's; in batches a float's last digits may differ."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in found)
    if isinstance(expected, np.ndarray):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, bytes):
        return found == expected.decode("utf-8", "replace")
    return bool(np.isclose(found, expected, rtol=1e-4, atol=1e-4))


class Soak:
    """Sends requests from several threads and counts the outcomes."""

    def __init__(
        self,
        server: Running,
        texts: Sequence[str],
        answers: Mapping[str, Sequence[Any]],
        *,
        total: int,
        seconds: float,
    ) -> None:
        self._bodies = bodies(random.Random(0))
        self.server, self.texts, self.answers = server, texts, answers
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.memory: list[tuple[int, float]] = []
        self._numbers = iter(range(total))
        self._stop_at = time.monotonic() + seconds
        self._lock = threading.Lock()

    def work(self, target: str, seed: int) -> None:
        """Sends requests until all are sent or time is up."""
        generator = random.Random(seed)
        # One connection per request: a kept one might be closed before the next request.
        alone = httpx.Limits(max_keepalive_connections=0)
        with (
            Client(target, timeout_s=120) as client,
            httpx.Client(base_url=self.server.rest, timeout=120, limits=alone) as http,
            grpc.insecure_channel(self.server.grpc) as channel,
        ):
            while time.monotonic() < self._stop_at:
                with self._lock:
                    if next(self._numbers, None) is None:
                        return
                model = generator.choice(list(self.answers))
                if generator.random() < HOSTILE_SHARE:
                    kind, problem = self._hostile(model, http, channel, generator)
                else:
                    kind, problem = self._ask(model, client, generator)
                with self._lock:
                    self.counts[kind] += 1
                    self.problems += [problem] if problem else []

    def remember(self) -> None:
        """Records the server's memory."""
        self.memory.append((self.counts.total(), self.server.rss_mib()))

    def growth(self) -> float:
        """Returns how far the last quarter's median is above the second quarter's."""
        values = [mib for _, mib in self.memory]
        quarter = len(values) // 4
        if not quarter:
            return 0.0
        before = statistics.median(values[quarter : 2 * quarter])
        return statistics.median(values[-quarter:]) / before - 1

    def _ask(self, model: str, client: Client, generator: random.Random) -> tuple[str, str]:
        numbers = generator.choices(range(len(self.texts)), k=generator.choice(ROWS))
        try:
            rows = client.rows([self.texts[number] for number in numbers], model=model)
        except RequestError as error:
            return "dropped", f"{model}: {error}"
        for number, found in zip(numbers, rows, strict=True):
            expected = self.answers[model][number]
            if not same(found, expected):
                return "wrong", f"{model}: {self.texts[number]!r}: {found}, not {expected}"
        return f"right, {model}", ""

    def _hostile(
        self, model: str, http: httpx.Client, channel: grpc.Channel, generator: random.Random
    ) -> tuple[str, str]:
        kind = generator.randrange(len(self._bodies) + 7)
        try:
            name, refused = hostile(kind, model, http, channel, self._bodies)
        except httpx.HTTPError as error:
            return "hostile, dropped", f"{kind}: {error!r}"
        return ("hostile, refused", "") if refused else ("hostile, not refused", name)


class Operator:
    """Changes the versions of models, as operators and accidents might, one change at a time.

    Args:
        bases: base path -> the export that is published there.
        generator: chooses what to damage.

    Attributes:
        counts: how often each change was made.
    """

    def __init__(self, bases: Mapping[Path, Path], generator: random.Random) -> None:
        self._bases, self._generator = bases, generator
        self._changes = itertools.cycle(
            [
                self._publish,
                self._publish_damaged,
                self._delete_newest,
                self._publish,
                self._roll_back,
                self._damage_served,
                self._publish,
                self._roll_back,  # to the version that was damaged: the server must keep the newer
                self._publish,
                self._delete_old,
            ]
        )
        self.counts: Counter[str] = Counter()

    def step(self) -> None:
        """Makes the next change to every model."""
        change = next(self._changes)
        for base, source in self._bases.items():
            change(base, source)
            self.counts[change.__name__.strip("_").replace("_", " ")] += 1

    def _publish(self, base: Path, source: Path) -> None:
        publish(source, base)

    def _publish_damaged(self, base: Path, source: Path) -> None:
        with staging_folder(base) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True)
            self._damage(folder)
            folder.rename(base / str(max(version_folders(base)) + 1))

    def _delete_newest(self, base: Path, source: Path) -> None:
        shutil.rmtree(base / str(max(version_folders(base))))

    def _delete_old(self, base: Path, source: Path) -> None:
        prune(base, keep=1)

    def _roll_back(self, base: Path, source: Path) -> None:
        rollback(base)

    def _damage_served(self, base: Path, source: Path) -> None:
        self._damage(base / str(max(version_folders(base))))

    def _damage(self, version: Path) -> None:
        """Damages a version so that it cannot be loaded."""
        (variables,) = version.glob("variables/variables.data-*")
        kind = self._generator.randrange(5)
        if kind == 0:
            with variables.open("r+b") as file:  # TensorFlow's checksums find one changed byte
                file.seek(self._generator.randrange(variables.stat().st_size))
                byte = file.read(1)[0]
                file.seek(-1, 1)
                file.write(bytes([byte ^ 0x10]))
        elif kind == 1:
            os.truncate(variables, variables.stat().st_size // 2)
        elif kind == 2:
            os.truncate(version / "saved_model.pb", 1000)
        elif kind == 3:
            (version / "variables/variables.index").unlink()
        else:
            shutil.rmtree(version / "variables")


def operate(operator: Operator, run: "Soak", stop: threading.Event, seconds: float) -> None:
    """Changes the versions every `seconds`, and records the memory before each change."""
    while not stop.wait(seconds):
        run.remember()
        operator.step()
    run.remember()


@contextlib.contextmanager
def copies(sources: Mapping[str, Path]) -> Iterator[dict[Path, Path]]:
    """Copies each export to a new base path as version 1; returns the paths."""
    with tempfile.TemporaryDirectory() as folder:
        bases = {Path(folder, name): source for name, source in sources.items()}
        for base, source in bases.items():
            shutil.copytree(source, base / "1")
        yield bases


def soak(parsed: argparse.Namespace) -> Soak:
    texts = list(read_lines(parsed.texts))[: parsed.lines]
    sources = {base.name: resolve(base) for base in parsed.base_paths}
    answers = {base.name: list(map(called_directly(base), texts)) for base in parsed.base_paths}
    with (
        copies(sources) as bases,
        serving(*bases, options=("--max-requests", "128")) as server,
        ThreadPoolExecutor(parsed.clients + 1) as pool,
    ):
        start, stop = time.monotonic(), threading.Event()
        run = Soak(server, texts, answers, total=parsed.requests, seconds=parsed.seconds)
        operator = Operator(bases, random.Random(0))
        changes = pool.submit(operate, operator, run, stop, parsed.change_seconds)
        targets = itertools.cycle([server.rest, server.grpc])
        workers = [pool.submit(run.work, next(targets), seed) for seed in range(parsed.clients)]
        try:
            for worker in workers:
                worker.result()
        finally:
            stop.set()
        seconds = time.monotonic() - start
        changes.result()
        print(f"{run.counts.total()} requests in {seconds:.0f} s")
    for change, count in operator.counts.items():
        print(f"  {change}: {count}")
    return run


@dataclass
class Waits:
    """How long the classifiers' answers took beside clients that leave.

    Attributes:
        seconds: of each answer.
        most_running: the most requests that were in progress at once.
        cancelled: the runs that ended because their client had left.
        left: the requests that were still in progress at the end.
    """

    seconds: list[float]
    most_running: int
    cancelled: int
    left: int


def leave(url: str, model: str, seconds: float) -> None:
    """Asks a language model for more tokens than anybody waits for."""
    options = {"max_length": TOKENS, "temperature": 1.0, "top_k": 1, "top_p": 1.0, "seed": 1}
    content = {"signature_name": "generate", "instances": [{"prompt": "A dog", **options}]}
    with contextlib.suppress(httpx.TimeoutException):
        answer = httpx.post(f"{url}/v1/models/{model}:predict", json=content, timeout=seconds)
        raise SystemExit(f"{model} answered after all: {answer.text[:300]}")


def metric(server: Running, name: str) -> int:
    """Returns a number from the server's page for Prometheus."""
    page = httpx.get(f"{server.rest}/monitoring/prometheus/metrics", timeout=120).text
    return int(float(re.search(rf"^keras_transformers:serving:{name} (\S+)$", page, re.M)[1]))


def leaving_soak(parsed: argparse.Namespace) -> Waits:
    """Asks the classifiers while clients of a language model come and leave."""
    texts = list(read_lines(parsed.texts))[: parsed.lines]
    names = [base.name for base in parsed.base_paths]
    waits = Waits([], 0, 0, 0)
    options = ("--max-requests", "128", "--max-new-tokens", "60000")
    with (
        serving(*parsed.base_paths, parsed.leaving, options=options) as server,
        Client(server.rest, timeout_s=120) as client,
        ThreadPoolExecutor(LEAVING_CLIENTS) as pool,
    ):
        for name in names:
            client.rows(texts[:1], model=name)  # the first answer of a graph is slow
        generator = random.Random(0)
        stays = [generator.uniform(0.2, 1.0) * parsed.seconds for _ in range(LEAVING_CLIENTS)]
        leaving = [pool.submit(leave, server.rest, parsed.leaving.name, stay) for stay in stays]
        for text, name in zip(itertools.cycle(texts), itertools.cycle(names), strict=False):
            start = time.monotonic()
            client.rows([text], model=name)
            waits.seconds.append(time.monotonic() - start)
            if len(waits.seconds) % 20 == 1:
                waits.most_running = max(waits.most_running, metric(server, "requests_in_flight"))
            if all(each.done() for each in leaving):
                break
        for each in leaving:
            each.result()
        patience = time.monotonic() + 10
        while (left := metric(server, "requests_in_flight")) and time.monotonic() < patience:
            time.sleep(0.1)
        waits.left, waits.cancelled = left, metric(server, "cancelled_runs_total")
    return waits


def main_leaving(parsed: argparse.Namespace) -> int:
    waits = leaving_soak(parsed)
    slowest = max(waits.seconds)
    print(f"{LEAVING_CLIENTS} clients asked for {TOKENS} tokens each, and left")
    print(f"  most requests in progress at once: {waits.most_running}")
    print(f"  runs cancelled: {waits.cancelled}; the others had not started")
    print(f"  requests in progress at the end: {waits.left}")
    print(f"  the classifiers' answers: {len(waits.seconds)}")
    print(f"  median {1e3 * statistics.median(waits.seconds):.0f} ms, slowest {slowest:.2f} s")
    return 1 if waits.left or slowest >= SLOWEST_S else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path)
    parser.add_argument("base_paths", type=Path, nargs="+", metavar="BASE_PATH")
    parser.add_argument("--requests", type=int, default=200_000, help="at most")
    parser.add_argument("--seconds", type=float, default=3600.0, help="at most")
    parser.add_argument("--change-seconds", type=float, default=15.0, help="between two changes")
    parser.add_argument("--lines", type=int, default=200, help="lines of TEXTS, at most")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--leaving", type=Path, metavar="LANGUAGE_MODEL")
    parsed = parser.parse_args()
    if parsed.leaving:
        return main_leaving(parsed)
    run = soak(parsed)
    for kind, count in sorted(run.counts.items()):
        print(f"  {kind}: {count}")
    for problem in run.problems[:10]:
        print(f"  {problem[:300]}")
    for done, mib in run.memory[:: max(1, len(run.memory) // 12)]:
        print(f"  resident memory after {done} requests: {mib:.0f} MiB")
    print(f"  last quarter's median against the second's: {100 * run.growth():+.1f} %")
    return 1 if run.problems or run.growth() > MAX_GROWTH else 0


if __name__ == "__main__":
    sys.exit(main())
