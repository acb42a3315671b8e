"""How fast the local server answers, and whether it lasts.

    pip install -e '.[serving]'
    python benchmarks/serving.py speed saved_models/translate_de_en TEXTS
    python benchmarks/serving.py soak saved_models/translate_de_en TEXTS --requests 200000

TEXTS is a file of a text a line, plain or .gz. The server is a process of its own, whose memory is
read before and after; the clients are threads of this one and take their part of the same cores.

`speed` sends one text a request, from 1, 8 and 64 clients at a time, short texts (at most 8 words)
and all lengths mixed, with batching and without, by REST and gRPC: requests a second, p50 and p99.
The first line is the same SavedModel called in this process, text by text, with nothing between.

`soak` asks by both protocols while versions are swapped and hostile requests come in between. Every
answer is compared with the SavedModel's own; the exit status is 1 if one is wrong or missing.
"""

import argparse
import contextlib
import dataclasses
import itertools
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import httpx
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizers' ops)

from keras_transformers.files import read_lines
from keras_transformers.serving import Client, RequestError
from keras_transformers.serving.model_config import find_versions

MODEL = "model"
SHORT_WORDS = 8


@dataclasses.dataclass
class Running:
    """A server process and where it listens."""

    process: subprocess.Popen
    rest: str
    grpc: str

    def rss_mib(self) -> float:
        """Its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


@contextlib.contextmanager
def serving(base: Path, *options: str) -> Iterator[Running]:
    """Runs the server until the block ends."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "keras_transformers.cli", "serve", f"{MODEL}={base}"),
            *("--rest-port", "0", "--grpc-port", "0", "--timeout", "120", *options),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    told = ""
    try:
        for line in process.stderr:
            told += line
            if ": ready:" in line:
                break
        rest, grpc = re.search(r"REST on (\S+)", told), re.search(r"gRPC on (\S+)", told)
        if rest is None or grpc is None or ": ready:" not in told:
            raise SystemExit(f"the server did not start:\n{told}")
        # Whatever it tells from now on must be read, or it would wait for a reader.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield Running(process, rest[1], grpc[1])
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()


def direct(base: Path, texts: Sequence[str]) -> tuple[list[dict[str, Any]], list[float]]:
    """What the newest version answers in this process, text by text, and the seconds of each."""
    loaded = tf.saved_model.load(str(max(find_versions(base).items())[1]))
    function = loaded.signatures["serving_default"]
    (name,) = function.structured_input_signature[1]
    answers, seconds = [], []
    function(**{name: tf.constant(texts[:1])})  # the first call optimizes the graph
    for text in texts:
        start = time.perf_counter()
        outputs = function(**{name: tf.constant([text])})
        answers.append({key: value.numpy()[0] for key, value in outputs.items()})
        seconds.append(time.perf_counter() - start)
    return answers, seconds


def row(name: str, seconds: Sequence[float], wall: float) -> str:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    median = statistics.median(ordered)
    return f"{name:<44} {len(ordered) / wall:8.1f}/s {1e3 * median:9.1f} ms {1e3 * p99:9.1f} ms"


def timed(target: str, texts: Sequence[str], clients: int, count: int) -> tuple[list[float], float]:
    """Sends `count` requests of one text each from `clients` threads."""
    numbers = iter(range(count))
    lock = threading.Lock()

    def work(_: int) -> list[float]:
        seconds = []
        with Client(target, timeout_s=120) as client:
            client.ask([texts[0]], model=MODEL)  # connected, and the signature known
            barrier.wait()
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return seconds
                start = time.perf_counter()
                client.ask([texts[number % len(texts)]], model=MODEL)
                seconds.append(time.perf_counter() - start)

    barrier = threading.Barrier(clients + 1)
    with ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(work, number) for number in range(clients)]
        barrier.wait()
        start = time.perf_counter()
        found = [future.result() for future in futures]
    return list(itertools.chain.from_iterable(found)), time.perf_counter() - start


def speed(parsed: argparse.Namespace) -> None:
    texts = list(read_lines(parsed.texts))[: parsed.lines]
    kinds = {"short": [t for t in texts if len(t.split()) <= SHORT_WORDS], "mixed": texts}
    if not kinds["short"]:
        raise SystemExit(f"{parsed.texts}: no text of at most {SHORT_WORDS} words")
    print(f"{'':<44} {'throughput':>10} {'p50':>12} {'p99':>12}")
    for kind, lines in kinds.items():
        _, seconds = direct(parsed.base_path, lines[: parsed.requests])
        print(row(f"called directly, {kind}", seconds, sum(seconds)), flush=True)
    for batching in (True, False):
        options = [] if batching else ["--no-batching"]
        with serving(parsed.base_path, *options, "--max-requests", "128") as server:
            before = server.rss_mib()
            for protocol, clients, kind in itertools.product(
                parsed.protocols, parsed.clients, kinds
            ):
                found = timed(getattr(server, protocol), kinds[kind], clients, parsed.requests)
                name = (
                    f"{protocol}, {clients} clients, {kind}, batching {'on' if batching else 'off'}"
                )
                print(row(name, *found), flush=True)
            print(f"resident memory {before:.0f} -> {server.rss_mib():.0f} MiB", flush=True)


