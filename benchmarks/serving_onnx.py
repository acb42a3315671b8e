"""Compares the local server with an ONNX Runtime server: texts to MiniLM's embeddings.

    pip install -e '.[serving,reference]' onnx onnxruntime
    python benchmarks/serving_onnx.py MINILM TEXTS

MINILM is a folder with config.json, model.safetensors, vocab.txt and tokenizer.json, such as
sentence-transformers/all-MiniLM-L6-v2; TEXTS is a file with one text per line, plain or .gz.

One side is the export of a `pipelines.Embedder` with these weights. The other is what PyTorch users
would build: Hugging Face's tokenizer, its model through torch.onnx.export, and `onnx_server.py`,
without batching. Times are measured only if both give the same vectors.

First both run in this process, in batches of 1, 8 and 32 rows of mixed lengths; then the same plain
HTTP client calls the servers over REST. Contestants take turns in each round, so that other work on
the machine affects both; ratios are to the first of each list. On both sides a model runs on one
thread, unless TF_NUM_INTRAOP_THREADS is set.

onnx is under the Apache 2.0 licence, onnxruntime under the MIT licence.
"""

import argparse
import contextlib
import functools
import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from onnx_server import MAX_SEQUENCE_LENGTH, MODEL, Embed, onnx_embed
from serving import (
    HEADER,
    Ask,
    Tally,
    add_options,
    both_ways,
    called_directly,
    kinds_of,
    memory_told,
    started,
    tell,
    tf,
)

from keras_transformers.files import read_lines

SERVER = str(Path(__file__).with_name("onnx_server.py"))
BATCH_SIZES = (1, 8, 32)


def export_saved_model(weights: Path, base: Path) -> None:
    import keras_transformers as kt

    model, tokenizer = kt.convert.load_encoder(weights=weights)
    embed = kt.pipelines.Embedder(model, tokenizer, max_sequence_length=MAX_SEQUENCE_LENGTH)
    kt.export(embed, base)


def export_onnx(weights: Path, path: Path) -> None:
    import torch
    from transformers import BertModel

    class Embedder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel.from_pretrained(weights, add_pooling_layer=False)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            outputs = self.bert(input_ids=input_ids, attention_mask=attention_mask)
            real = attention_mask.unsqueeze(-1).to(torch.float32)  # (batch, length, 1)
            mean = (outputs.last_hidden_state * real).sum(1) / real.sum(1)
            return torch.nn.functional.normalize(mean, dim=-1)

    inputs = ["input_ids", "attention_mask"]
    axes = {name: {0: "batch", 1: "length"} for name in inputs} | {"embedding": {0: "batch"}}
    torch.onnx.export(
        Embedder().eval(),
        (torch.ones(2, 7, dtype=torch.int64),) * 2,
        str(path),
        input_names=inputs,
        output_names=["embedding"],
        dynamic_axes=axes,
        dynamo=False,
    )


def saved_model_embed(base: Path) -> Embed:
    function = tf.saved_model.load(str(base / "1")).signatures["serving_default"]
    return lambda texts: function(text=tf.constant(list(texts)))["embedding"].numpy()


@contextlib.contextmanager
def plain_client(url: str) -> Iterator[Ask]:
    with httpx.Client(base_url=url, timeout=120) as http:

        def ask(text: str) -> Any:
            response = http.post(f"/v1/models/{MODEL}:predict", json={"instances": [text]})
            return response.raise_for_status().json()["predictions"]

        yield ask


def check_same(left: Embed, right: Embed, texts: Sequence[str]) -> None:
    difference = np.abs(left(texts) - right(texts)).max()
    print(f"greatest difference between the vectors of {len(texts)} texts: {difference:.1e}")
    if difference > 1e-4:
        raise SystemExit("these are not the same model: nothing is timed")


def time_batches(sides: dict[str, Embed], texts: Sequence[str], rounds: int) -> None:
    for size in BATCH_SIZES:
        batches = [texts[i : i + size] for i in range(0, len(texts) - size + 1, size)]
        tallies = {name: Tally() for name in sides}
        for _, (name, embed) in itertools.product(range(rounds), sides.items()):
            embed(batches[0])  # traces and caches
            for batch in batches:
                start, cpu_start = time.perf_counter(), time.process_time()
                embed(batch)
                tallies[name].seconds.append(time.perf_counter() - start)
                tallies[name].cpu += time.process_time() - cpu_start
            tallies[name].wall = sum(tallies[name].seconds)
        print(f"in this process, batches of {size}")
        for name, tally in tallies.items():
            print(tally.row(f"  {name}", next(iter(tallies.values()))), flush=True)


def time_servers(parsed: argparse.Namespace, base: Path, onnx: Sequence[str]) -> None:
    kinds = kinds_of(list(read_lines(parsed.texts))[: parsed.lines], parsed.requests)
    direct = called_directly(base)
    with both_ways(base, by_rows=True) as ours, started(SERVER, *onnx) as other:
        servers = ours | {"ONNX Runtime": other}
        with memory_told(servers):
            for (kind, texts), clients in itertools.product(kinds.items(), parsed.clients):
                tell(
                    f"REST, {kind}, {clients} clients",
                    direct,
                    {
                        name: (functools.partial(plain_client, server.rest), server.cpu_s)
                        for name, server in servers.items()
                    },
                    texts,
                    clients=clients,
                    rounds=parsed.rounds,
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("minilm", type=Path)
    add_options(parser)
    parser.add_argument("--onnx", type=Path, help="the ONNX model, if torch is not installed")
    parsed = parser.parse_args()
    texts = list(read_lines(parsed.texts))[: parsed.lines]
    with tempfile.TemporaryDirectory() as folder:
        base, graph = Path(folder, MODEL), Path(folder, "model.onnx")
        tokenizer = parsed.minilm / "tokenizer.json"
        export_saved_model(parsed.minilm, base)
        if parsed.onnx is None:
            export_onnx(parsed.minilm, graph)
        else:
            graph = parsed.onnx
        sides = {"SavedModel": saved_model_embed(base), "ONNX": onnx_embed(graph, tokenizer)}
        check_same(*sides.values(), texts)
        print(HEADER)
        time_batches(sides, texts, parsed.rounds)
        time_servers(parsed, base, (str(graph), str(tokenizer)))


if __name__ == "__main__":
    main()
