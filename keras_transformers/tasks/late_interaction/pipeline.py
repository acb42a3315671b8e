"""Ranks documents by the vectors of their tokens: a query and documents in, scores out."""

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.dependencies import graph_errors
from keras_transformers.files.surrogates import check_text
from keras_transformers.layers.shared import shared_calls
from keras_transformers.models.anatomy import anatomy
from keras_transformers.models.unattended import (
    UNATTENDED,
    with_unattended,
    without_unattended,
)
from keras_transformers.ranges import Default
from keras_transformers.tasks.late_interaction.head import VECTORS, token_embedder
from keras_transformers.tasks.pipeline import Signature
from keras_transformers.tasks.text_lists import RankingPipeline, ranking
from keras_transformers.tasks.texts import string_column
from keras_transformers.tasks.token_inputs import in_chunks, joined, one_row, token_names, widened
from keras_transformers.tasks.tracing import traced
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__ = ["LateInteraction"]

_logger = logging.getLogger(__name__)

Expansion = Literal["attended", "unattended"]
_EXPANSIONS = ("attended", "unattended")
_LOWEST = tf.float32.min


class _Side(NamedTuple):
    """How texts of one side, queries or documents, become tokens.

    Attributes:
        tokens: what goes before the tokens of a text.
        text: what goes before the text.
        length: maximum tokens, with the special ones.
    """

    tokens: list[int]
    text: str
    length: int