def hostile(server: Running, http: httpx.Client, generator: random.Random) -> None:
    """Sends something that no request should be; only the server's own failures are errors."""
    url = f"/v1/models/{MODEL}:predict"
    bodies = [
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
    kind = generator.randrange(len(bodies) + 2)
    if kind < len(bodies):
        status = http.post(url, content=bodies[kind]).status_code
    elif kind == len(bodies):
        status = http.get("/v1/models/..%2f..%2fetc%2fpasswd").status_code
    else:  # goes before the answer is there
        with contextlib.suppress(httpx.HTTPError):
            http.post(url, content=b'{"instances": ["a b c"]}', timeout=0.001)
        return
    if status not in (400, 404, 413, 429):
        raise AssertionError(f"hostile request {kind} was answered with {status}")


def same(found: Any, expected: Any) -> bool:
    """Whether an answer is the model's own; batches round the last digits of floats otherwise."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in found)
    if isinstance(expected, np.ndarray):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, bytes):
        return found == expected.decode("utf-8", "replace")
    return bool(np.isclose(found, expected, rtol=1e-4, atol=1e-4))


class Soak:
    """Counts what comes of many requests."""

    def __init__(self, server: Running, texts: Sequence[str], answers: Sequence[Any], total: int):
        self.server, self.texts, self.answers = server, texts, answers
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.memory: list[tuple[int, float]] = []
        self._numbers = iter(range(total))
        self._every = max(1, total // 50)
        self._lock = threading.Lock()
        self.done = 0

    def work(self, target: str, seed: int, stop_at: float) -> None:
        """Asks until all requests are sent or time is up."""
        generator = random.Random(seed)
        with (
            Client(target, timeout_s=120) as client,
            httpx.Client(base_url=self.server.rest) as http,
        ):
            while time.monotonic() < stop_at:
                with self._lock:
                    if next(self._numbers, None) is None:
                        return
                kind, problem = self.one(client, http, generator)
                with self._lock:
                    self.counts[kind] += 1
                    self.problems += [problem] if problem else []
                    self.done += 1
                    if self.done % self._every == 0:
                        self.memory.append((self.done, self.server.rss_mib()))

    def one(self, client: Client, http: httpx.Client, generator: random.Random) -> tuple[str, str]:
        """One request; what became of it, and what was wrong."""
        if generator.random() < 0.1:
            try:
                hostile(self.server, http, generator)
            except (AssertionError, httpx.HTTPError) as error:
                return "hostile, wrongly answered", repr(error)
            return "hostile, refused", ""
        number = generator.randrange(len(self.texts))
        try:
            (found,) = client.rows([self.texts[number]], model=MODEL)
        except RequestError as error:
            return "dropped", str(error)
        if not same(found, self.answers[number]):
            return "wrong", f"{self.texts[number]!r}: {found}, not {self.answers[number]}"
        return "right", ""


def swap_versions(base: Path, source: Path, stop: threading.Event, seconds: float) -> int:
    """Publishes the same export under one number after another; returns how many."""
    for number in itertools.count(2):
        if stop.wait(seconds):
            return number - 2
        staging = base / f".staging-{number}"
        shutil.copytree(source, staging)
        staging.rename(base / str(number))
        # Only what has long been unloaded goes.
        shutil.rmtree(base / str(number - 5), ignore_errors=True)
    raise AssertionError("unreachable")


def soak(parsed: argparse.Namespace) -> int:
    texts = list(read_lines(parsed.texts))[: parsed.lines]
    answers, _ = direct(parsed.base_path, texts)
    source = max(find_versions(parsed.base_path).items())[1]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        shutil.copytree(source, base / "1")
        with serving(base) as server, ThreadPoolExecutor(parsed.clients[-1] + 1) as pool:
            run = Soak(server, texts, answers, parsed.requests)
            stop, start = threading.Event(), time.monotonic()
            swaps = pool.submit(swap_versions, base, source, stop, parsed.swap_seconds)
            stop_at = start + parsed.seconds
            targets = itertools.cycle([server.rest, server.grpc])
            workers = [
                pool.submit(run.work, next(targets), seed, stop_at)
                for seed in range(parsed.clients[-1])
            ]
            for worker in workers:
                worker.result()
            stop.set()
            print(
                f"{run.done} requests in {time.monotonic() - start:.0f} s, {swaps.result()} swaps"
            )
    for kind, count in sorted(run.counts.items()):
        print(f"  {kind}: {count}")
    for problem in run.problems[:10]:
        print(f"  {problem[:300]}")
    for done, mib in run.memory[:: max(1, len(run.memory) // 10)]:
        print(f"  resident memory after {done} requests: {mib:.0f} MiB")
    return 1 if run.problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=["speed", "soak"])
    parser.add_argument("base_path", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--requests", type=int, default=512, help="a cell, or of the whole soak")
    parser.add_argument("--lines", type=int, default=200, help="of the texts, at most")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument(
        "--protocols", nargs="+", choices=["rest", "grpc"], default=["rest", "grpc"]
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="of a soak, at most")
    parser.add_argument("--swap-seconds", type=float, default=60.0, help="between two versions")
    parsed = parser.parse_args()
    return soak(parsed) if parsed.mode == "soak" else speed(parsed) or 0


if __name__ == "__main__":
    sys.exit(main())
