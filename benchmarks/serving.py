"""Measures the speed of the local server.

    pip install -e '.[serving]'
    python benchmarks/serving.py saved_models/translate_de_en TEXTS

TEXTS is a file with one text per line, plain or .gz. Sends one text per request, from 1, 8 and 64
clients at a time: short texts (at most 8 words) or all lengths mixed, with and without batching, by
REST and gRPC. Prints requests per second, p50 and p99, the CPU time of the model's process per
request, how long the servers took to load, and their memory before and after.

The servers are separate processes; the clients are threads of this one and use the same cores. Each
round calls the SavedModel in this process, text by text, and then each server, so that other work
on the machine affects all of them; ratios are to the direct calls of the same rounds. A model runs
on TF_NUM_INTRAOP_THREADS threads, 1 by default.

`serving_soak.py` tests the server over a long time; `serving_onnx.py` compares with ONNX Runtime.
"""

import argparse
import contextlib
import functools
import itertools
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizers' ops)

from keras_transformers.files import read_lines
from keras_transformers.saved_model.versions import resolve
from keras_transformers.serving import Client

SHORT_WORDS = 8

Ask = Callable[[str], Any]  # text -> answer
Connect = Callable[[], AbstractContextManager[Ask]]
Clock = Callable[[], float]  # the CPU time that a contestant's process has used, in seconds


