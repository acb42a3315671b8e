"""Measures embedders on search and similarity, on the data that recipes/embedding.py holds out.

    python benchmarks/embeddings.py --data DATA --model MiniLM=minilm/ --model MPNet=mpnet/
        > benchmarks/results/embeddings.txt

DATA is the folder of public data. XQuAD: finding each question's paragraph among all held-out ones,
in English and German, also by BM25. SICK and MRPC: the cosines of pairs of sentences are compared
with human scores; MRPC's are 0 and 1. Nothing is trained here.
"""

import argparse
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras_transformers as kt
from keras_transformers.data.text import TextPairFiles, TextPairs
from keras_transformers.fitting import bm25_scores, similarity_scores

SHARE = 0.4, 0.2  # of XQuAD and SICK, as in the recipe's commands


def held_out(data: Path) -> dict[str, TextPairs]:
    """Returns name -> the pairs that training holds out."""

    def test(*files: Path, **options: Any) -> TextPairs:
        found = TextPairFiles(train_file=files, **options).read().test
        assert found is not None
        return found

    english, german = (data / f"xquad/xquad.{language}.json.gz" for language in ("en", "de"))
    sick = {"text_column": "sentence_A", "text_b_column": "sentence_B", "score_scale": 5.0}
    mrpc = kt.data.text.load_glue("mrpc", data / "mrpc/msr_paraphrase_train.txt.gz")
    scores = [float(label) for label in mrpc.labels or ()]
    return {
        "XQuAD, English": test(english, squad=True, test_fraction=SHARE[0]),
        "XQuAD, German": test(german, squad=True, test_fraction=SHARE[0]),
        "XQuAD, both": test(english, german, squad=True, test_fraction=SHARE[0]),
        "SICK": test(
            data / "sick/SICK_train.txt.gz",
            score_column="relatedness_score",
            test_fraction=SHARE[1],
            **sick,
        ),
        "MRPC": TextPairs(mrpc.texts, mrpc.texts_b or (), scores=scores, source=mrpc.source),
    }


def main() -> None:
    """Prints a row for each model and part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=FOLDER")
    options = parser.parse_args()
    parts = held_out(options.data)
    print("| model | data | pairs | figures |\n|---|---|--:|---|")
    for name, folder in (model.split("=", 1) for model in options.model):
        embed = kt.load(folder, pipeline="embedding")
        for part, pairs in parts.items():
            show(name, part, pairs, similarity_scores(embed, pairs))
    for part, pairs in parts.items():
        if pairs.scores is None:
            show("BM25", part, pairs, bm25_scores(pairs))


def show(name: str, part: str, pairs: TextPairs, scores: dict[str, float]) -> None:
    """Prints a row."""
    figures = ", ".join(f"{x} {y:.4f}" for x, y in scores.items())
    print(f"| {name} | {part} | {len(pairs):,} | {figures.replace('_of_bm25', '')} |", flush=True)


if __name__ == "__main__":
    main()
