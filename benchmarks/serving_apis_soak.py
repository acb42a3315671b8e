r"""Stress-tests the APIs of other clients: the local server's and the gateway's, all mixed.

    pip install -e '.[dev]'
    python benchmarks/serving_apis_soak.py --seconds 3600

One local server with five tiny models of random weights, in a process of its own, and a gateway in
front of it in another. Clients in threads of this process ask both, through each API: OpenAI's
(chat, completions, embeddings, with and without streams), Text Embeddings Inference's, Cohere's and
Jina's, the Open Inference Protocol, and TF Serving's own. A tenth of the requests are malicious. A
tenth are for streams whose client leaves after the first piece, and some clients ask for a long
text and read nothing of it.

Every answer is compared with that of TF Serving's API, asked beforehand. The exit status is 1 if an
answer is wrong or missing, if a request is left at the end, or if a process's median memory of the
last quarter is 5 % above that of the second (see serving_soak.py).
"""

import argparse
import base64
import contextlib
import json
import os
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import httpx
import numpy as np
import tiny
from serving import Running, serving, started
from serving_soak import MAX_GROWTH, metric, same

from keras_transformers.serving import Client

TASKS = ("classification", "embedding", "generation", "reranking")
TEXTS = (
    *("a good film", "a very long film .", "bad !", "film", "a a a a", "a good bad good film"),
    *("a film , long", "good good", "very very long", "so what ?", "a b c d e f g h", "!"),
)
DOCUMENTS = list(TEXTS[:4])
HOSTILE_SHARE, LEAVING_SHARE, DEAF_SHARE = 0.1, 0.1, 0.01
DEAF_SECONDS = 5.0
LONG = 400  # tokens, of the texts that nobody reads to the end


def hostile_bodies() -> list[tuple[str, bytes]]:
    """Returns paths and bodies that must be refused."""
    chat = {"model": "talker", "messages": [{"role": "user", "content": "a"}]}
    return [
        ("/v1/chat/completions", b"{"),
        ("/v1/chat/completions", b"[" * 10_000),
        ("/v1/chat/completions", json.dumps(chat | {"messages": []}).encode()),
        ("/v1/chat/completions", json.dumps(chat | {"temperature": "hot"}).encode()),
        ("/v1/chat/completions", json.dumps(chat | {"model": "nobody"}).encode()),
        ("/v1/chat/completions", json.dumps(chat | {"tools": [{"type": "x"}]}).encode()),
        ("/v1/chat/completions", b'{"model": "talker", "messages": 7, "temperature": NaN}'),
        ("/v1/completions", b'{"model": "generation", "prompt": {}}'),
        ("/v1/embeddings", b'{"model": "embedding", "input": []}'),
        ("/v1/embeddings", b'{"model": "embedding", "input": "' + b"x" * (17 << 20) + b'"}'),
        ("/embed", b'{"inputs": [1, 2]}'),
        ("/rerank", b'{"query": "a"}'),
        ("/v2/rerank", b'{"model": "reranking", "query": "a", "documents": []}'),
        ("/v2/models/embedding/infer", b'{"inputs": [{"name": "text"}]}'),
        ("/v2/models/nobody/infer", b'{"inputs": []}'),
    ]


@dataclass(frozen=True)
class Expected:
    """What TF Serving's API answers to each text."""

    chats: Mapping[str, Any]
    completions: Mapping[str, Any]
    embeddings: Mapping[str, np.ndarray]
    rankings: Mapping[str, Any]
    probabilities: Mapping[str, np.ndarray]

    @classmethod
    def asked(cls, client: Client) -> "Expected":
        """Asks a server."""
        conversations = [[{"role": "user", "content": text}] for text in TEXTS]
        prompts = {"prompt": TEXTS, "stop": [[""]] * len(TEXTS)}
        prompts |= {key: [value] * len(TEXTS) for key, value in options_of_completions().items()}
        return cls(
            dict(zip(TEXTS, client.chat(conversations, model="talker"), strict=True)),
            dict(
                zip(
                    TEXTS,
                    client.predict(prompts, model="generation", signature_name="complete")["text"],
                    strict=True,
                )
            ),
            dict(
                zip(
                    TEXTS,
                    client.predict({"text": TEXTS}, model="embedding")["embedding"],
                    strict=True,
                )
            ),
            dict(
                zip(
                    TEXTS,
                    client.ask(TEXTS, [DOCUMENTS] * len(TEXTS), model="reranking"),
                    strict=True,
                )
            ),
            dict(
                zip(
                    TEXTS,
                    client.predict({"text": TEXTS}, model="classification")["probabilities"],
                    strict=True,
                )
            ),
        )


def options_of_completions() -> dict[str, Any]:
    return {
        "max_length": 5,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "seed": 3,
        "repetition_penalty": 1.0,
    }


