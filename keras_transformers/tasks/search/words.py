"""Indexes the words of a corpus for BM25, in the graph."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.tasks.search.corpus import Corpus
from keras_transformers.tasks.search.index import Index
from keras_transformers.tasks.search.postings import Postings

__all__ = ["WordIndex"]

_NO_WORD = r"[^\p{L}\p{M}\p{N}_]+"
_BATCH = 4096  # texts per call of the graph that splits them


class WordIndex(Index):
    """Scores texts by the words that they share with a query: BM25.

    Robertson & Zaragoza 2009, "The Probabilistic Relevance Framework", with Lucene's idf, as the
    package bm25s computes it. Words are lower-cased runs of letters, digits and underscores, two
    characters or more; no stop words are removed, so it serves every language that separates words.
    It needs no model.

    Args:
        corpus: the texts.
        k1: how much further occurrences of a word count; with 0, only the first does.
        b: how strongly the length of a text lowers its scores, 0 to 1.

    Raises:
        ValueError: no text has a word, `k1` is negative, or `b` is not within 0 to 1.

    Example:
        >>> index = WordIndex(Corpus(["Dogs run.", "It rained."]))
        >>> index.scores(tf.constant(["Who runs? Dogs!"])).numpy()[0].argmax()
        np.int64(0)
    """

    def __init__(self, corpus: Corpus, *, k1: float = 1.5, b: float = 0.75) -> None:
        if not k1 >= 0 or not 0 <= b <= 1:
            raise ValueError(f"k1={k1}, b={b}: expected k1 from 0 and b from 0 to 1")
        self.k1, self.b = k1, b
        self.num_documents = len(corpus)
        vocabulary, terms, documents = _counted(corpus)
        if not vocabulary:
            raise ValueError("no text of the corpus has a word of two characters or more")
        # (document, term) -> how often
        pairs, counts = np.unique(documents * len(vocabulary) + terms, return_counts=True)
        documents, terms = np.divmod(pairs, len(vocabulary))
        lengths = np.bincount(documents, counts, minlength=len(corpus))
        num_with = np.bincount(terms, minlength=len(vocabulary))
        idf = np.log1p((len(corpus) - num_with + 0.5) / (num_with + 0.5))
        norms = k1 * (1 - b + b * lengths / lengths.mean())
        weights = idf[terms] * counts / (norms[documents] + counts)
        self._postings = Postings(
            terms,
            documents,
            weights,
            num_terms=len(vocabulary),
            num_documents=len(corpus),
        )
        numbers = np.arange(len(vocabulary), dtype=np.int64)
        with tf.device("CPU:0"):
            initial = tf.lookup.KeyValueTensorInitializer(tf.constant(vocabulary), numbers)
            self._numbers = tf.lookup.StaticHashTable(initial, -1)
        self.num_words = len(vocabulary)
        self.stored = (*self._postings.variables, self._numbers)

    def scores(self, text: tf.Tensor) -> tf.Tensor:
        """Scores texts for queries, strings (batch,), in the graph: float32 (batch, texts)."""
        with tf.device("CPU:0"):  # string ops run only on the CPU
            words = split_words(text)
            numbers = words.with_values(self._numbers.lookup(words.values))
            terms = tf.ragged.boolean_mask(numbers, numbers >= 0)
        return self._postings.scores(terms)

    def metadata(self) -> Mapping[str, Any]:
        """Returns the kind and its options."""
        return {"kind": "words", "k1": self.k1, "b": self.b, "num_words": self.num_words}


def split_words(text: tf.Tensor) -> tf.RaggedTensor:
    """Returns the words of texts, strings (batch,), lower-cased: strings (batch, None)."""
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")  # bytes that are not become U+FFFD
    lower = tf.strings.lower(text, encoding="utf-8")
    words = tf.strings.split(tf.strings.regex_replace(lower, _NO_WORD, " "))
    return tf.ragged.boolean_mask(
        words, words.with_values(tf.strings.length(words.values, unit="UTF8_CHAR") > 1)
    )


def _counted(corpus: Corpus) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """Returns the distinct words of a corpus; and of each occurrence, the word and the document."""
    numbers: dict[bytes, int] = {}
    terms, documents = [], []
    for start in range(0, len(corpus), _BATCH):
        words = split_words(tf.constant(corpus.texts[start : start + _BATCH]))
        values = words.values.numpy().tolist()
        terms.append(
            np.array([numbers.setdefault(word, len(numbers)) for word in values], np.int64)
        )
        documents.append(words.value_rowids().numpy() + start)
    return list(numbers), np.concatenate(terms), np.concatenate(documents)
