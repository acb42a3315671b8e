"""Reranks documents: a query and documents in, the documents' scores and order out."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.models.anatomy import anatomy
from keras_transformers.tasks.explaining import ExplainedPipeline
from keras_transformers.tasks.pipeline import Signature
from keras_transformers.tasks.reranking.head import answer_scorer
from keras_transformers.tasks.reranking.prompts import INSTRUCTION, PROMPT, Prompt
from keras_transformers.tasks.text_lists import RankingPipeline, ranking
from keras_transformers.tasks.token_inputs import (
    TEXT_INPUTS,
    in_chunks,
    joined,
    names_read,
    one_row,
    widened,
)
from keras_transformers.tokenizers import packing
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__ = ["Reranker"]

_ANSWERS = ("yes", "no")
_MOST_TOKENS = 8192  # of Qwen3-Reranker's prompts, in its model card


class Reranker(RankingPipeline, ExplainedPipeline):
    """Orders documents by how well they answer a query, with a cross-encoder.

    The model reads each document together with the query, which is slower but more accurate than
    comparing vectors: find a hundred documents with an `Embedder`, then rerank those. Nogueira &
    Cho 2019, arXiv:1901.04085; sentence-transformers' CrossEncoder. Rows may have any number of
    documents. "" is not a document: it pads rows with fewer documents than others.

    A causal language model reranks too: it reads a prompt with the query and a document, and the
    score is how much more likely it answers "yes" than "no", before the sigmoid. The sigmoid is the
    probability of "yes" among the two (Zhang et al. 2025, arXiv:2506.05176, Qwen3-Reranker).

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
            see `heads.regressor`. Or a causal language model, whose answers become scores.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`.
        activation: "sigmoid" maps scores to 0 to 1; "linear" leaves them as they are.
        max_sequence_length: maximum tokens in a packed pair; the tokenizer truncates longer ones.
            Defaults to the model's number of positions, of a language model at most 8192; required
            if it has none.
        prompt: what the model reads, with "{text}" and "{document}" in this order for the query and
            a document; longer documents are cut, so that the end of the prompt stays. None packs
            the two as the tokenizer packs pairs, but gives language models the prompt of
            Qwen3-Reranker.
        instruction: what stands for "{instruction}" in the prompt: the task, in a sentence.

    Raises:
        ValueError: model, tokenizer and length do not match, `activation` is unknown, the prompt
            lacks a place, or "yes" or "no" is not a token.

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
        prompt: str | None = None,
        instruction: str = INSTRUCTION,
    ) -> None:
        if "logits" in getattr(model, "output", ()):
            prompt = PROMPT if prompt is None else prompt
            model = answer_scorer(model, *(_token(tokenizer, answer) for answer in _ANSWERS))
        if prompt is not None and max_sequence_length is None:
            longest = anatomy(model).trained_length
            max_sequence_length = None if longest is None else min(longest, _MOST_TOKENS)
        super().__init__(
            model, tokenizer, outputs=("score",), max_sequence_length=max_sequence_length
        )
        self.prompt, self.instruction = prompt, instruction
        self._prompt = None if prompt is None else Prompt(prompt, instruction)
        if self._prompt is not None:
            self._end = self._ids(self._prompt.end)
            taken = len(self._ids(self._prompt.start + self._prompt.middle)) + len(self._end)
            if self.max_sequence_length <= taken:
                raise ValueError(
                    f"max_sequence_length={self.max_sequence_length}: the prompt alone has {taken} "
                    "tokens: pass a higher number"
                )
        if activation not in ("linear", "sigmoid"):
            raise ValueError(f"activation={activation!r}: use 'linear' or 'sigmoid'")
        self.activation = activation

    def tokenize(self, *texts: tf.Tensor) -> list[tf.RaggedTensor]:
        """Tokenizes queries and documents, in their prompt if there is one; see `TextPipeline`."""
        if self._prompt is None:
            return super().tokenize(*texts)
        query, document = texts
        prompt = self._prompt
        with tf.device("CPU:0"):  # string ops run only on the CPU
            tf.debugging.assert_equal(
                tf.size(query), tf.size(document), "text and text_b differ in number"
            )
            return super().tokenize(tf.strings.join([prompt.start, query, prompt.middle, document]))

    def pack(self, segments: Sequence[tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """Packs tokens; what is too long loses the end before that of the prompt."""
        if self._prompt is None:
            return super().pack(segments)
        with tf.device("CPU:0"):
            kept = packing.trim(segments[0], self.max_sequence_length - len(self._end))
            packed = packing.pack(
                [kept],
                special_tokens=[[], self._end],
                pad_token_id=self.tokenizer.pad_token_id,
            )
            return {
                name: value for name, value in widened(packed).items() if name in self.token_inputs
            }

    def lengths(self, segments: Sequence[tf.RaggedTensor]) -> tf.Tensor:
        """Counts each row's tokens before truncation; see `TextPipeline`."""
        if self._prompt is None:
            return super().lengths(segments)
        return tf.cast(segments[0].row_lengths(), tf.int32) + len(self._end)

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores and orders documents, in the graph."""
        documents = texts["documents"]
        tokens, places = self.packed_pairs(texts["text"], documents)
        score = {"score": tf.TensorSpec([None], tf.float32)}
        of_pairs = in_chunks(self.decode, tokens, score)["score"]  # (pairs,)
        scores = tf.scatter_nd(places, of_pairs, tf.shape(documents, tf.int64))
        return ranking(scores, documents)

    def read_tokens(self, **texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of each row's pairs; see `TextPipeline`."""
        tokens, places = self.packed_pairs(texts["text"], texts["documents"])
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

    def check_explained(self) -> None:
        """Checks that the pipeline can be explained; ValueError with the remedy if not."""
        if self._prompt is not None:
            raise ValueError(
                "explanations are of a query and a document without a prompt: use an encoder's "
                "reranker"
            )
        super().check_explained()

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
        return names_read(self.model, self.tokenizer, encoded)

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `tokens`, from the model's inputs to scores."""
        score = {"score": tf.TensorSpec([None], tf.float32)}
        pairs = [_pairs(batch) for batch in batches]
        return {"tokens": self.tokens_signature(self.answer_tokens, score, pairs)}

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        prompt = {"prompt": self.prompt, "instruction": self.instruction}
        return {
            "activation": self.activation,
            **({} if self.prompt is None else prompt),
            **super().config(),
        }

    def _ids(self, text: str) -> list[int]:
        """Returns the tokens of a part of the prompt."""
        ids: list[int] = self.tokenizer.tokenize(tf.constant([text])).values.numpy().tolist()
        return ids

    def _encoded(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        texts = [tf.constant(batch[name], tf.string) for name in TEXT_INPUTS]
        return {name: tensor.numpy() for name, tensor in self.encode(*texts).items()}

    def _explained_examples(
        self, batches: Sequence[Mapping[str, np.ndarray]]
    ) -> list[dict[str, np.ndarray]]:
        return super()._explained_examples([_pairs(batch) for batch in batches])


def _token(tokenizer: PackingTokenizer, answer: str) -> int:
    """Returns the id of an answer; ValueError if it is not one token."""
    ids: list[int] = tokenizer.tokenize(tf.constant([answer])).values.numpy().tolist()
    if len(ids) != 1:
        raise ValueError(
            f"{answer!r} has {len(ids)} tokens: a language model reranks by its answers "
            f"{' and '.join(map(repr, _ANSWERS))}, which must be one token each"
        )
    return ids[0]


def _pairs(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns each document with its query."""
    places = np.argwhere(batch["documents"] != b"")
    columns = batch["text"][places[:, 0]], batch["documents"][tuple(places.T)]
    return dict(zip(TEXT_INPUTS, columns, strict=True))
