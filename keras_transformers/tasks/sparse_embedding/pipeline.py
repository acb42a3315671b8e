"""Embeds text in the vocabulary: a text in, the tokens that describe it out, with weights."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.tasks.embedding.pipeline import checked_prompts
from keras_transformers.tasks.pipeline import Signature
from keras_transformers.tasks.token_inputs import TextPipeline, in_chunks
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__ = ["SparseEmbedder"]

Side = Literal["query", "document"]

_QUERY = "query"
# Logits in memory at a time, 256 MiB: a batch of 32 long texts would have 2 GB of them.
_MOST_LOGITS = 1 << 26


class SparseEmbedder(TextPipeline):
    """Turns texts into weights of the tokens of the vocabulary (SPLADE).

    The dot product of two texts' weights says how well they match. An inverted index, as search
    engines have it, finds the texts with the highest ones.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,)) -> indices int32, weights float32, tokens string, each
      (batch, active), num_active int32 (batch,). `active` is the largest of `num_active`; after a
      row's `num_active`, numbers are 0 and tokens "". The highest weight comes first. Tokens are
      spelled as in the vocabulary: in WordPiece, "##" marks the continuation of a word.
    - query, if there are `query_weights`, and one named after each prompt that is not empty, with
      the same input and outputs.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same outputs.
      It takes only the inputs that the model has, and rejects ids beyond the vocabulary and lengths
      beyond the model's positions.

    Args:
        model: a model from `heads.sparse_embedder`.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`.
        max_active_dims: how many weights of a text to keep, the highest; by default all above 0.
        query_weights: the weights of tokens in queries, such as inverse document frequencies (IDF):
            token -> weight, where others weigh 0, or one for each token of the vocabulary. Queries
            then need no model: a token that occurs weighs what the table says.
        prompts: name -> the text that goes before each text. Those named "query" and "document" are
            for these sides.
        default_prompt_name: the prompt for texts of no side, or of a side without a prompt; none by
            default.
        side: "query" embeds queries: with `query_weights` and the prompt named "query", if there
            are such. "document" embeds with the model and the prompt named "document". By default,
            the model and the default prompt.
        max_sequence_length: maximum tokens in a packed text; longer texts are truncated, and so are
            queries with `query_weights`, which have no special tokens. Defaults to the model's
            number of positions; required if it has none.

    Raises:
        ValueError: model, tokenizer and length do not match; `max_active_dims` is out of range;
            there is no such prompt or side; or `query_weights` has a token that the vocabulary
            lacks, another number of weights, or weights that are below 0 or not finite.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> idf = {"good": 0.5, "film": 1.5}
        >>> embed = SparseEmbedder(kt.heads.sparse_embedder(encoder), tokenizer, query_weights=idf)
        >>> embed("Good films!", side="query").tokens
        ['film', 'good']
    """

    task = "sparse_embedding"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        *,
        max_active_dims: int | None = None,
        query_weights: Mapping[str, float] | Sequence[float] | None = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        side: Side | None = None,
        max_sequence_length: int | None = None,
    ) -> None:
        super().__init__(
            model, tokenizer, outputs=("sparse_embedding",), max_sequence_length=max_sequence_length
        )
        size = tokenizer.vocabulary_size
        if max_active_dims is not None and not 1 <= max_active_dims <= size:
            raise ValueError(
                f"max_active_dims={max_active_dims}: expected 1 to {size}, the size of the "
                "vocabulary"
            )
        if side is not None and side not in get_args(Side):
            raise ValueError(f"side={side!r}: use {' or '.join(map(repr, get_args(Side)))}")
        self.max_active_dims = None if max_active_dims is None else int(max_active_dims)
        self.prompts = checked_prompts(prompts or {})
        if default_prompt_name is not None and default_prompt_name not in self.prompts:
            raise ValueError(
                f"default_prompt_name={default_prompt_name!r}: the prompts of this pipeline are "
                f"{', '.join(self.prompts) or 'none'}"
            )
        self.default_prompt_name = default_prompt_name
        self.side: str | None = side
        self._vocabulary = list(tokenizer.vocabulary)
        self.query_weights: Mapping[str, float] | None = None
        if query_weights is not None:
            self._table = _table(query_weights, self._vocabulary)  # (vocabulary,)
            heavy = np.nonzero(self._table)[0]
            self.query_weights = MappingProxyType(
                {self._vocabulary[index]: float(self._table[index]) for index in heavy}
            )

    def tokenize(self, *texts: tf.Tensor, prompt: str | None = None) -> list[tf.RaggedTensor]:
        """Tokenizes texts with a prompt before them; see `TextPipeline`."""
        prompt = self.prompt_of(self.side) if prompt is None else prompt
        if not prompt:
            return super().tokenize(*texts)
        with tf.device("CPU:0"):  # string ops run only on the CPU
            return super().tokenize(*(tf.strings.join([prompt, text]) for text in texts))

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes indices, weights, tokens and num_active from strings, in the graph."""
        return self._answer(texts["text"], self.side, self.prompt_of(self.side))

    def decode(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes indices, weights, tokens and num_active from the model's inputs."""
        width = self.model.output["sparse_embedding"].shape[-1]
        length = tf.shape(tokens["token_ids"])[1]
        embedding = in_chunks(
            self._embedded,
            tokens,
            {"sparse_embedding": tf.TensorSpec([None, width], tf.float32)},
            size=tf.maximum(1, _MOST_LOGITS // width // length),
        )["sparse_embedding"]
        # The model's matrix may have more rows than there are tokens.
        return self._active(embedding[:, : self.tokenizer.vocabulary_size])

    def read_tokens(self, **texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens that are read of each row; see `TextPipeline`."""
        if self._has_table(self.side):
            return self._cut(self.tokenize(texts["text"])[0])
        return super().read_tokens(**texts)

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `query` if there is a table, one signature per prompt, and `tokens`."""
        names = [name for name, prompt in self.prompts.items() if prompt]
        if self._has_table(_QUERY):
            names.append(_QUERY)
        sides = {
            name: Signature(
                lambda text, name=name: self._answer(text, name, self.prompt_of(name)),
                self.input_specs(),
                self.answer_specs(),
                batches,
            )
            for name in dict.fromkeys(names)
        }
        return {**sides, **super().other_signatures(batches)}

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {
            "indices": tf.TensorSpec([None, None], tf.int32),
            "weights": tf.TensorSpec([None, None], tf.float32),
            "tokens": tf.TensorSpec([None, None], tf.string),
            "num_active": tf.TensorSpec([None], tf.int32),
        }

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        config = {
            "max_sequence_length": self.max_sequence_length,
            "max_active_dims": self.max_active_dims,
        }
        others: dict[str, Any] = {"side": self.side}
        if self.prompts:
            others["prompts"] = dict(self.prompts)
            others["default_prompt_name"] = self.default_prompt_name
        if self.query_weights is not None:
            others["query_weights"] = dict(self.query_weights)
        return {**config, **{name: x for name, x in others.items() if x is not None}}

    def metadata(self) -> dict[str, Any]:
        """Returns what an export records besides the model and the vocabulary."""
        config = {name: value for name, value in self.config().items() if name != "query_weights"}
        padded = [name for name in self.answer_specs() if name != "num_active"]
        return {**config, "lengths": {"num_active": padded}}

    @property
    def sides(self) -> tuple[Side, ...]:
        """The values of `side` that embed differently from the default."""
        return tuple(x for x in get_args(Side) if x in self.prompts or self._has_table(x))

    def prompt_of(self, side: str | None) -> str:
        """Returns the prompt of texts of a side, or of None, for those of no side."""
        name = side if side in self.prompts else self.default_prompt_name
        return "" if name is None else self.prompts[name]

    @property
    def query_table(self) -> np.ndarray | None:
        """The weight of each token in queries, float32 (vocabulary,), 0 for special tokens.

        None without `query_weights`. Texts have no special tokens before they are packed.
        """
        if self.query_weights is None:
            return None
        table = self._table.copy()
        nothing = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int32), [0, 0])  # one row
        special = self.pack([nothing])["token_ids"]
        table[special.numpy()[0]] = 0.0
        return table

    def _has_table(self, side: str | None) -> bool:
        return side == _QUERY and self.query_weights is not None

    def _answer(self, text: tf.Tensor, side: str | None, prompt: str) -> dict[str, tf.Tensor]:
        """Answers texts of a side, or with the prompt of any other name."""
        segments = self.tokenize(text, prompt=prompt)
        if self._has_table(side):
            return self._active(self._looked_up(segments[0]))
        return self.decode(self.pack(segments))

    def _cut(self, segment: tf.RaggedTensor) -> tf.RaggedTensor:
        with tf.device("CPU:0"):  # ragged ops run only on the CPU
            return segment[:, : self.max_sequence_length]

    def _looked_up(self, segment: tf.RaggedTensor) -> tf.Tensor:
        """Computes what the table says of tokens (batch, None): float32 (batch, vocabulary)."""
        with tf.device("CPU:0"):
            cut = self._cut(segment)
            places = tf.stack([cut.value_rowids(), tf.cast(cut.values, tf.int64)], axis=1)
            shape = tf.stack([cut.nrows(), tf.constant(len(self._vocabulary), tf.int64)])
            occurs = tf.scatter_nd(places, tf.ones_like(cut.values), shape) > 0
            return tf.where(occurs, tf.constant(self._table), 0.0)

    def _embedded(self, tokens: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = self.run_model(tokens)
        return {"sparse_embedding": tf.cast(outputs["sparse_embedding"], tf.float32)}

    def _active(self, embedding: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the weights above 0 in (batch, vocabulary), the highest first."""
        counts = tf.math.count_nonzero(embedding > 0, axis=1, dtype=tf.int32)  # (batch,)
        if self.max_active_dims is not None:
            counts = tf.minimum(counts, self.max_active_dims)
        most = tf.reduce_max(tf.pad(counts, [[0, 1]]))  # of an empty batch, 0
        weights, indices = tf.math.top_k(embedding, most)  # (batch, active)
        is_active = tf.sequence_mask(counts, most)
        with tf.device("CPU:0"):  # string ops run only on the CPU
            tokens = tf.where(is_active, tf.gather(tf.constant(self._vocabulary), indices), "")
        return {
            "indices": tf.where(is_active, indices, 0),
            "weights": tf.where(is_active, weights, 0.0),
            "tokens": tokens,
            "num_active": counts,
        }


def _table(weights: Mapping[str, float] | Sequence[float], vocabulary: Sequence[str]) -> np.ndarray:
    """Returns the weight of each token in queries: float32 (vocabulary,)."""
    if isinstance(weights, Mapping):
        index = {token: number for number, token in enumerate(vocabulary)}
        if unknown := [token for token in weights if token not in index]:
            raise ValueError(
                f"query_weights: {', '.join(map(repr, unknown[:5]))} "
                f"({len(unknown)} of {len(weights)} tokens) are not in the tokenizer's vocabulary: "
                "use the weights that were made for this vocabulary"
            )
        table = np.zeros(len(vocabulary), np.float32)
        table[[index[token] for token in weights]] = list(weights.values())
    else:
        table = np.array(weights, np.float32)
        if table.shape != (len(vocabulary),):
            raise ValueError(
                f"query_weights: weights of shape {table.shape}; expected one for each of the "
                f"{len(vocabulary)} tokens of the vocabulary"
            )
    wrong = np.nonzero(~(np.isfinite(table) & (table >= 0)))[0]
    if len(wrong):
        raise ValueError(
            f"query_weights: token {vocabulary[wrong[0]]!r} weighs {table[wrong[0]]}; expected "
            "finite numbers, 0 or above"
        )
    return table
