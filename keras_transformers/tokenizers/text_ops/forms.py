"""Chooses the ops that tokenizers are made of: tensorflow-text's kernels, or TensorFlow's own.

Both forms give the same tokens and spans. tensorflow-text's are faster; the core form runs in any
TensorFlow. A tokenizer holds `Forms` and takes the one in use whenever it is called or traced.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args

import tensorflow as tf

from keras_transformers.dependencies.text_library import tensorflow_text
from keras_transformers.tokenizers.text_ops.core.sentence_pieces import CoreSentencePieces
from keras_transformers.tokenizers.text_ops.core.word_pieces import CoreWordPieces
from keras_transformers.tokenizers.text_ops.library_pieces import (
    LibrarySentencePieces,
    LibraryWordPieces,
)

__all__ = ["Ops", "ops_in_use", "using_ops"]

Ops = Literal["tensorflow-text", "core"]
Spans = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]  # ids, starts, ends
Form = TypeVar("Form")

_OPS: ContextVar[Ops | None] = ContextVar("ops", default=None)


class WordPieces(Protocol):
    """Splits texts as BERT does, and words longest piece first."""

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Converts strings (batch,) to ids, int32 (batch, None)."""

    def tokenize_with_offsets(self, text: tf.Tensor) -> Spans:
        """Also returns each token's start and end in bytes of its text, int32 (batch, None)."""

    def encode(self, words: tf.Tensor) -> Spans:
        """Converts words (words,) to ids, and starts and ends in bytes of the word, int64."""


class SentencePieces(Protocol):
    """Reads and writes texts as a SentencePiece model does."""

    @property
    def size(self) -> int:
        """The number of pieces."""

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Converts strings (batch,) to ids, int32 (batch, None)."""

    def tokenize_with_offsets(self, text: tf.Tensor) -> Spans:
        """Also returns each token's start and end in bytes of its text, int32 (batch, None)."""

    def detokenize(self, token_ids: tf.RaggedTensor | tf.Tensor) -> tf.Tensor:
        """Converts ids (batch, None) to strings (batch,); an OpError if an id is out of range."""

    def id_to_string(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Returns the pieces of ids of any shape."""


class Forms(tf.Module, Generic[Form]):
    """The two forms of the same ops, each made when it is first used.

    Args:
        library: makes the form of tensorflow-text, from that package.
        core: makes the other.
    """

    def __init__(self, library: Callable[[Any], Form], core: Callable[[], Form]) -> None:
        super().__init__(name="forms")
        self._makers = (library, core)
        self._library: Form | None = None
        self._core: Form | None = None

    def __call__(self) -> Form:
        """Returns the form in use.

        Raises:
            ValueError: what they read has no such form; the message names the op or the part.
        """
        make_library, make_core = self._makers
        with tf.init_scope(), tf.device("CPU:0"):  # where strings live
            if ops_in_use() == "core":
                self._core = make_core() if self._core is None else self._core
                return self._core
            self._library = (
                make_library(tensorflow_text()) if self._library is None else self._library
            )
            return self._library


def ops_in_use() -> Ops:
    """Returns the ops of the innermost `using_ops`; by default tensorflow-text's, if they load."""
    return _OPS.get() or ("core" if tensorflow_text() is None else "tensorflow-text")


@contextlib.contextmanager
def using_ops(ops: Ops | None) -> Iterator[None]:
    """Makes tokenizers use these ops inside the block; None leaves the choice as it is.

    Raises:
        ValueError: there are no such ops, or tensorflow-text does not load.
    """
    if ops is not None and ops not in get_args(Ops):
        raise ValueError(f"ops={ops!r}: use one of {', '.join(map(repr, get_args(Ops)))}")
    if ops == "tensorflow-text" and tensorflow_text() is None:
        raise ValueError(
            f"ops={ops!r}, but tensorflow-text is missing or does not load into TensorFlow "
            f"{tf.__version__}: install the one of this TensorFlow, or use ops='core'"
        )
    token = _OPS.set(_OPS.get() if ops is None else ops)
    try:
        yield
    finally:
        _OPS.reset(token)


def word_pieces(
    tokens: Sequence[str], *, unknown_token: str, lowercase: bool | None
) -> Forms[WordPieces]:
    """Returns the ops of a WordPiece vocabulary.

    Args:
        tokens: the vocabulary.
        unknown_token: the token of words that cannot be split.
        lowercase: whether BERT lower-cases texts and strips accents; None for words alone.
    """
    return Forms(
        lambda library: LibraryWordPieces(
            library, tokens, unknown_token=unknown_token, lowercase=lowercase
        ),
        lambda: CoreWordPieces(tokens, unknown_token=unknown_token, lowercase=lowercase),
    )


def sentence_pieces(model: bytes) -> Forms[SentencePieces]:
    """Returns the ops of a SentencePiece model's contents."""
    return Forms(
        lambda library: LibrarySentencePieces(library, model), lambda: CoreSentencePieces(model)
    )
