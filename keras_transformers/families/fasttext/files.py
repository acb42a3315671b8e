"""Opens fastText's classifiers: `.bin`, and `.ftz` from `quantize`."""

import functools
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.containers.mapped import TRUNCATED, MappedFile
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.convert.tensors import NamedTensor, assign
from keras_transformers.families.fasttext.model import fasttext, hierarchical_classifier

__all__: list[str] = []

_MAGIC = struct.pack("<i", 793712314)
_VERSIONS = (11, 12)
_LABEL = "__label__"
_LOSSES = {
    1: "hs",
    2: "ns (negative sampling)",
    3: "softmax",
    4: "ova (one against all)",
}
_KINDS = {1: "CBOW", 2: "skipgram"}
_SUPERVISED = 3
_LONGEST_NGRAM = 100  # words or characters
_LONGEST = 100_000  # maximum ids per text; fastText has no limit
_CENTROIDS = 256  # centroids per part of a quantized vector: the index is one byte
_WIDEST_PART = 64  # numbers for one code; fastText's default is 2


@dataclass(frozen=True)
class _Settings:
    dim: int
    word_ngrams: int
    loss: int
    model: int
    num_buckets: int
    min_characters: int
    max_characters: int


@dataclass(frozen=True)
class _Dictionary:
    words: list[str]
    labels: list[str]
    label_counts: list[int]
    kept_buckets: list[int] | None


def open_fasttext(folder: Folder) -> FoundWeights:
    """Opens a classifier that fastText trained: softmax or hierarchical softmax, quantized or not.

    The file has the words, the labels, the n-grams and the shape of the model. Quantized vectors
    are dequantized, as fastText does to compute with them.

    Raises:
        ValueError: the file is damaged; it has word vectors but no classifier; or its loss gives
            each label an independent probability ("ova", "ns").
    """
    file = folder.path
    reader = MappedFile(file)
    settings = _settings(reader)
    dictionary = _dictionary(reader)
    num_words = len(dictionary.words)
    has_ngrams = settings.word_ngrams > 1 or settings.max_characters > 0
    num_rows, rows = _matrix(reader, settings.dim)
    buckets = dictionary.kept_buckets
    num_ngrams = (settings.num_buckets if buckets is None else len(buckets)) if has_ngrams else 0
    if num_rows < num_words + num_ngrams:
        raise ValueError(
            f"{file}: {num_rows} vectors for {num_words} words and {num_ngrams} n-grams: it is "
            "damaged: download it again"
        )
    num_outputs, outputs = _matrix(reader, settings.dim)
    if num_outputs != len(dictionary.labels):
        raise ValueError(
            f"{file}: {num_outputs} outputs for {len(dictionary.labels)} labels: it is damaged: "
            "download it again"
        )
    is_tree = _LOSSES[settings.loss] == "hs"

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        tensors = {"token_embedding/embeddings": rows()[: num_words + num_ngrams]}
        kernel = outputs().T
        tensors["logits/kernel"] = kernel[:, :-1] if is_tree else kernel  # one node fewer
        if not is_tree:
            tensors["logits/bias"] = np.zeros(num_outputs, "float32")
        ours = [NamedTensor(variable.path, (variable,)) for variable in model.weights]
        return assign(ours, Arrays.of(file, tensors), ignore=ignore)

    def build(**changes: Any) -> keras.Model:
        return fasttext(
            vocabulary_size=num_words + num_ngrams, embedding_dim=settings.dim, **changes
        )

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:
        # Imported here because it needs TensorFlow, which the weights do not.
        from keras_transformers.tokenizers.ngrams import NgramTokenizer

        try:
            tokenizer = NgramTokenizer(
                dictionary.words,
                num_buckets=settings.num_buckets,
                word_ngrams=settings.word_ngrams,
                min_characters=settings.min_characters,
                max_characters=settings.max_characters,
                kept_buckets=buckets,
            )
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        return (tokenizer,)

    return FoundWeights(
        source=file,
        base="classification",
        trained=("classification",),
        build=build,
        with_head=functools.partial(hierarchical_classifier, class_counts=dictionary.label_counts)
        if is_tree
        else None,
        fill=fill,
        tokenizers=tokenizers,
        parts=("logits/*",),
        options={"labels": dictionary.labels},
        max_sequence_length=_LONGEST,
    )


def _settings(reader: MappedFile) -> _Settings:
    """Reads fastText's arguments; rejects anything but a classifier over all labels."""
    file = reader.file
    _, version = reader.numbers("ii")
    if version not in _VERSIONS:
        raise ValueError(f"{file}: version {version} of fastText's format; expected 11 or 12")
    dim, *_, ngrams, loss, model, buckets, shortest, longest, _ = reader.numbers("12i")
    reader.numbers("d")
    if model in _KINDS:
        raise ValueError(
            f"{file} has fastText's word vectors ({_KINDS[model]}) but no classifier, so there is "
            "no pipeline for it: read the vectors with the package fasttext, or pass a file from "
            "`fasttext supervised`"
        )
    if model != _SUPERVISED or loss not in _LOSSES or dim < 1:
        raise ValueError(f"{file}: model {model}, loss {loss} and {dim} dimensions; {TRUNCATED}")
    if _LOSSES[loss] not in ("softmax", "hs"):
        raise ValueError(
            f"{file} was trained with the loss {_LOSSES[loss]}, which gives each label an "
            "independent probability, but classifiers choose one label: train it with softmax "
            "or hs"
        )
    if version == 11 or longest == 0:  # classifiers of version 11 had no character n-grams
        shortest = longest = 0
    if not (1 <= ngrams <= _LONGEST_NGRAM and 0 <= shortest <= longest <= _LONGEST_NGRAM):
        raise ValueError(
            f"{file}: n-grams of 1 to {ngrams} words, and of {shortest} to {longest} characters; "
            f"expected at most {_LONGEST_NGRAM}"
        )
    if buckets < (ngrams > 1 or longest > 0):
        raise ValueError(f"{file}: n-grams in {buckets} buckets; {TRUNCATED}")
    return _Settings(dim, ngrams, loss, model, buckets, shortest, longest)