@dataclass
class Running:
    """A server process and where it listens."""

    process: subprocess.Popen
    ready_after_s: float
    rest: str
    grpc: str = ""

    def cpu_s(self) -> float:
        """Returns its CPU time in seconds."""
        times = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        """Returns its resident memory in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


@contextlib.contextmanager
def started(*command: str) -> Iterator[Running]:
    """Runs a server until the block ends.

    Args:
        command: starts the server, whose stderr says "REST on URL", perhaps "gRPC on TARGET", and
            then ": ready:"; a gateway's says "gateway: URL".
    """
    start, told = time.perf_counter(), ""
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            told += line
            if ": ready:" in line or "gateway: http" in line:
                break
        ready_after_s = time.perf_counter() - start
        found = [
            re.search(rf"{address} (\S+)", told) for address in ("(?:REST on|gateway:)", "gRPC on")
        ]
        if process.poll() is not None or found[0] is None:
            raise SystemExit(f"the server did not start:\n{told}")
        # Keep reading its output, because it would block on a full pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield Running(process, ready_after_s, *(match[1] for match in found if match))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()


def serving(*bases: Path, options: Sequence[str] = ()) -> AbstractContextManager[Running]:
    """Runs the local server on some base paths."""
    ports = ("--rest-port", "0", "--grpc-port", "0")
    command = ("-m", "keras_transformers.cli.main", "serve", *map(str, bases))
    return started(*command, *ports, "--timeout", "120", *options)


@contextlib.contextmanager
def both_ways(base: Path) -> Iterator[dict[str, Running]]:
    """Runs the local server on a base path, with batching and without."""
    limits = ("--max-requests", "128")
    with (
        serving(base, options=limits) as batching,
        serving(base, options=(*limits, "--no-batching")) as alone,
    ):
        yield {"batching on": batching, "batching off": alone}


def called_directly(base: Path) -> Ask:
    """Returns the newest version, run in this process: text -> output name -> value."""
    loaded = tf.saved_model.load(str(resolve(base)))
    function = loaded.signatures["serving_default"]
    (name,) = function.structured_input_signature[1]

    def ask(text: str) -> dict[str, Any]:
        outputs = function(**{name: tf.constant([text])})
        return {key: value.numpy()[0] for key, value in outputs.items()}

    return ask


@dataclass
class Tally:
    """The seconds of each request, and of all requests together, over several rounds."""

    seconds: list[float] = field(default_factory=list)
    wall: float = 0.0
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.seconds) / self.wall

    def row(self, name: str, reference: "Tally") -> str:
        """Returns a line of the table: title, rate, ratio to `reference`, p50, p99, CPU time."""
        ordered = sorted(self.seconds)
        p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        return (
            f"{name:<36} {self.rate:8.1f}/s ({self.rate / reference.rate:5.2f})"
            f" {1e3 * statistics.median(ordered):9.1f} ms {1e3 * p99:9.1f} ms"
            f" {1e3 * self.cpu / len(ordered):9.1f} ms"
        )


HEADER = f"{'':<36} {'throughput (ratio)':>18} {'p50':>12} {'p99':>12} {'CPU/request':>12}"


def timed(
    connect: Connect,
    texts: Sequence[str],
    tally: Tally,
    *,
    clock: Clock,
    clients: int = 1,
) -> None:
    """Sends every text once, from `clients` at a time, each on its own connection."""
    rest = iter(texts)
    lock = threading.Lock()
    barrier = threading.Barrier(clients + 1, timeout=300)

    def work() -> list[float]:
        seconds = []
        with connect() as ask:
            try:
                ask(texts[0])  # connects and fills caches
            finally:
                barrier.wait()
            while True:
                with lock:
                    text = next(rest, None)
                if text is None:
                    return seconds
                start = time.perf_counter()
                ask(text)
                seconds.append(time.perf_counter() - start)

    with ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(work) for _ in range(clients)]
        barrier.wait()
        start, cpu_start = time.perf_counter(), clock()
        for future in futures:
            tally.seconds += future.result()
        tally.wall += time.perf_counter() - start
        tally.cpu += clock() - cpu_start


@contextlib.contextmanager
def client(target: str, model: str) -> Iterator[Ask]:
    """Opens a client of the package."""
    with Client(target, timeout_s=120) as connected:
        yield lambda text: connected.ask([text], model=model)


def kinds_of(texts: Sequence[str], count: int) -> dict[str, list[str]]:
    """Returns `count` texts of each kind, repeated if there are fewer."""
    kinds = {"short": [t for t in texts if len(t.split()) <= SHORT_WORDS], "mixed": texts}
    if not kinds["short"]:
        raise SystemExit(f"no text of at most {SHORT_WORDS} words")
    return {
        kind: list(itertools.islice(itertools.cycle(lines), count)) for kind, lines in kinds.items()
    }


def compare(
    contestants: Mapping[str, tuple[Connect, Clock]],
    texts: Sequence[str],
    *,
    clients: int,
    rounds: int,
) -> dict[str, Tally]:
    """Times each contestant in turn, round after round; the first always has one client."""
    tallies = {name: Tally() for name in contestants}
    for _ in range(rounds):
        for number, (name, (connect, clock)) in enumerate(contestants.items()):
            timed(connect, texts, tallies[name], clients=clients if number else 1, clock=clock)
    return tallies


def tell(
    title: str,
    direct: Ask,
    servers: Mapping[str, tuple[Connect, Clock]],
    texts: Sequence[str],
    *,
    clients: int,
    rounds: int,
) -> None:
    """Times servers and direct calls, and prints one line for each."""
    first = "called directly"
    here: tuple[Connect, Clock] = (lambda: contextlib.nullcontext(direct), time.process_time)
    contestants = {first: here} | dict(servers)
    found = compare(contestants, texts, clients=clients, rounds=rounds)
    print(title)
    for name, tally in found.items():
        print(tally.row(f"  {name}", found[first]), flush=True)


@contextlib.contextmanager
def memory_told(servers: Mapping[str, Running]) -> Iterator[None]:
    """Prints how long the servers took to load, and their memory before the block and after it."""
    before = {name: server.rss_mib() for name, server in servers.items()}
    for name, server in servers.items():
        print(
            f"{name}: ready after {server.ready_after_s:.1f} s, {server.cpu_s():.1f} s of CPU time"
        )
    yield
    for name, server in servers.items():
        print(f"{name}: resident memory {before[name]:.0f} -> {server.rss_mib():.0f} MiB")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for what is asked, and how often."""
    parser.add_argument("texts", type=Path)
    parser.add_argument("--requests", type=int, default=128, help="per round (128)")
    parser.add_argument("--rounds", type=int, default=3, help="per cell (3)")
    parser.add_argument("--lines", type=int, default=200, help="lines of TEXTS, at most (200)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base_path", type=Path)
    add_options(parser)
    protocols = ["rest", "grpc"]
    parser.add_argument("--protocols", nargs="+", choices=protocols, default=protocols)
    parsed = parser.parse_args()

    kinds = kinds_of(list(read_lines(parsed.texts))[: parsed.lines], parsed.requests)
    direct, model = called_directly(parsed.base_path), parsed.base_path.name
    with both_ways(parsed.base_path) as servers, memory_told(servers):
        print(HEADER)
        for protocol, kind, clients in itertools.product(parsed.protocols, kinds, parsed.clients):
            tell(
                f"{protocol}, {kind}, {clients} clients",
                direct,
                {
                    name: (
                        functools.partial(client, getattr(server, protocol), model),
                        server.cpu_s,
                    )
                    for name, server in servers.items()
                },
                kinds[kind],
                clients=clients,
                rounds=parsed.rounds,
            )


if __name__ == "__main__":
    main()
