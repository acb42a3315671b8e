"""Runs a minimal server for a text embedder in ONNX, for comparison in `serving_onnx.py`.

    python benchmarks/onnx_server.py MODEL.onnx tokenizer.json

It uses Starlette and uvicorn, as the local server does, and a thread pool for the runs. It answers
only TF Serving's predict in rows: no batching, no limits, no versions, no other format.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

try:
    import onnxruntime
    from tokenizers import Tokenizer
except ModuleNotFoundError as error:
    raise SystemExit(f"{error}: pip install -e '.[serving,reference]' onnx onnxruntime") from None

MODEL = "embedder"
MAX_SEQUENCE_LENGTH = 128

Embed = Callable[[Sequence[str]], np.ndarray]  # texts -> (text, hidden)


def onnx_embed(model: Path, tokenizer: Path) -> Embed:
    """Returns an embedder with Hugging Face's tokenizer and ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("TF_NUM_INTRAOP_THREADS", "1"))
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    pieces = Tokenizer.from_file(str(tokenizer))
    pieces.enable_truncation(MAX_SEQUENCE_LENGTH)
    pieces.enable_padding()

    def embed(texts: Sequence[str]) -> np.ndarray:
        encoded = pieces.encode_batch(list(texts))
        feeds = {
            "input_ids": np.array([one.ids for one in encoded], np.int64),
            "attention_mask": np.array([one.attention_mask for one in encoded], np.int64),
        }
        return session.run(["embedding"], feeds)[0]

    return embed


def serve(model: Path, tokenizer: Path) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    embed = onnx_embed(model, tokenizer)

    async def predict(request: Request) -> Response:
        texts = (await request.json())["instances"]
        vectors = await run_in_threadpool(embed, texts)
        return JSONResponse({"predictions": vectors.tolist()})

    app = Starlette(routes=[Route(f"/v1/models/{MODEL}:predict", predict, methods=["POST"])])
    # These lines tell the benchmarks that a server is ready.
    # If asyncio knows that this is TCP, it sends a body before its head is acknowledged.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        print(f"REST on http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr)
        print("onnx: ready:", file=sys.stderr, flush=True)
        asyncio.run(server.serve(sockets=[listening]))


if __name__ == "__main__":
    serve(*map(Path, sys.argv[1:3]))