def _dictionary(reader: MappedFile) -> _Dictionary:
    file = reader.file
    size = reader.count("i", "words and labels", 10)
    num_words, num_labels = reader.numbers("ii")
    _, num_kept = reader.numbers("qq")
    entries = [(reader.word(), *reader.numbers("qb")) for _ in range(size)]
    kinds = [kind for _, _, kind in entries]
    fits = num_words >= 0 <= num_labels and num_words + num_labels == size
    if not fits or kinds != [0] * num_words + [1] * num_labels:
        raise ValueError(f"{file}: its words and labels are not in order; {TRUNCATED}")
    labels = [word.removeprefix(_LABEL) for word, _, _ in entries[num_words:]]
    counts = [count for _, count, _ in entries[num_words:]]
    if len(labels) < 2 or len(set(labels)) < len(labels) or min(counts) < 0:
        raise ValueError(
            f"{file}: {len(labels)} labels, {', '.join(labels)[:100]}; expected at least 2 "
            "different ones: train it with more"
        )
    buckets = None
    if num_kept >= 0:  # pairs of a bucket and its row, if the dictionary was pruned
        pairs = reader.array("<i4", num_kept, 2)
        buckets = pairs[np.argsort(pairs[:, 1]), 0].tolist()
        if not np.array_equal(np.sort(pairs[:, 1]), np.arange(num_kept)):
            raise ValueError(
                f"{file}: its rows of n-grams are not 0 to {num_kept - 1}; {TRUNCATED}"
            )
    return _Dictionary([word for word, _, _ in entries[:num_words]], labels, counts, buckets)


def _matrix(reader: MappedFile, dim: int) -> tuple[int, Any]:
    """Returns a matrix's number of rows, and a function that returns it, (rows, dim)."""
    (is_quantized,) = reader.numbers("?")
    if is_quantized:
        return _quantized(reader, dim)
    num_rows, width = reader.numbers("qq")
    if width != dim:
        raise ValueError(f"{reader.file}: vectors of {width} numbers, expected {dim}; {TRUNCATED}")
    values = reader.array("<f4", num_rows, width)
    return num_rows, lambda: values


def _quantized(reader: MappedFile, dim: int) -> tuple[int, Any]:
    """Reads a matrix of product quantization (Jegou et al. 2011), with or without its norms."""
    (has_norms,) = reader.numbers("?")
    num_rows, width = reader.numbers("qq")
    size = reader.count("i", "codes", 1)
    codes = reader.array("u1", size)
    centroids = _centroids(reader)  # one array for each part of a vector
    norms = None
    if has_norms:
        norm_codes = reader.array("u1", num_rows)
        norms = (norm_codes, _centroids(reader))
    widths = [part.shape[1] for part in centroids]
    fits = width == dim == sum(widths) and size == num_rows * len(centroids)
    if not fits or (norms and [part.shape[1] for part in norms[1]] != [1]):
        raise ValueError(
            f"{reader.file}: {size} codes of parts of {widths} numbers, for {num_rows} vectors of "
            f"{dim}; {TRUNCATED}"
        )

    def read() -> np.ndarray:
        parts = codes.reshape(num_rows, len(centroids))
        vectors = [part[parts[:, number]] for number, part in enumerate(centroids)]
        matrix = np.concatenate(vectors, axis=1)
        return matrix if norms is None else matrix * norms[1][0][norms[0]]

    return num_rows, read


def _centroids(reader: MappedFile) -> list[np.ndarray]:
    """Reads the centroids of each part of a vector, (256, width of the part)."""
    dim, num_parts, width, last_width = reader.numbers("4i")
    sizes = num_parts > 0 and 0 < last_width <= width <= _WIDEST_PART
    fits = num_parts * 4 * _CENTROIDS <= reader.size - reader.place
    if not (sizes and fits) or dim != width * (num_parts - 1) + last_width:
        raise ValueError(
            f"{reader.file}: {num_parts} parts of {width} numbers, the last of {last_width}, in "
            f"vectors of {dim}; {TRUNCATED}"
        )
    widths = [width] * (num_parts - 1) + [last_width]
    return [reader.array("<f4", _CENTROIDS, size) for size in widths]


def _recognises(folder: Folder) -> bool:
    path = folder.path
    if not path.is_file():
        return False
    with path.open("rb") as opened:
        return opened.read(len(_MAGIC)) == _MAGIC


FORMAT = Format("a .bin or .ftz file of fastText's classifiers", _recognises, open_fasttext)
