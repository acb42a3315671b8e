"""Compares the answers and the size of an export in int8 with those of one in float32.

    python benchmarks/suite/int8_answers.py PIPELINE TEXTS

PIPELINE is a folder that `kt.load` reads. TEXTS has one text per line, plain or .gz. For a
classifier the lines are `text<TAB>label`, and both exports' accuracies are printed; for an
embedder, the cosines of the two vectors of each text. For a translator the lines are
`text<TAB>translation`, and BLEU is printed; for a text generator, the perplexity of each token.
The export in int8 also answers as on a processor with AVX2 alone, in a process of its own.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import keras_transformers as kt
from keras_transformers.evaluation import corpus_bleu

AVX2 = {"TF_ENABLE_ONEDNN_OPTS": "0", "ONEDNN_MAX_CPU_ISA": "AVX2"}
ELSEWHERE = """
import json, sys
import keras_transformers as kt
export, signature = sys.argv[1:]
print(json.dumps(kt.saved_model.predict(export, json.load(sys.stdin), signature=signature)))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--limit", type=int, help="read this many lines")
    arguments = parser.parse_args()
    pipeline = kt.load(arguments.pipeline)
    with (gzip.open if arguments.texts.suffix == ".gz" else open)(
        arguments.texts, "rt", encoding="utf-8"
    ) as file:
        lines = [line.rstrip("\n") for line in file][: arguments.limit]
    texts, expected = zip(*(line.partition("\t")[::2] for line in lines), strict=True)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    answers = {}
    for dtype in ("float32", "int8"):
        with tempfile.TemporaryDirectory() as folder:
            export = kt.export(pipeline, folder, weights_dtype=dtype)
            num_bytes = sum(file.stat().st_size for file in export.rglob("*") if file.is_file())
            signature = "score" if pipeline.task == "generation" else "serving_default"
            texts_in_order = {"text": [texts[i] for i in order]}
            rows = kt.saved_model.predict(export, texts_in_order, signature=signature)
            if dtype == "int8":
                on_avx2 = rows_on_avx2(export, texts_in_order, signature)
        answers[dtype] = rows
        print(f"{dtype}: {num_bytes / 1e6:.1f} MB")
        print(f"{dtype}: {score(rows, [expected[i] for i in order])}")
    print(f"int8 and float32: {comparison(answers['int8'], answers['float32'])}")
    print(f"int8 on AVX2: {score(on_avx2, [expected[i] for i in order])}")
    print(f"int8 on AVX2 and here: {comparison(on_avx2, answers['int8'])}")


def rows_on_avx2(export: Path, texts: dict[str, list[str]], signature: str) -> list[dict[str, Any]]:
    """Answers in a process that computes as on a processor with AVX2 alone."""
    answering = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(export), signature],
        input=json.dumps(texts),
        env=os.environ | AVX2,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows: list[dict[str, Any]] = json.loads(answering.stdout.splitlines()[-1])
    return rows


def comparison(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> str:
    """Returns how far two exports' answers are from each other, as text."""
    pairs = list(zip(rows, others, strict=True))
    if "label" in rows[0]:
        same = np.mean([a["label"] == b["label"] for a, b in pairs])
        differences = [np.subtract(a["probabilities"], b["probabilities"]) for a, b in pairs]
        far = np.abs(differences).max()
        return f"the same label {same:.4f}; probabilities differ by at most {far:.3f}"
    if "translation" in rows[0]:
        same = np.mean([a["translation"] == b["translation"] for a, b in pairs])
        return f"the same translation {same:.4f}"
    if "embedding" in rows[0]:
        cosines = [cosine(a["embedding"], b["embedding"]) for a, b in pairs]
        return (
            f"cosines of {len(pairs)} texts: mean {np.mean(cosines):.4f}, least {min(cosines):.4f}"
        )
    differences = [a["log_probability"] - b["log_probability"] for a, b in pairs]
    return f"log-probabilities of texts differ by at most {np.abs(differences).max():.3f}"


def score(rows: list[dict[str, Any]], expected: list[str]) -> str:
    """Returns the task's score of the answers, as text."""
    if "label" in rows[0]:
        right = [row["label"] == label for row, label in zip(rows, expected, strict=True)]
        return f"accuracy {np.mean(right):.4f} of {len(right)} texts"
    if "translation" in rows[0]:
        bleu = corpus_bleu([row["translation"] for row in rows], expected)
        return f"BLEU {bleu.score:.2f} of {len(rows)} texts"
    if "log_probability" in rows[0]:
        nats, tokens = (sum(row[key] for row in rows) for key in ("log_probability", "num_tokens"))
        return f"perplexity {np.exp(-nats / tokens):.2f} of {tokens} tokens"
    return f"{len(rows)} texts"


def cosine(a: list[float], b: list[float]) -> float:
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


if __name__ == "__main__":
    main()
