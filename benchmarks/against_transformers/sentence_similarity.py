"""Compares untrained embeddings with human judgement: SICK relatedness.

    python benchmarks/against_transformers/sentence_similarity.py DATA FOLDER...

DATA is SICK_train.txt.gz. For each folder of an embedding model that `kt.load` reads, it prints
Spearman's correlation x 100 between the cosine of two sentences' vectors and their relatedness.
`--reference` computes the vectors with transformers too (extra `reference`), from the same files,
with the mean of all real tokens' vectors as sentence-transformers does, and prints its correlation
and the largest difference of a vector.
"""

import argparse
from pathlib import Path

import numpy as np

import keras_transformers as kt
from keras_transformers.data.text import load_glue
from keras_transformers.evaluation import glue_scores

BATCH = 64


def main(data: Path, folders: list[Path], reference: bool) -> None:
    """Prints one line per folder."""
    pairs = load_glue("sick_relatedness", data)
    scores = [float(label) for label in pairs.labels]
    texts = sorted({*pairs.texts, *pairs.texts_b}, key=len)
    row = {text: number for number, text in enumerate(texts)}
    first = [row[text] for text in pairs.texts]
    second = [row[text] for text in pairs.texts_b]
    print(f"{len(first):,} pairs of {len(texts):,} sentences")

    def spearman(vectors: np.ndarray) -> float:
        cosines = np.sum(vectors[first] * vectors[second], axis=-1)
        return 100 * glue_scores(["spearman"], cosines, scores)["spearman"]

    for folder in folders:
        ours = unit([answer.vector for answer in embed_ours(folder, texts)])
        line = f"{folder.name}: Spearman {spearman(ours):.3f}"
        if reference:
            theirs = unit(embed_with_transformers(folder, texts))
            difference = np.abs(ours - theirs).max()
            line += f"; transformers {spearman(theirs):.3f}, largest difference {difference:.1e}"
        print(line, flush=True)


def embed_ours(folder: Path, texts: list[str]) -> list:
    embed = kt.load(folder, pipeline="embedding")
    batches = (texts[start : start + BATCH] for start in range(0, len(texts), BATCH))
    return [answer for batch in batches for answer in embed(batch)]


def embed_with_transformers(folder: Path, texts: list[str]) -> list[np.ndarray]:
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    vectors: list[np.ndarray] = []
    for start in range(0, len(texts), BATCH):
        rows = tokenizer(
            texts[start : start + BATCH], padding=True, truncation=True, return_tensors="pt"
        )
        with torch.no_grad():
            outputs = model(**rows).last_hidden_state
        mask = rows["attention_mask"][..., None]  # (batch, length, 1)
        vectors.extend(((outputs * mask).sum(1) / mask.sum(1)).numpy())
    return vectors


def unit(vectors: list[np.ndarray]) -> np.ndarray:
    stacked = np.stack(vectors).astype("float64")
    return stacked / np.linalg.norm(stacked, axis=-1, keepdims=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--reference", action="store_true")
    arguments = parser.parse_args()
    main(arguments.data, arguments.folders, arguments.reference)
