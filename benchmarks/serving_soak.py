r"""Does the local server last? Many requests, new versions, and hostile requests in between.

    pip install -e '.[serving]'
    python benchmarks/serving_soak.py TEXTS saved_models/fill_mask_en ANOTHER_BASE_PATH \
        --requests 200000 --seconds 3600

TEXTS is a file with one text per line, plain or .gz. One server, in a separate process, serves a
copy of each export; clients in threads of this process ask all of them by REST and gRPC. Meanwhile
each export is published again and again as a new version. A tenth of the requests are hostile.
Every answer is compared with the SavedModel's own, computed here beforehand.

Memory is read before each swap, when one version of each model is loaded. The exit status is 1 if
an answer is wrong or missing, or if the median memory of the last quarter is 5 % above that of the
second (not the first: the first runs of a graph allocate memory that is kept).
"""

import argparse
import contextlib
import itertools
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
from serving import Running, called_directly, serving

from keras_transformers.files import read_lines
from keras_transformers.saved_model.versions import resolve
from keras_transformers.serving import Client, RequestError

HOSTILE_SHARE = 0.1
NUM_HOSTILE = 13  # kinds: the bodies, and four more
MAX_GROWTH = 0.05


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
    kind: int, model: str, http: httpx.Client, channel: grpc.Channel, generator: random.Random
) -> tuple[str, bool]:
    """Sends a hostile request; returns its kind, and whether it was refused properly."""
    url, kinds = f"/v1/models/{model}:predict", bodies(generator)
    if kind < len(kinds):
        return f"body {kind}", http.post(url, content=kinds[kind]).status_code in (400, 413)
    if kind == len(kinds):
        return "path", http.get("/v1/models/..%2f..%2fetc%2fpasswd").status_code == 404
    if kind == len(kinds) + 1:
        response = http.get(f"/v1/models/{model}", headers={"Host": "evil.example"})
        return "another's name", response.status_code == 403
    if kind == len(kinds) + 2:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        error = call.future(b"\xff" + generator.randbytes(100), timeout=120).exception()
        return "gRPC message", error is not None and error.code() in (
            grpc.StatusCode.INTERNAL,  # from gRPC itself, for what it cannot parse
            grpc.StatusCode.INVALID_ARGUMENT,
        )
    with contextlib.suppress(httpx.HTTPError):  # leaves before the answer arrives
        http.post(url, content=b'{"instances": ["a b c"]}', timeout=0.001)
    return "gone", True


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
        self.server, self.texts, self.answers = server, texts, answers
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.memory: list[tuple[int, float]] = []
        self._numbers = iter(range(total))
        self._stop_at = time.monotonic() + seconds
        self._lock = threading.Lock()

    def work(self, target: str, seed: int) -> None:
        """Asks until all requests are sent or time is up."""
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
        number = generator.randrange(len(self.texts))
        try:
            (found,) = client.rows([self.texts[number]], model=model)
        except RequestError as error:
            return "dropped", f"{model}: {error}"
        expected = self.answers[model][number]
        if not same(found, expected):
            return "wrong", f"{model}: {self.texts[number]!r}: {found}, not {expected}"
        return f"right, {model}", ""

    def _hostile(
        self, model: str, http: httpx.Client, channel: grpc.Channel, generator: random.Random
    ) -> tuple[str, str]:
        kind = generator.randrange(NUM_HOSTILE)
        try:
            name, refused = hostile(kind, model, http, channel, generator)
        except httpx.HTTPError as error:
            return "hostile, dropped", f"{kind}: {error!r}"
        return ("hostile, refused", "") if refused else ("hostile, not refused", name)


def swap_versions(
    bases: Mapping[Path, Path], run: Soak, stop: threading.Event, seconds: float
) -> int:
    """Publishes each source as one new version after another; returns how often."""
    for number in itertools.count(2):
        if stop.wait(seconds):
            run.remember()
            return number - 2
        run.remember()
        for base, source in bases.items():
            staging = base / f".staging-{number}"
            shutil.copytree(source, staging)
            staging.rename(base / str(number))
            # Removes only versions that were unloaded long ago.
            shutil.rmtree(base / str(number - 5), ignore_errors=True)
    raise AssertionError("unreachable")


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
        serving(*bases) as server,
        ThreadPoolExecutor(parsed.clients + 1) as pool,
    ):
        start, stop = time.monotonic(), threading.Event()
        run = Soak(server, texts, answers, total=parsed.requests, seconds=parsed.seconds)
        swaps = pool.submit(swap_versions, bases, run, stop, parsed.swap_seconds)
        targets = itertools.cycle([server.rest, server.grpc])
        workers = [pool.submit(run.work, next(targets), seed) for seed in range(parsed.clients)]
        try:
            for worker in workers:
                worker.result()
        finally:
            stop.set()
        seconds = time.monotonic() - start
        print(f"{run.counts.total()} requests in {seconds:.0f} s, {swaps.result()} swaps")
    return run


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path)
    parser.add_argument("base_paths", type=Path, nargs="+", metavar="BASE_PATH")
    parser.add_argument("--requests", type=int, default=200_000, help="at most")
    parser.add_argument("--seconds", type=float, default=3600.0, help="at most")
    parser.add_argument("--swap-seconds", type=float, default=60.0, help="between two versions")
    parser.add_argument("--lines", type=int, default=200, help="lines of TEXTS, at most")
    parser.add_argument("--clients", type=int, default=8)
    parsed = parser.parse_args()
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
