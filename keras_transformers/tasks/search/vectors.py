"""Indexes the vectors of a corpus, in float32, int8 or bits, in the graph."""

import abc
import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import keras
import numpy as np
import tensorflow as tf
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_transformers import files
from keras_transformers.tasks.embedding import searching
from keras_transformers.tasks.embedding.pipeline import Embedder
from keras_transformers.tasks.search.corpus import Corpus
from keras_transformers.tasks.search.index import Index
from keras_transformers.tasks.token_inputs import TextPipeline

__all__ = ["CorpusVectors", "VectorIndex", "fingerprint_of"]

VectorsDtype = Literal["float32", "int8", "binary"]

_STEPS = 127
_CHUNK = 1024  # vectors
_COMPARED_AGAIN = 128  # texts
_TOKENIZED = 1024  # texts at once, to count their tokens
_FINGERPRINT = "fingerprint"

_logger = logging.getLogger(__name__)


class CorpusVectors:
    """The vectors of a corpus and which model made them, for several indexes, or a later one.

    Args:
        vectors: float32 (texts, width).
        fingerprint: of the embedder; see `fingerprint_of`.

    Raises:
        ValueError: a number is not finite, or the array has another shape.
    """

    def __init__(self, vectors: np.ndarray, fingerprint: str) -> None:
        self.vectors = np.asarray(vectors, np.float32)
        if self.vectors.ndim != 2:
            raise ValueError(f"vectors of shape {self.vectors.shape}: expected (texts, width)")
        broken = np.flatnonzero(~np.isfinite(self.vectors).all(axis=1))
        if len(broken):
            raise ValueError(
                f"the vectors of {len(broken)} texts have numbers that are not finite, the first "
                f"is text {broken[0]}: load a good checkpoint, and embed the texts again"
            )
        self.fingerprint = fingerprint

    @classmethod
    def of(cls, embed: Embedder, corpus: Corpus, *, batch_size: int = 32) -> "CorpusVectors":
        """Embeds a corpus, with the prompt "document" if the embedder has it and "query".

        A warning counts the texts that are longer than the embedder reads.
        """
        prompt = _prompts(embed)[1]
        _count_long(embed, corpus, prompt)
        vectors = searching.vectors(embed, corpus.texts, prompt, batch_size=batch_size)
        return cls(vectors, fingerprint_of(embed))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a safetensors file, completely or not at all.

        Args:
            path: the file, which must not exist.

        Raises:
            FileExistsError: it exists.
        """
        path = Path(path)
        if path.exists():
            raise FileExistsError(f"{path} exists: choose another name, or remove it first")
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.replaced(path) as scratch:
            save_file({"vectors": self.vectors}, scratch, {_FINGERPRINT: self.fingerprint})
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "CorpusVectors":
        """Reads what `save` wrote.

        Raises:
            FileNotFoundError: it does not exist.
            ValueError: it is not such a file.
        """
        if not Path(path).is_file():
            raise FileNotFoundError(f"{path} does not exist: pass a file from CorpusVectors.save")
        try:
            with safe_open(path, "np") as file:
                return cls(file.get_tensor("vectors"), file.metadata()[_FINGERPRINT])
        except (SafetensorError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a file from CorpusVectors.save: {error}") from error


def fingerprint_of(embed: TextPipeline) -> str:
    """Returns what tells an embedder from others: a SHA-256 of its weights and its configuration.

    It covers the prompts and the tokenizer's vocabulary too. Vectors of embedders with different
    fingerprints cannot be compared.

    Args:
        embed: an `Embedder` or a `SparseEmbedder`.
    """
    digest = hashlib.sha256(repr(sorted(embed.config().items())).encode())
    for token in getattr(embed.tokenizer, "vocabulary", ()):
        digest.update(token.encode("utf-8", "surrogateescape") + b"\n")
    for weight in embed.model.get_weights():
        digest.update(np.ascontiguousarray(weight).data)
    return digest.hexdigest()


class VectorIndex(Index):
    """Scores texts by the cosine of their vectors and a query's, compared one by one: exact.

    Args:
        embed: embeds queries; with the prompt "query", and texts with "document", if it has both.
        corpus: the texts.
        vectors_dtype: "float32"; "int8", a quarter of the space, with a step for each vector; or
            "binary", a 32nd: one bit per number, whether it is positive. The query's signs find
            texts, and its numbers order the best 128, as in sentence-transformers' rescoring.
        vectors: of the corpus, from this embedder; computed by default.
        truncate_dim: how many leading dimensions to keep, for embedders trained to allow it
            (Matryoshka, Kusupati et al. 2022); all by default.
        batch_size: texts that are embedded at once.

    Raises:
        ValueError: `vectors` are another model's or another corpus's, an option is out of range, or
            the embedder gives a vector that is not finite.
    """

    def __init__(
        self,
        embed: Embedder,
        corpus: Corpus,
        *,
        vectors_dtype: VectorsDtype = "float32",
        vectors: CorpusVectors | None = None,
        truncate_dim: int | None = None,
        batch_size: int = 32,
    ) -> None:
        if vectors_dtype not in get_args(VectorsDtype):
            choices = ", ".join(map(repr, get_args(VectorsDtype)))
            raise ValueError(f"vectors_dtype={vectors_dtype!r}: use one of {choices}")
        if vectors is None:
            vectors = CorpusVectors.of(embed, corpus, batch_size=batch_size)
            self.fingerprint = vectors.fingerprint
        else:
            self.fingerprint = fingerprint_of(embed)
        if len(vectors.vectors) != len(corpus):
            raise ValueError(
                f"{len(vectors.vectors)} vectors for {len(corpus)} texts: embed this corpus"
            )
        if vectors.fingerprint != self.fingerprint:
            raise ValueError(
                f"the vectors are of another embedder ({vectors.fingerprint[:12]}...) than the "
                f"one for queries ({self.fingerprint[:12]}...), and cannot be compared: embed the "
                "corpus with this one"
            )
        width = vectors.vectors.shape[1]
        if truncate_dim is not None and not 0 < truncate_dim <= width:
            raise ValueError(f"truncate_dim={truncate_dim}: the vectors have {width} dimensions")
        self.num_documents = len(corpus)
        self.vectors_dtype, self.truncate_dim = vectors_dtype, truncate_dim
        self._embed = embed
        unit = searching.unit(vectors.vectors[:, :truncate_dim])
        self._vectors = _KINDS[vectors_dtype](unit)
        self.models: Sequence[keras.Model] = (embed.model,)
        self.tokenizers = tuple(embed.tokenizers.values())
        self.stored = tuple(self._vectors.variables)

    def scores(self, text: tf.Tensor) -> tf.Tensor:
        """Scores texts for queries, strings (batch,), in the graph: float32 (batch, texts)."""
        prompt, _ = _prompts(self._embed)
        text_of_prompt = None if prompt is None else self._embed.prompts[prompt]
        segments = self._embed.tokenize(text, prompt=text_of_prompt)
        vectors = self._embed.answer_segments(segments)["embedding"][:, : self.truncate_dim]
        return self._vectors.cosines(tf.math.l2_normalize(vectors, axis=1))

    def metadata(self) -> Mapping[str, Any]:
        """Returns the kind, the type and width of the vectors, and whose they are."""
        return {
            "kind": "vectors",
            "vectors_dtype": self.vectors_dtype,
            "truncate_dim": self.truncate_dim,
            "fingerprint": self.fingerprint,
            **self._embed.metadata(),
        }


class _Vectors(abc.ABC):
    """Vectors of length 1, as an index stores them.

    Args:
        unit: float32 (texts, width).

    Attributes:
        variables: those to save.
    """

    variables: Sequence[tf.Variable]

    @abc.abstractmethod
    def __init__(self, unit: np.ndarray) -> None: ...

    @abc.abstractmethod
    def cosines(self, queries: tf.Tensor) -> tf.Tensor:
        """Compares unit vectors (batch, width) with all: float32 (batch, texts)."""


class _Floats(_Vectors):
    def __init__(self, unit: np.ndarray) -> None:
        self.variables = (tf.Variable(unit, trainable=False),)

    def cosines(self, queries: tf.Tensor) -> tf.Tensor:
        return tf.matmul(queries, self.variables[0], transpose_b=True)


class _Bytes(_Vectors):
    def __init__(self, unit: np.ndarray) -> None:
        largest = np.maximum(np.abs(unit).max(axis=1), 1e-12)
        rounded = np.rint(unit / largest[:, None] * _STEPS).astype(np.int8)
        self.variables = tuple(tf.Variable(x, trainable=False) for x in (_padded(rounded), largest))

    def cosines(self, queries: tf.Tensor) -> tf.Tensor:
        rounded, largest = map(tf.convert_to_tensor, self.variables)
        cosines = _in_chunks(queries, rounded)[:, : largest.shape[0]]
        return cosines * (largest / _STEPS)


class _Bits(_Vectors):
    """Signs. The texts with most signs in common are compared again with the query's numbers.

    The others rank below those, by the signs alone.
    """

    def __init__(self, unit: np.ndarray) -> None:
        self._width = unit.shape[1]
        signs = np.pad(unit > 0, ((0, 0), (0, -self._width % 64)))
        words = np.packbits(signs, axis=1).view(np.int64)  # (texts, words of 64 signs)
        self.variables = (tf.Variable(words, trainable=False),)

    def cosines(self, queries: tf.Tensor) -> tf.Tensor:
        words = tf.convert_to_tensor(self.variables[0])

        def in_common(query: tf.Tensor) -> tf.Tensor:
            different = tf.raw_ops.PopulationCount(x=tf.bitwise.bitwise_xor(words, query))
            return 1 - tf.reduce_sum(tf.cast(different, tf.float32), axis=1) * (2 / self._width)

        shared = tf.map_fn(
            in_common, self._words(queries), parallel_iterations=1, fn_output_signature=tf.float32
        )
        # Of no queries, `map_fn` loses the number of texts.
        shared = tf.reshape(shared, tf.stack([tf.shape(queries)[0], words.shape[0]]))
        least, places = tf.math.top_k(shared, min(_COMPARED_AGAIN, words.shape[0]))
        numbers = self._signs(tf.gather(words, places))  # (batch, compared, width)
        again = tf.linalg.matvec(numbers, queries) / np.float32(np.sqrt(self._width))
        below = tf.reduce_min(again, axis=1, keepdims=True) - least[:, -1:]
        rows = tf.repeat(tf.range(tf.shape(places)[0])[:, None], tf.shape(places)[1], axis=1)
        return tf.tensor_scatter_nd_update(shared + below, tf.stack([rows, places], axis=-1), again)

    def _words(self, queries: tf.Tensor) -> tf.Tensor:
        """Returns the signs of vectors (batch, width) as int64 (batch, words)."""
        signs = tf.pad(tf.cast(queries > 0, tf.int32), [[0, 0], [0, -self._width % 64]])
        places = tf.constant([1 << place for place in range(7, -1, -1)])  # in a byte
        of_bytes = tf.reduce_sum(tf.reshape(signs, (-1, signs.shape[1] // 8, 8)) * places, axis=2)
        grouped = tf.reshape(tf.cast(of_bytes, tf.uint8), (-1, signs.shape[1] // 64, 8))
        return tf.bitcast(grouped, tf.int64)

    def _signs(self, words: tf.Tensor) -> tf.Tensor:
        """Returns 1 and -1 for words (..., words): float32 (..., width)."""
        signs = tf.gather(tf.constant(_SIGNS), tf.cast(tf.bitcast(words, tf.uint8), tf.int32))
        flat = tf.reshape(signs, tf.concat([tf.shape(words)[:-1], [64 * words.shape[-1]]], axis=0))
        return flat[..., : self._width]


_KINDS: Mapping[str, type[_Vectors]] = {"float32": _Floats, "int8": _Bytes, "binary": _Bits}
_SIGNS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) * np.float32(2) - 1


def _prompts(embed: Embedder) -> tuple[str | None, str | None]:
    """Returns the names of the prompts of queries and texts; None for the default."""
    both = {"query", "document"} <= set(embed.prompts)
    return ("query", "document") if both else (None, None)


def _count_long(embed: Embedder, corpus: Corpus, prompt: str | None) -> None:
    """Logs how many texts of a corpus the embedder cuts."""
    if embed.reads_windows:
        return
    text = None if prompt is None else embed.prompts[prompt]
    num_long = 0
    for start in range(0, len(corpus), _TOKENIZED):
        texts = tf.constant(corpus.texts[start : start + _TOKENIZED])
        lengths = embed.lengths(embed.tokenize(texts, prompt=text))
        num_long += int(tf.math.count_nonzero(lengths > embed.max_sequence_length))
    if num_long:
        _logger.warning(
            "%d of %d texts have more than the %d tokens that are read, and no query finds the "
            "rest: split them, or load the embedder with long_texts='windows'",
            *(num_long, len(corpus), embed.max_sequence_length),
        )


def _padded(rows: np.ndarray) -> np.ndarray:
    """Returns rows with zeros after them, to a whole number of chunks."""
    size = min(_CHUNK, len(rows))
    return np.pad(rows, ((0, -len(rows) % size), (0, 0)))


def _in_chunks(queries: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Multiplies queries by rows in int8, a chunk at a time, which fits into a core's cache.

    Args:
        queries: float32 (batch, width).
        rows: int8 (texts, width), from `_padded`.

    Returns:
        Float32 (batch, texts), with those of the padding.
    """
    size = min(_CHUNK, rows.shape[0])
    count = rows.shape[0] // size

    def step(index: tf.Tensor, products: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        chunk = rows[index * size : (index + 1) * size]  # without copying it
        numbers = tf.cast(tf.ensure_shape(chunk, (size, rows.shape[1])), tf.float32)
        return index + 1, products.write(index, tf.matmul(numbers, queries, transpose_b=True))

    products = tf.TensorArray(tf.float32, count, element_shape=(size, None))
    _, products = tf.while_loop(
        lambda index, _: index < count, step, (0, products), parallel_iterations=1
    )
    return tf.transpose(products.concat())