class Asking:
    """One client's requests: a method for each kind returns whether the answer is right."""

    def __init__(self, http: httpx.Client, client: Client, expected: Expected) -> None:
        self.http, self.client, self.expected = http, client, expected
        self.kinds: list[Callable[[str], bool]] = [
            self.chat,
            self.streamed_chat,
            self.completion,
            self.streamed_completion,
            self.embedding,
            self.base64_embedding,
            self.tei_embedding,
            self.tei_ranking,
            self.cohere_ranking,
            self.tei_prediction,
            self.open_inference,
            self.tf_serving,
        ]

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Returns the JSON of an answer."""
        answer = self.http.post(path, json=body)
        answer.raise_for_status()
        return answer.json()

    def streamed(self, path: str, body: Mapping[str, Any]) -> Iterator[Any]:
        """Yields the JSON of each event."""
        with self.http.stream("POST", path, json={**body, "stream": True}) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line.removeprefix("data: "))

    def messages(self, text: str) -> dict[str, Any]:
        """Returns a request for a chat."""
        return {"model": "talker", "messages": [{"role": "user", "content": text}]}

    def prompt(self, text: str) -> dict[str, Any]:
        """Returns a request for a completion."""
        written = {"max_tokens": 5, "temperature": 1.0, "top_p": 1.0, "seed": 3}
        return {"model": "generation", "prompt": text, **written}

    def chat(self, text: str) -> bool:
        """Compares OpenAI's chat, and its count of tokens."""
        answer = self.post("/v1/chat/completions", self.messages(text))
        expected = self.expected.chats[text]
        same_count = answer["usage"]["completion_tokens"] == expected.num_new_tokens
        return same_count and answer["choices"][0]["message"]["content"] == expected.text

    def streamed_chat(self, text: str) -> bool:
        """Compares its pieces, joined."""
        chunks = list(self.streamed("/v1/chat/completions", self.messages(text)))
        pieces = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
        return "".join(pieces) == self.expected.chats[text].text

    def completion(self, text: str) -> bool:
        """Compares OpenAI's completion."""
        answer = self.post("/v1/completions", self.prompt(text))
        return answer["choices"][0]["text"].encode() == self.expected.completions[text]

    def streamed_completion(self, text: str) -> bool:
        """Compares its pieces, joined."""
        chunks = list(self.streamed("/v1/completions", self.prompt(text)))
        pieces = [chunk["choices"][0]["text"] for chunk in chunks]
        return "".join(pieces).encode() == self.expected.completions[text]

    def embedding(self, text: str) -> bool:
        """Compares OpenAI's embedding."""
        answer = self.post("/v1/embeddings", {"model": "embedding", "input": [text, TEXTS[0]]})
        return same(answer["data"][0]["embedding"], self.expected.embeddings[text])

    def base64_embedding(self, text: str) -> bool:
        """Compares it as bytes."""
        body = {"model": "embedding", "input": text, "encoding_format": "base64"}
        data = base64.b64decode(self.post("/v1/embeddings", body)["data"][0]["embedding"])
        return same(np.frombuffer(data, "<f4"), self.expected.embeddings[text])

    def tei_embedding(self, text: str) -> bool:
        """Compares Text Embeddings Inference's embedding."""
        (vector,) = self.post("/embed", {"inputs": text})
        return same(vector, self.expected.embeddings[text])

    def tei_ranking(self, text: str) -> bool:
        """Compares its order of documents."""
        ranked = self.post("/rerank", {"query": text, "texts": DOCUMENTS})
        return self.is_order([each["index"] for each in ranked], text)

    def cohere_ranking(self, text: str) -> bool:
        """Compares Cohere's order of documents."""
        body = {"model": "reranking", "query": text, "documents": DOCUMENTS}
        return self.is_order([e["index"] for e in self.post("/v2/rerank", body)["results"]], text)

    def is_order(self, order: Sequence[int], text: str) -> bool:
        """Returns whether an order is the scores', but for rounding."""
        scores = np.asarray(self.expected.rankings[text].scores)[list(order)]
        return sorted(order) == list(range(len(DOCUMENTS))) and bool(
            (np.diff(scores) <= 1e-4).all()
        )

    def tei_prediction(self, text: str) -> bool:
        """Compares Text Embeddings Inference's probabilities."""
        classes = self.post("/predict", {"inputs": text})
        return same(
            sorted(each["score"] for each in classes), np.sort(self.expected.probabilities[text])
        )

    def open_inference(self, text: str) -> bool:
        """Compares the Open Inference Protocol's embedding."""
        tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}
        answer = self.post("/v2/models/embedding/infer", {"inputs": [tensor]})
        return same(answer["outputs"][0]["data"], self.expected.embeddings[text])

    def tf_serving(self, text: str) -> bool:
        """Compares TF Serving's embedding by gRPC, of the local server in both processes."""
        (vector,) = self.client.predict({"text": [text]}, model="embedding")["embedding"]
        return same(vector, self.expected.embeddings[text])

    def leave(self, text: str) -> bool:
        """Leaves a long stream after its first piece, and asks again."""
        body = self.messages(text) | {"max_tokens": LONG}
        with contextlib.closing(self.streamed("/v1/chat/completions", body)) as chunks:
            next(chunks)
        return True

    def listen_to_nothing(self, text: str) -> bool:
        """Asks for a long stream on a connection of its own, and reads nothing of it."""
        url = self.http.base_url
        content = json.dumps(self.messages(text) | {"max_tokens": LONG, "stream": True}).encode()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect((url.host, url.port))
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {url.host}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            connection.sendall(head.encode() + content)
            time.sleep(DEAF_SECONDS)
        return True