class LateInteraction(RankingPipeline):
    """Orders documents by how well the vectors of their tokens match those of a query's.

    Each token of the query finds the most similar token of the document, and the score is the sum
    of these similarities (ColBERT: Khattab & Zaharia 2020, arXiv:2004.12832; sentence-transformers'
    MultiVectorEncoder). It is nearly as accurate as a `Reranker`, and the vectors of documents can
    be computed before there is a query, as with an `Embedder`. "" is not a document: it pads rows
    with fewer documents than others.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,), documents string (batch, documents)) -> scores float32,
      order int32 (batch, documents), num_documents int32 (batch,), which counts up to the last
      document that is not "". `order` has the indices of the documents, the best first, padded
      with -1; the score of "" is 0.
    - query(text string (batch,)) -> vectors float32 (batch, tokens, width), num_vectors int32
      (batch,): the vectors of each query's tokens, then zeros.
    - document(text string (batch,)) -> the same for documents.

    Args:
        model: a model from `heads.token_embedder`; or an encoder from token_ids, padding_mask and
            possibly segment_ids to sequence_output (batch, length, hidden), to which that head is
            added.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`.
        width: the width of the vectors of an encoder's new projection, 128 by default;
            `heads.token_embedder` describes this and the next two arguments.
        projections: layers for an encoder's vectors, instead of a new projection.
        normalize: whether to scale an encoder's vectors to length 1; True by default.
        query_prefix: what goes before each query, such as "[Q] ". If it starts with a token of the
            vocabulary, it becomes that token.
        document_prefix: the same for documents.
        prefix_as_text: whether the tokenizer reads the prefixes as it reads a text, and may split
            such a token.
        query_length: maximum tokens in a query, with its prefix and the special tokens; at most
            the model's number of positions.
        document_length: the same for documents.
        query_expansion: fills queries up with mask tokens, whose vectors count as well: "attended"
            tokens are read by the others, "unattended" ones only read (ColBERT's); None for none.
        expansion_length: the number of tokens to fill up to; `query_length` by default.
        expansion_token: the token to fill up with; the tokenizer's mask token by default.
        skipped_tokens: the tokens of documents that do not count, such as punctuation marks. What
            is not a token of the vocabulary is ignored.

    Raises:
        ValueError: model, tokenizer, lengths and tokens do not match; or `width`, `projections` or
            `normalize` is given for a model that already has token vectors.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> rank = LateInteraction(encoder, tokenizer, width=32, query_expansion="attended")
        >>> sorted(rank("good", ["films", "!", "good film"]).order)
        [0, 1, 2]
        >>> rank.query_vectors("good").shape, rank.document_vectors("good film").shape
        ((32, 32), (4, 32))
    """

    task = "late_interaction"
    _LIST = "documents"
    _EXAMPLES = (
        ("Where do dogs run?", ["A dog runs on the beach.", "The soup was cold.", "Dogs sleep."]),
        ("Who sings?", ["She sings.", "Rain, and more of it, all day long."]),
    )

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        *,
        width: int | None = None,
        projections: Sequence[keras.layers.Dense] | None = None,
        normalize: bool | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        prefix_as_text: bool = False,
        query_length: int = Default(32),
        document_length: int = Default(180),
        query_expansion: Expansion | None = None,
        expansion_length: int | None = None,
        expansion_token: str | None = None,
        skipped_tokens: Sequence[str] = (),
    ) -> None:
        if query_expansion not in (None, *_EXPANSIONS):
            raise ValueError(
                f"query_expansion={query_expansion!r}: use {' or '.join(map(repr, _EXPANSIONS))}, "
                "or None"
            )
        head = {"width": width, "projections": projections, "normalize": normalize}
        model = _with_head(model, {n: value for n, value in head.items() if value is not None})
        if query_expansion != "unattended":
            model = without_unattended(model)
        elif UNATTENDED not in model.input:
            model = with_unattended(model)
        ids = {token: number for number, token in enumerate(tokenizer.vocabulary)}
        query, document = (
            _side(model, tokenizer, {} if prefix_as_text else ids, *side)
            for side in (
                ("query", query_prefix, query_length),
                ("document", document_prefix, document_length),
            )
        )
        super().__init__(
            model,
            tokenizer,
            outputs=(VECTORS,),
            extra_inputs=[UNATTENDED] if UNATTENDED in model.input else [],
            max_sequence_length=max(query.length, document.length),
        )
        self._query, self._document = query, document
        self.query_prefix, self.document_prefix = query_prefix, document_prefix
        self.prefix_as_text = prefix_as_text
        self.query_length, self.document_length = query.length, document.length
        self.query_expansion = query_expansion
        self.expansion_length = expansion_length
        self.expansion_token = expansion_token
        self._expansion = 0
        if query_expansion is not None:
            self._expansion = _expansion_length(expansion_length, query.length)
            self._expansion_id = _expansion_id(tokenizer, ids, expansion_token)
        elif expansion_length is not None or expansion_token is not None:
            raise ValueError(
                f"expansion_length={expansion_length}, expansion_token={expansion_token!r}: leave "
                "them out, or choose a query_expansion"
            )
        self.skipped_tokens = _checked_tokens(skipped_tokens)
        self._skipped = [ids[token] for token in self.skipped_tokens if token in ids]

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores and orders documents, in the graph."""
        text, documents = texts["text"], texts["documents"]
        queries, query_mask = self._vectors(*self.encode_queries(text))
        queries = tf.where(query_mask[..., None], queries, 0.0)  # (batch, query tokens, width)
        rows, scored, places = self._documents(text, documents)

        def score(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            scored, query = rows.pop("scored"), rows.pop("query")
            vectors = self.decode(rows)[VECTORS]  # (pairs, tokens, width)
            similarities = tf.matmul(tf.gather(queries, query), vectors, transpose_b=True)
            similarities = tf.where(scored[:, None], similarities, _LOWEST)
            best = tf.reduce_max(similarities, axis=2)  # (pairs, query tokens)
            has_tokens = tf.reduce_any(scored, axis=1, keepdims=True)
            return {"score": tf.reduce_sum(tf.where(has_tokens, best, 0.0), axis=1)}

        of_pairs = in_chunks(
            score,
            {**rows, "scored": scored, "query": places[:, 0]},
            {"score": tf.TensorSpec([None], tf.float32)},
        )["score"]
        scores = tf.scatter_nd(places, of_pairs, tf.shape(documents, tf.int64))
        return ranking(scores, documents)

    def segments(self, text: tf.Tensor, *, of_queries: bool) -> tf.RaggedTensor:
        """Tokenizes texts (batch,) after their prefix: int32 (batch, None)."""
        side = self._query if of_queries else self._document
        with tf.device("CPU:0"):  # string ops run only on the CPU
            if side.text:
                text = tf.strings.join([side.text, text])
            tokens = self.tokenizer.tokenize(text)
            if not side.tokens:
                return tokens
            prefix = tf.tile(tf.constant([side.tokens], tf.int32), [tokens.nrows(), 1])
            return tf.concat([prefix, tokens], axis=1)

    def pack_queries(self, segments: tf.RaggedTensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Packs the tokens of queries and fills them up.

        Args:
            segments: from `segments`, int32 (batch, None).

        Returns:
            The model's inputs (batch, length), and which tokens count, bool (batch, length).
        """
        tokens = self._packed(segments, self._query.length, at_least=self._expansion)
        with tf.device("CPU:0"):
            positions = tf.range(tf.shape(tokens["token_ids"])[1])
            added = ~tokens["padding_mask"] & (positions < self._expansion)[None]
            if self._expansion:
                filled = tf.where(added, self._expansion_id, tokens["token_ids"])
                tokens |= {
                    "token_ids": filled,
                    "padding_mask": tokens["padding_mask"] | added,
                }
            if UNATTENDED in self.model.input:
                tokens[UNATTENDED] = added
            return tokens, tokens["padding_mask"]

    def pack_documents(self, segments: tf.RaggedTensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Packs the tokens of documents; see `pack_queries`."""
        tokens = self._packed(segments, self._document.length)
        with tf.device("CPU:0"):
            scored = tokens["padding_mask"]
            if self._skipped:
                is_skipped = tokens["token_ids"][..., None] == tf.constant(self._skipped)
                scored &= ~tf.reduce_any(is_skipped, axis=-1)
            if UNATTENDED in self.model.input:
                tokens[UNATTENDED] = tf.zeros_like(scored)
            return tokens, scored

    def encode_queries(self, text: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Turns queries, strings (batch,), into the model's inputs; see `pack_queries`."""
        return self.pack_queries(self.segments(text, of_queries=True))

    def encode_documents(self, text: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Turns documents, strings (batch,), into the model's inputs; see `pack_queries`."""
        return self.pack_documents(self.segments(text, of_queries=False))

    def decode(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the vectors of tokens from the model's inputs."""
        return {VECTORS: tf.cast(self.run_model(tokens)[VECTORS], tf.float32)}

    def query_vectors(self, text: str | Iterable[str], *, batch_size: int = 32) -> Any:
        """Returns the vectors of queries' tokens.

        Args:
            text: a query, or a sequence of queries.
            batch_size: texts per batch; texts of similar length share a batch.

        Returns:
            float32 (tokens, width) for one query; a list of them for many.

        Raises:
            ValueError: a text is not a string.
        """
        return self._vectors_of(self._query_graph, text, batch_size)

    def document_vectors(self, text: str | Iterable[str], *, batch_size: int = 32) -> Any:
        """Returns the vectors of documents' tokens, without skipped ones; see `query_vectors`."""
        return self._vectors_of(self._document_graph, text, batch_size)

    def read_tokens(self, **texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of each row's query and documents; see `TextPipeline`."""
        queries, _ = self.encode_queries(texts["text"])
        rows, _, places = self._documents(texts["text"], texts["documents"])
        with tf.device("CPU:0"):  # ragged ops run only on the CPU
            documents = joined(self.real_tokens(rows), places[:, 0], tf.size(texts["text"]))
            return tf.concat([self.real_tokens(queries), documents], axis=1)

    def read(self, *texts: str | bytes | Sequence[str]) -> dict[str, list[str]]:
        """Runs the model once on a row's query; see `Pipeline.read`."""
        encoded, _ = self.encode_queries(one_row("text", texts[0]))
        self.run_model(encoded)
        return {"source": token_names(self.tokenizer, encoded["token_ids"])}

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `query` and `document`, from texts to the vectors of their tokens."""
        inputs = {"text": tf.TensorSpec([None], tf.string)}
        outputs = {
            "vectors": tf.TensorSpec([None, None, self._width], tf.float32),
            "num_vectors": tf.TensorSpec([None], tf.int32),
        }
        queries = [{"text": batch["text"]} for batch in batches]
        documents = [{"text": batch["documents"].ravel()} for batch in batches]
        return {
            "query": Signature(self._answer_query, inputs, outputs, queries),
            "document": Signature(self._answer_document, inputs, outputs, documents),
        }

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, whose model has its head."""
        expansion: dict[str, Any] = {}
        if self.query_expansion is not None:
            is_shorter = self._expansion < self.query_length
            expansion = {
                "query_expansion": self.query_expansion,
                "expansion_length": self._expansion if is_shorter else None,
                "expansion_token": self.expansion_token,
            }
        return {
            "query_prefix": self.query_prefix,
            "document_prefix": self.document_prefix,
            **({"prefix_as_text": True} if self.prefix_as_text else {}),
            "query_length": int(self.query_length),
            "document_length": int(self.document_length),
            **{name: value for name, value in expansion.items() if value is not None},
            "skipped_tokens": list(self.skipped_tokens),
        }

    def metadata(self) -> dict[str, Any]:
        """Returns what an export records besides the model and the vocabulary."""
        return {"width": self._width, **self.config()}

    @property
    def _width(self) -> int:
        return self.model.output[VECTORS].shape[-1]

    def _packed(
        self, segments: tf.RaggedTensor, length: int, *, at_least: int = 0
    ) -> dict[str, tf.Tensor]:
        """Packs tokens into the model's inputs, at least that long."""
        with tf.device("CPU:0"):
            packed = widened(self.tokenizer.pack([segments], max_sequence_length=length))
            missing = tf.maximum(0, at_least - tf.shape(packed["token_ids"])[1])
            return {
                name: tf.pad(packed[name], [[0, 0], [0, missing]]) for name in self.token_inputs
            }

    def _documents(
        self, text: tf.Tensor, documents: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        """Packs the documents of all rows.

        Returns:
            The model's inputs (pairs, length), which tokens count, and the row and column of each
            document, (pairs, 2).
        """
        with tf.device("CPU:0"):  # string ops run only on the CPU
            tf.debugging.assert_equal(
                tf.size(text), tf.shape(documents)[0], "text and documents differ in number"
            )
            is_document = tf.not_equal(documents, "")
            return *self.encode_documents(documents[is_document]), tf.where(is_document)

    def _vectors(
        self, tokens: dict[str, tf.Tensor], counts: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns vectors (batch, length, width) and which of them count, (batch, length)."""
        outputs = {VECTORS: tf.TensorSpec([None, None, self._width], tf.float32)}
        return in_chunks(self.decode, tokens, outputs)[VECTORS], counts

    def _answer_query(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return _first(*self._vectors(*self.encode_queries(text)))

    def _answer_document(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return _first(*self._vectors(*self.encode_documents(text)))

    @functools.cached_property
    def _query_graph(self) -> Callable[..., dict[str, tf.Tensor]]:
        with shared_calls():
            return traced(self._answer_query, text=tf.TensorSpec([None], tf.string, name="text"))

    @functools.cached_property
    def _document_graph(self) -> Callable[..., dict[str, tf.Tensor]]:
        with shared_calls():
            return traced(self._answer_document, text=tf.TensorSpec([None], tf.string, name="text"))

    def _vectors_of(
        self, graph: Callable[..., Any], text: str | Iterable[str], batch_size: int
    ) -> Any:
        """Returns the vectors of one text, or a list with those of many."""
        if isinstance(text, str | bytes):
            return self._vectors_of(graph, [text], batch_size)[0]
        column = string_column("text", text)
        order = np.argsort([len(item) for item in column], kind="stable")
        results: list[Any] = [None] * len(column)
        for start in range(0, len(column), batch_size):
            chosen = order[start : start + batch_size]
            with graph_errors.as_value_errors():
                answers = graph(text=tf.constant(column[chosen]))
                vectors, counts = answers["vectors"].numpy(), answers["num_vectors"].numpy()
            for i, rows, count in zip(chosen, vectors, counts, strict=True):
                results[i] = rows[:count]
        return results


def _first(vectors: tf.Tensor, counts: tf.Tensor) -> dict[str, tf.Tensor]:
    """Moves the vectors that count to the front of their rows; the others are left out.

    Args:
        vectors: (batch, length, width).
        counts: bool (batch, length).
    """
    order = tf.argsort(tf.cast(counts, tf.int32), axis=1, direction="DESCENDING", stable=True)
    number = tf.reduce_sum(tf.cast(counts, tf.int32), axis=1)  # (batch,)
    most = tf.reduce_max(tf.pad(number, [[0, 1]]))
    is_one = tf.sequence_mask(number, most)[..., None]  # (batch, most, 1)
    chosen = tf.gather(vectors, order[:, :most], batch_dims=1)
    return {"vectors": tf.where(is_one, chosen, 0.0), "num_vectors": number}


def _with_head(model: keras.Model, options: Mapping[str, Any]) -> keras.Model:
    """Returns the model if it outputs token vectors, else the model with a head added."""
    outputs: Any = getattr(model, "output", None)
    if not (isinstance(outputs, dict) and VECTORS in outputs):
        if "projections" not in options:
            _logger.warning(
                "model %r: its projection to %d dimensions is new, with random weights; train it "
                "before use",
                model.name,
                options.get("width", 128),
            )
        return token_embedder(model, **options, name=model.name)
    if options:
        choices = " and ".join(f"{name}={value!r:.60}" for name, value in options.items())
        raise ValueError(
            f"{choices} for model {model.name!r}, which already has token vectors: leave it out, "
            "or pass its encoder"
        )
    return model


def _side(
    model: keras.Model,
    tokenizer: PackingTokenizer,
    ids: Mapping[str, int],
    name: str,
    prefix: str,
    length: int,
) -> _Side:
    """Returns how a side's texts become tokens; ValueError for a wrong prefix or length."""
    if not isinstance(prefix, str):
        raise ValueError(f"{name}_prefix={prefix!r}: expected a string")
    check_text(f"{name}_prefix: {prefix!r:.60}", prefix)
    tokens, text = _prefix(tokenizer, ids, prefix)
    positions = anatomy(model).max_sequence_length
    if isinstance(length, Default):
        length = length.at_most(positions)
    shortest = tokenizer.num_special_tokens(1) + len(tokens) + 1
    if text:
        shortest += int(tokenizer.tokenize([text]).row_lengths()[0])
    limit = "" if positions is None else f" and at most {positions}, the model's positions"
    if type(length) not in (int, Default) or length < shortest or (positions or length) < length:
        raise ValueError(
            f"{name}_length={length!r}: expected at least {shortest}, to hold the special tokens, "
            f"the prefix and one token of a text{limit}"
        )
    return _Side(tokens, text, int(length))


def _prefix(
    tokenizer: PackingTokenizer, ids: Mapping[str, int], prefix: str
) -> tuple[list[int], str]:
    """Returns the tokens and the text of a prefix.

    A tokenizer may split the name of a token in a text, such as [unused0], or have it with the
    space after it, as PyLate's "[Q] ".
    """
    if not prefix.strip():
        return [], prefix
    start = prefix[: len(prefix) - len(prefix.lstrip())] + prefix.split()[0]
    for token in (prefix, start):
        if token in ids:
            first = tokenizer.tokenize([prefix]).values[:1].numpy().tolist()
            if first == [ids[token]]:
                return [], prefix
            return [ids[token]], prefix[len(token) :]
    if ids and start.startswith("[") and start.endswith("]"):
        _logger.warning("%r is not a token of the vocabulary, and is split into several", start)
    return [], prefix


def _expansion_length(length: int | None, query_length: int) -> int:
    if length is None:
        return query_length
    if type(length) is not int or not 1 <= length <= query_length:
        raise ValueError(
            f"expansion_length={length!r}: expected 1 to {query_length}, the query_length"
        )
    return length


def _expansion_id(tokenizer: Any, ids: Mapping[str, int], token: str | None) -> int:
    """Returns the id of the token that fills queries up."""
    if token is None:
        if not hasattr(tokenizer, "mask_token_id"):
            raise ValueError(
                f"query_expansion: {type(tokenizer).__name__} has no mask token: pass "
                "expansion_token, a token of its vocabulary, or query_expansion=None"
            )
        mask: int = tokenizer.mask_token_id
        return mask
    if token not in ids:
        raise ValueError(f"expansion_token={token!r} is not a token of the vocabulary")
    return ids[token]


def _checked_tokens(tokens: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        raise ValueError(f"skipped_tokens={tokens!r:.100}: expected a list of tokens")
    return tuple(tokens)
