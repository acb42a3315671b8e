"""Searches a corpus: a query in, the texts that answer it out."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.tasks.embedding.pipeline import Embedder
from keras_transformers.tasks.pipeline import Pipeline, Signature
from keras_transformers.tasks.search.corpus import Corpus
from keras_transformers.tasks.search.index import Index
from keras_transformers.tasks.search.terms import TermIndex
from keras_transformers.tasks.search.vectors import (
    CorpusVectors,
    VectorIndex,
    VectorsDtype,
    fingerprint_of,
)
from keras_transformers.tasks.search.words import WordIndex
from keras_transformers.tasks.sparse_embedding.pipeline import SparseEmbedder
from keras_transformers.tasks.token_inputs import text_batches
from keras_transformers.tokenizers.protocols import Tokenizer

__all__ = [
    "Corpus",
    "CorpusVectors",
    "Index",
    "Searcher",
    "TermIndex",
    "VectorIndex",
    "WordIndex",
    "fingerprint_of",
]

NOT_SAVED = (
    "a search is not saved as weights: export it, which stores the corpus and its indexes, and "
    "save its models by themselves"
)
_LONG = 600  # words of the longest example of a query
_EXAMPLES = ("Where do dogs run?", "What is the price of a ticket?")


class Ranks(Protocol):
    """What reranks: a pipeline that scores documents for a text."""

    model: keras.Model

    @property
    def tokenizers(self) -> Mapping[str, Any]:
        """Its tokenizers."""

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes `scores` (batch, documents) from `text` (batch,) and `documents`."""