@dataclass
class Soak:
    """Sends requests from several threads and counts the outcomes."""

    urls: Mapping[str, str]  # of the other APIs, by process
    grpc: str
    expected: Expected
    stop_at: float
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, process: str, seed: int) -> None:
        """Sends requests to a process until time is up."""
        generator, bodies = random.Random(seed), hostile_bodies()
        with (
            Client(self.grpc, timeout_s=120) as client,
            httpx.Client(base_url=self.urls[process], timeout=120) as http,
        ):
            asking = Asking(http, client, self.expected)
            while time.monotonic() < self.stop_at:
                text, share, kind = generator.choice(TEXTS), generator.random(), "hostile"
                try:
                    if share < HOSTILE_SHARE:
                        path, content = generator.choice(bodies)
                        right = 400 <= http.post(path, content=content).status_code < 500
                    else:
                        ask = generator.choice(asking.kinds)
                        if share < HOSTILE_SHARE + LEAVING_SHARE:
                            ask = asking.leave
                        elif share > 1 - DEAF_SHARE:
                            ask = asking.listen_to_nothing
                        kind, right = ask.__name__.replace("_", " "), ask(text)
                    problem = "" if right else f"{process}: {kind}: {text!r} is wrong"
                except Exception as error:
                    problem = f"{process}: {kind}: {text!r}: {error!r}"
                with self.lock:
                    self.counts[f"{process}, {kind}, {'wrong' if problem else 'right'}"] += 1
                    self.problems += [problem] if problem else []


def growth(values: Sequence[float]) -> float:
    """Returns how far the last quarter's median is above the second quarter's."""
    _, second, _, last = (np.median(part) for part in np.array_split(values, 4))
    return float(last / second) - 1


@contextlib.contextmanager
def processes() -> Iterator[dict[str, Running]]:
    """Runs the local server, and the gateway in front of it."""
    bases = [tiny.exported_talker().parent, *(tiny.exported(task).parent for task in TASKS)]
    limits = ("--max-requests", "256")
    with serving(*bases, options=limits) as server:
        command = ("-m", "keras_transformers.cli.main", "gateway", server.rest)
        with started(*command, "--port", "0", *limits) as gateway:
            yield {"serve": server, "gateway": gateway}


def soak(parsed: argparse.Namespace) -> int:
    with processes() as running, ThreadPoolExecutor(parsed.clients) as pool:
        server = running["serve"]
        with Client(server.rest, timeout_s=300) as client:
            expected = Expected.asked(client)
        start = time.monotonic()
        run = Soak(
            {name: process.rest for name, process in running.items()},
            server.grpc,
            expected,
            start + parsed.seconds,
        )
        names = list(running)
        workers = [
            pool.submit(run.work, names[seed % len(names)], seed) for seed in range(parsed.clients)
        ]
        memory: dict[str, list[float]] = {name: [] for name in running}
        while not all(worker.done() for worker in workers):
            for name, process in running.items():
                memory[name].append(process.rss_mib())
            time.sleep(parsed.seconds / 200)
        for worker in workers:
            worker.result()
        seconds = time.monotonic() - start
        patience = time.monotonic() + 40  # the server waits 30 s for clients that read nothing
        while (left := metric(server, "requests_in_flight")) and time.monotonic() < patience:
            time.sleep(0.2)
    print(f"{run.counts.total()} requests from {parsed.clients} clients in {seconds:.0f} s")
    for kind, count in sorted(run.counts.items()):
        print(f"  {kind}: {count}")
    for problem in run.problems[:20]:
        print(f"  {problem[:400]}")
    print(f"  requests in progress at the end: {left}")
    for name, values in memory.items():
        quarters = [np.median(part) for part in np.array_split(values, 4)]
        print(
            f"  memory of {name}: {values[0]:.0f} MiB at the start, {values[-1]:.0f} at the end; "
            f"medians of the quarters {', '.join(f'{mib:.0f}' for mib in quarters)} MiB, "
            f"growth {growth(values):+.1%}"
        )
    grows = any(growth(values) > MAX_GROWTH for values in memory.values())
    return 1 if run.problems or left or grows else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--clients", type=int, default=16)
    return soak(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
