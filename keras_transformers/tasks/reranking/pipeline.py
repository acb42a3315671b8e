"""Reranks documents: a query and documents in, the documents' scores and order out."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.tasks.explaining import ExplainedPipeline
from keras_transformers.tasks.pipeline import Signature
from keras_transformers.tasks.text_lists import ListPipeline
from keras_transformers.tasks.token_inputs import (
    TEXT_INPUTS,
    in_chunks,
    joined,
    one_row,
    token_names,
)
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__ = ["Reranker"]


class Reranker(ListPipeline, ExplainedPipeline):
    """Orders documents by how well they answer a query, with a cross-encoder.

    The model reads each document together with the query, which is slower but more accurate than
    comparing vectors: find a hundred documents with an `Embedder`, then rerank those. Nogueira &
    Cho 2019, arXiv:1901.04085; sentence-transformers' CrossEncoder. Rows may have any number of
    documents. "" is not a document: it pads rows with fewer documents than others.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,), documents string (batch, documents)) -> scores float32,
      order int32 (batch, documents), num_documents int32 (batch,), which counts up to the last
      document that is not "". `order` has the indices of the documents, the best first, padded
      with -1; the score of "" is 0.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> score float32
      (batch,) of packed pairs. It takes only the inputs that the model has, and rejects ids beyond
      the vocabulary and lengths beyond the model's positions.

    Args:
        model: functional, from token_ids, padding_mask and possibly segment_ids to score (batch,);
            see `heads.regressor`.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`.
        activation: "sigmoid" maps scores to 0 to 1; "linear" leaves them as they are.
        max_sequence_length: maximum tokens in a packed pair; the tokenizer truncates longer ones.
            Defaults to the model's number of positions; required if it has none.

    Raises:
        ValueError: model, tokenizer and length do not match, or `activation` is unknown.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> rank = Reranker(kt.heads.regressor(encoder), tokenizer)
        >>> sorted(rank("good", ["films", "!", "good film"]).order)
        [0, 1, 2]
    """

    task = "reranking"
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
        activation: Literal["linear", "sigmoid"] = "sigmoid",
        max_sequence_length: int | None = None,
    ) -> None:
        super().__init__(
            model, tokenizer, outputs=("score",), max_sequence_length=max_sequence_length
        )
        if activation not in ("linear", "sigmoid"):
            raise ValueError(f"activation={activation!r}: use 'linear' or 'sigmoid'")
        self.activation = activation

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores and orders documents, in the graph."""
        documents = texts["documents"]
        is_document = tf.not_equal(documents, "")
        tokens, places = self._packed_pairs(texts["text"], documents)
        score = {"score": tf.TensorSpec([None], tf.float32)}
        of_pairs = in_chunks(self.decode, tokens, score)["score"]  # (pairs,)
        scores = tf.scatter_nd(places, of_pairs, tf.shape(documents, tf.int64))
        ranked = tf.where(is_document, scores, -np.inf)
        order = tf.argsort(ranked, axis=1, direction="DESCENDING", stable=True)
        counts = tf.reduce_sum(tf.cast(is_document, tf.int32), axis=1, keepdims=True)
        width = tf.range(tf.shape(documents)[1])
        ends = tf.pad(tf.where(is_document, width + 1, 0), [[0, 0], [0, 1]])
        return {
            "scores": scores,
            "order": tf.where(width[None] < counts, order, -1),
            "num_documents": tf.reduce_max(ends, axis=1),
        }

    def read_tokens(self, **texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of each row's pairs; see `TextPipeline`."""
        tokens, places = self._packed_pairs(texts["text"], texts["documents"])
        with tf.device("CPU:0"):  # ragged ops run only on the CPU
            return joined(self.real_tokens(tokens), places[:, 0], tf.size(texts["text"]))

    def decode(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the score of packed pairs from the model's inputs."""
        score = tf.cast(self.run_model(tokens)["score"], tf.float32)  # (pairs,)
        return {"score": tf.sigmoid(score) if self.activation == "sigmoid" else score}

    @property
    def explained(self) -> tuple[str, ...]:
        """The score of a document; with `activation="sigmoid"` explanations are of its log-odds."""
        return ("score",)

    @property
    def explained_inputs(self) -> tuple[str, ...]:
        """A query and one document."""
        return TEXT_INPUTS

    def explained_score(
        self, outputs: Mapping[str, tf.Tensor], index: tf.Tensor, others: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Computes the score before the sigmoid."""
        return tf.cast(outputs["score"], tf.float32)

    def read(self, *texts: str | bytes | Sequence[str]) -> dict[str, list[str]]:
        """Runs the model once on a query and its first document; see `Pipeline.read`.

        Raises:
            ValueError: there are no documents.
        """
        text, documents = texts
        encoded = self.encode(one_row("text", text), self._first(documents))
        self.run_model(encoded)
        return {"source": token_names(self.tokenizer, encoded["token_ids"])}

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {
            "scores": tf.TensorSpec([None, None], tf.float32),
            "order": tf.TensorSpec([None, None], tf.int32),
            "num_documents": tf.TensorSpec([None], tf.int32),
        }

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `tokens`, from the model's inputs to scores."""
        score = {"score": tf.TensorSpec([None], tf.float32)}
        pairs = [_pairs(batch) for batch in batches]
        return {"tokens": self.tokens_signature(self.answer_tokens, score, pairs)}

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {"activation": self.activation, **super().config()}

    def _packed_pairs(
        self, text: tf.Tensor, documents: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Packs texts with each of their documents.

        Returns:
            The model's inputs (pairs, length), and the row and column of each document, (pairs, 2).
        """
        with tf.device("CPU:0"):  # string ops run only on the CPU
            tf.debugging.assert_equal(
                tf.size(text), tf.shape(documents)[0], "text and documents differ in number"
            )
            is_document = tf.not_equal(documents, "")
            places = tf.where(is_document)  # (pairs, 2)
            queries = tf.gather(self.tokenizer.tokenize(text), places[:, 0])
            return self.pack([queries, self.tokenizer.tokenize(documents[is_document])]), places

    def _encoded(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        texts = [tf.constant(batch[name], tf.string) for name in TEXT_INPUTS]
        return {name: tensor.numpy() for name, tensor in self.encode(*texts).items()}

    def _explained_examples(
        self, batches: Sequence[Mapping[str, np.ndarray]]
    ) -> list[dict[str, np.ndarray]]:
        return super()._explained_examples([_pairs(batch) for batch in batches])


def _pairs(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns each document with its query."""
    places = np.argwhere(batch["documents"] != b"")
    columns = batch["text"][places[:, 0]], batch["documents"][tuple(places.T)]
    return dict(zip(TEXT_INPUTS, columns, strict=True))