class Searcher(Pipeline):
    """Finds the texts of a corpus that answer a query; its export holds the corpus.

    Every query is compared with every text, so what it finds is exact; enough for a million texts.
    Scores of several indexes are added, after each index's are scaled to mean 0 and standard
    deviation 1 over the corpus, so that words and vectors count alike.

    Signatures of the export, where `batch` may be 0 and a query may be empty or any bytes:

    - serving_default(text string (batch,)) -> ids, texts string, scores float32 (batch, hits),
      num_hits int32 (batch,).
    - search(query string (batch,), k int32 (batch,)) -> the same, with as many hits as each row
      asks for, 1 to the size of the corpus. Shorter rows end in "" and 0.

    Args:
        corpus: the texts and their ids.
        indexes: of this corpus, such as a `VectorIndex` and a `WordIndex`.
        index_weights: how much each index counts; by default all alike.
        rerank: scores the best texts again, such as a `Reranker`; these scores order the hits.
        num_candidates: how many texts it scores per query; only with `rerank`.
        first_stage_weight: how much the indexes' scores count beside the reranker's, after both are
            scaled over the candidates; only with `rerank`. By default the reranker's alone decide.
        top_k: number of hits.

    Raises:
        ValueError: there is no index, or one is of another corpus; or a number is out of range.

    Example:
        >>> corpus = Corpus(["Dogs run.", "It rained.", "Cats sleep."])
        >>> search = Searcher(corpus, [WordIndex(corpus)], top_k=1)
        >>> search("What do dogs do?").texts
        ['Dogs run.']
    """

    task = "search"
    text_names = ("text",)

    def __init__(
        self,
        corpus: Corpus,
        indexes: Sequence[Index],
        *,
        index_weights: Sequence[float] | None = None,
        rerank: Ranks | None = None,
        num_candidates: int = 32,
        first_stage_weight: float = 0.0,
        top_k: int = 10,
    ) -> None:
        self.corpus, self.indexes, self.rerank = corpus, tuple(indexes), rerank
        _check_indexes(self.indexes, corpus)
        weights = [1.0] * len(indexes) if index_weights is None else list(index_weights)
        if len(weights) != len(indexes) or not all(np.isfinite(w) and w >= 0 for w in weights):
            raise ValueError(
                f"index_weights={weights}: expected a number from 0 for each of {len(indexes)} "
                "indexes"
            )
        for name, value in (("top_k", top_k), ("num_candidates", num_candidates)):
            if value < 1:
                raise ValueError(f"{name}={value}: expected 1 or more")
        if not (np.isfinite(first_stage_weight) and first_stage_weight >= 0):
            raise ValueError(f"first_stage_weight={first_stage_weight}: expected a number from 0")
        if top_k > len(corpus):
            raise ValueError(f"top_k={top_k}: the corpus has {len(corpus)} texts")
        self.index_weights, self.top_k = tuple(map(float, weights)), int(top_k)
        self.num_candidates = int(num_candidates)
        self.first_stage_weight = float(first_stage_weight)
        with tf.device("CPU:0"):
            self._strings = tuple(
                tf.Variable(values, trainable=False) for values in (corpus.ids, corpus.texts)
            )

    @property
    def models(self) -> tuple[keras.Model, ...]:
        """The models of the indexes and of the reranker, each once."""
        models = [model for index in self.indexes for model in index.models]
        if self.rerank is not None:
            models.append(self.rerank.model)
        return tuple({id(model): model for model in models}.values())

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """The tokenizers of the indexes and of the reranker."""
        tokenizers = [x for index in self.indexes for x in index.tokenizers]
        if self.rerank is not None:
            tokenizers.extend(self.rerank.tokenizers.values())
        return MappingProxyType({f"tokenizer_{i}": x for i, x in enumerate(tokenizers)})

    @property
    def stored(self) -> Sequence[Any]:
        """The texts, their ids and the indexes."""
        return (*self._strings, *(x for index in self.indexes for x in index.stored))

    def scores(self, text: tf.Tensor) -> tf.Tensor:
        """Scores all texts for queries, strings (batch,), in the graph: float32 (batch, texts).

        One index's scores are as it computes them; those of several are scaled and added.
        """
        if len(self.indexes) == 1:
            return self.indexes[0].scores(text)
        scaled = (
            _scaled(index.scores(text)) * weight
            for index, weight in zip(self.indexes, self.index_weights, strict=True)
        )
        return tf.add_n(list(scaled))

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the best texts for queries, in the graph."""
        text = texts["text"]
        return self._hits(text, self.top_k, tf.fill(tf.shape(text), self.top_k))

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {
            "ids": tf.TensorSpec([None, None], tf.string),
            "texts": tf.TensorSpec([None, None], tf.string),
            "scores": tf.TensorSpec([None, None], tf.float32),
            "num_hits": tf.TensorSpec([None], tf.int32),
        }

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `search`, whose rows say how many hits they want."""
        inputs = {
            "query": tf.TensorSpec([None], tf.string),
            "k": tf.TensorSpec([None], tf.int32),
        }
        most = min(len(self.corpus), 3)
        examples = [
            {"query": batch["text"], "k": np.arange(len(batch["text"]), dtype=np.int32) % most + 1}
            for batch in batches
        ]
        return {"search": Signature(self._search, inputs, self.answer_specs(), examples)}

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns the examples, awkward queries and an empty batch.

        Args:
            examples: queries; None for default ones, and the starts of some texts.
        """
        if examples is None:
            starts = [" ".join(text.split()[:12]) or text for text in self.corpus.texts[:3]]
            examples = (*_EXAMPLES, *starts)
        return text_batches(examples, self.text_names, long=_LONG)

    def config(self) -> dict[str, Any]:
        """Returns the options of searches, as JSON values."""
        config: dict[str, Any] = {"top_k": self.top_k, "index_weights": list(self.index_weights)}
        if self.rerank is not None:
            config["num_candidates"] = self.num_candidates
            config["first_stage_weight"] = self.first_stage_weight
        return config

    def metadata(self) -> dict[str, Any]:
        """Returns what an export records of the corpus and its indexes."""
        return {
            **self.config(),
            "num_texts": len(self.corpus),
            "corpus_sha256": self.corpus.checksum(),
            "indexes": [dict(index.metadata()) for index in self.indexes],
        }

    @classmethod
    def of(
        cls,
        embed: Pipeline,
        texts: Corpus | Iterable[str],
        *,
        ids: Iterable[str | int] | None = None,
        vectors_dtype: VectorsDtype | None = None,
        words: bool = False,
        **options: Any,
    ) -> "Searcher":
        """Indexes texts for an embedder, and searches them.

        Args:
            embed: an `Embedder` or a `SparseEmbedder`, of the texts and the queries.
            texts: the corpus, or its texts.
            ids: of texts that are not a `Corpus` yet; see there.
            vectors_dtype: see `VectorIndex`; "float32" by default.
            words: whether to add the scores of BM25; see `WordIndex`.
            **options: see `Searcher`.

        Raises:
            ValueError: the pipeline is not for embedding; see also `Corpus`, `VectorIndex` and
                `Searcher`.
        """
        if isinstance(texts, Corpus):
            if ids is not None:
                raise ValueError("ids for a Corpus, which has its own: leave them out")
            corpus = texts
        else:
            corpus = Corpus(texts, ids=ids)
        indexes: list[Index] = []
        if isinstance(embed, Embedder):
            kind = vectors_dtype or "float32"
            indexes.append(VectorIndex(embed, corpus, vectors_dtype=kind))
        elif isinstance(embed, SparseEmbedder) and vectors_dtype is None:
            indexes.append(TermIndex(embed, corpus))
        else:
            what = type(embed).__name__
            raise ValueError(
                f"a corpus for a {what}, vectors_dtype={vectors_dtype!r}: pass an Embedder, or a "
                "SparseEmbedder without vectors_dtype"
            )
        if words:
            indexes.append(WordIndex(corpus))
        return cls(corpus, indexes, **{"top_k": min(10, len(corpus)), **options})

    def save(self, folder: Any) -> Any:
        """Raises ValueError: a search is exported, and made anew from its models and texts."""
        raise ValueError(NOT_SAVED)

    def _arguments(self) -> dict[str, Any]:
        """Returns the arguments of the constructor that make this pipeline."""
        names = (
            *("corpus", "indexes", "index_weights", "rerank"),
            *("num_candidates", "first_stage_weight", "top_k"),
        )
        return {name: getattr(self, name) for name in names}

    def _search(self, query: tf.Tensor, k: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds `k` texts for each query, in the graph."""
        size = len(self.corpus)
        with tf.device("CPU:0"):  # the messages are strings
            in_range = tf.reduce_all((k >= 1) & (k <= size))
            tf.debugging.Assert(in_range, [f"k must be from 1 to {size}, the number of texts", k])
            tf.debugging.assert_equal(tf.size(query), tf.size(k), "query and k differ in number")
        return self._hits(query, tf.reduce_max(tf.pad(k, [[0, 1]])), k)

    def _hits(self, text: tf.Tensor, most: Any, counts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the best texts.

        Args:
            text: queries (batch,).
            most: the largest of `counts`.
            counts: hits of each query, int32 (batch,).
        """
        ids, texts = map(tf.convert_to_tensor, self._strings)
        scores = self.scores(text)
        if self.rerank is None:
            scores, places = tf.math.top_k(scores, most)  # (batch, hits)
        else:
            num_candidates = tf.minimum(tf.maximum(self.num_candidates, most), len(self.corpus))
            scores, candidates = tf.math.top_k(scores, num_candidates)
            with tf.device("CPU:0"):
                documents = tf.gather(texts, candidates)
            ranked = self.rerank.answer(text=text, documents=documents)["scores"]
            if self.first_stage_weight:
                ranked = _scaled(ranked) + self.first_stage_weight * _scaled(scores)
            scores, order = tf.math.top_k(ranked, most)
            places = tf.gather(candidates, order, batch_dims=1)
        wanted = tf.sequence_mask(counts, tf.shape(places)[1])
        with tf.device("CPU:0"):  # string ops run only on the CPU
            return {
                "ids": tf.where(wanted, tf.gather(ids, places), ""),
                "texts": tf.where(wanted, tf.gather(texts, places), ""),
                "scores": tf.where(wanted, scores, 0.0),
                "num_hits": counts,
            }


def _scaled(scores: tf.Tensor) -> tf.Tensor:
    """Scales each row of scores (batch, texts) to mean 0 and variance 1; equal ones become 0."""
    mean, variance = tf.nn.moments(scores, axes=[1], keepdims=True)
    return tf.math.divide_no_nan(scores - mean, tf.sqrt(variance))


def _check_indexes(indexes: Sequence[Index], corpus: Corpus) -> None:
    if not indexes:
        raise ValueError("no index: pass one, such as WordIndex(corpus)")
    for place, index in enumerate(indexes):
        if index.num_documents != len(corpus):
            raise ValueError(
                f"index {place} is of {index.num_documents} texts, the corpus has {len(corpus)}: "
                "index this corpus"
            )
