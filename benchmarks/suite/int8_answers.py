"""How near an export in int8 is to the one in float32, in answers and in bytes.

    python benchmarks/suite/int8_answers.py PIPELINE TEXTS

PIPELINE is a folder that `kt.load` reads. TEXTS has one text per line, plain or .gz. For a
classifier the lines are `text<TAB>label`, and both exports' accuracies are printed; for an
embedder, the cosines of the two vectors of each text.
"""

import argparse
import gzip
import tempfile
from pathlib import Path

import numpy as np

import keras_transformers as kt


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
    texts, labels = zip(*(line.partition("\t")[::2] for line in lines), strict=True)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    answers = {}
    for dtype in ("float32", "int8"):
        with tempfile.TemporaryDirectory() as folder:
            export = kt.export(pipeline, folder, weights_dtype=dtype)
            num_bytes = sum(file.stat().st_size for file in export.rglob("*") if file.is_file())
            rows = kt.saved_model.predict(export, {"text": [texts[i] for i in order]})
        answers[dtype] = dict(zip(order, rows, strict=True))
        print(f"{dtype}: {num_bytes / 1e6:.1f} MB")
        if "label" in rows[0]:
            right = [row["label"] == labels[i] for i, row in answers[dtype].items()]
            print(f"{dtype}: accuracy {np.mean(right):.4f} of {len(right)} texts")
    pairs = [(answers["float32"][i], answers["int8"][i]) for i in order]
    if "label" in pairs[0][0]:
        same = np.mean([a["label"] == b["label"] for a, b in pairs])
        far = max(
            np.abs(np.subtract(a["probabilities"], b["probabilities"])).max() for a, b in pairs
        )
        print(f"the same label: {same:.4f}; probabilities differ by at most {far:.3f}")
    else:
        found = [cosine(a["embedding"], b["embedding"]) for a, b in pairs]
        print(f"cosines of {len(found)} texts: mean {np.mean(found):.4f}, least {min(found):.4f}")


def cosine(a: list[float], b: list[float]) -> float:
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


if __name__ == "__main__":
    main()
