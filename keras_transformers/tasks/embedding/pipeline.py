"""Embeds text: a text in, its vector out."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.files.surrogates import check_text
from keras_transformers.tasks.embedding.head import embedder, has_unit_vectors
from keras_transformers.tasks.explaining import (
    Explained,
    Spans,
    explained_places,
    numbered,
)
from keras_transformers.tasks.long_texts import LongTextPipeline, LongTexts
from keras_transformers.tasks.pipeline import Signature
from keras_transformers.tasks.token_inputs import TEXT_INPUTS, checked_tokens
from keras_transformers.tasks.windows import Pooling
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__ = ["Embedder"]

_SIGNATURES = ("serving_default", "tokens")  # of all exports


class Embedder(LongTextPipeline):
    """Turns texts into vectors.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,)) -> embedding float32 (batch, hidden).
    - one named after each prompt that is not empty, with the same input and output.
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same. It takes
      only the inputs that the model has, and rejects ids beyond the vocabulary, lengths beyond the
      model's positions and, if the tokenizer adds special tokens, rows that are all padding.

    Args:
        model: a model from `heads.embedder`; or an encoder from token_ids, padding_mask and
            possibly segment_ids to sequence_output (batch, length, hidden), to which that head is
            added.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`.
        pooling: how to pool an encoder's outputs, "mean" by default; `heads.embedder` describes
            this and the next three arguments.
        projections: layers for an encoder's pooled vector.
        normalize: whether to scale an encoder's vectors to length 1; True by default.
        truncate_dim: how many dimensions of an encoder's vectors to keep.
        prompts: name -> the text that goes before each text. A call takes `prompt_name`, and an
            export has a signature per name, besides `serving_default`.
        default_prompt_name: the prompt for calls without a `prompt_name` and for `serving_default`;
            no prompt by default.
        max_sequence_length: maximum tokens in a packed text. Defaults to the model's number of
            positions; required if it has none.
        long_texts: "cut" leaves out the end of longer texts. "windows" reads texts of any length in
            windows of `max_sequence_length` tokens, each with its special tokens, and pools their
            vectors; if the model's have length 1, the result is scaled to length 1 too.
        window_pooling: "mean" over the windows, or "max" of each number.
        window_overlap: tokens that a window shares with the next; an eighth of
            `max_sequence_length` by default.

    Raises:
        ValueError: model, tokenizer and length do not match; there is no such prompt; or
            `pooling`, `projections`, `normalize` or `truncate_dim` is given for a model that
            already pools.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> embed = Embedder(kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size), tokenizer)
        >>> len(embed("Good films!").vector)
        128
    """

    task = "embedding"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        *,
        pooling: str | Sequence[str] | None = None,
        projections: Sequence[keras.layers.Layer] = (),
        normalize: bool | None = None,
        truncate_dim: int | None = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        max_sequence_length: int | None = None,
        long_texts: LongTexts = "cut",
        window_pooling: Pooling = "mean",
        window_overlap: int | None = None,
    ) -> None:
        head = {"pooling": pooling, "normalize": normalize, "truncate_dim": truncate_dim}
        super().__init__(
            _pooled(model, {"projections": projections or None, **head}),
            tokenizer,
            output="embedding",
            max_sequence_length=max_sequence_length,
            long_texts=long_texts,
            window_pooling=window_pooling,
            window_overlap=window_overlap,
        )
        self.prompts = checked_prompts(prompts or {})
        self.default_prompt_name = default_prompt_name
        self._prompt = "" if default_prompt_name is None else self._prompt_of(default_prompt_name)

    def __call__(
        self,
        *texts: Any,
        prompt_name: str | None = None,
        batch_size: int = 32,
        **options: Any,
    ) -> Any:
        """Embeds one text or many; see `Pipeline`.

        Args:
            *texts: a string, or a sequence of strings.
            prompt_name: which of `prompts` goes before each text, instead of the default prompt.
            batch_size: rows per batch; rows of similar length share a batch.
            **options: see `Pipeline`.

        Raises:
            ValueError: there is no such prompt, or a text is not a string.
        """
        if prompt_name is not None:
            options["default_prompt_name"] = prompt_name
        return super().__call__(*texts, batch_size=batch_size, **options)

    def tokenize(self, *texts: tf.Tensor, prompt: str | None = None) -> list[tf.RaggedTensor]:
        """Tokenizes texts with a prompt before them; see `TextPipeline`."""
        prompt = self._prompt if prompt is None else prompt
        if not prompt:
            return super().tokenize(*texts)
        with tf.device("CPU:0"):  # string ops run only on the CPU
            return super().tokenize(*(tf.strings.join([prompt, text]) for text in texts))

    def interpret(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the model's vectors (batch, width)."""
        return {"embedding": output}

    @property
    def explained(self) -> tuple[str, ...]:
        """The cosine of two texts' vectors."""
        return ("similarity",)

    @property
    def explained_inputs(self) -> tuple[str, ...]:
        """Two texts; with prompts for a "query" and a "document", in this order."""
        return TEXT_INPUTS

    def spans(self, *texts: tf.Tensor) -> list[Spans]:
        """Tokenizes texts after their prompts and finds each token's place in its text."""
        return [
            _after(prompt, *super(Embedder, self).spans(tf.strings.join([prompt, text])))
            for prompt, text in zip(self._side_prompts(), texts, strict=True)
        ]

    def to_explain(self, spans: Sequence[Spans], texts: Sequence[tf.Tensor]) -> Explained:
        """Returns both texts of each pair in rows of their own, with the vector of the other.

        A path from nothing for both at once would begin where they are alike.
        """
        sides = ([one.ids for one in spans], numbered(spans))
        inputs, places = self._packed(*([tf.concat(side, axis=0)] for side in sides))
        vectors = tf.split(self.decode(dict(inputs))["embedding"], 2)
        return Explained(
            inputs,
            explained_places(places, spans),
            tf.tile(tf.range(tf.size(texts[0])), [2]),
            {"other": tf.concat(vectors[::-1], axis=0)},
        )

    def explained_score(
        self, outputs: Mapping[str, tf.Tensor], index: tf.Tensor, others: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Computes the cosine of each row's vector and the other text's."""
        vectors = tf.cast(outputs["embedding"], tf.float32), others["other"]
        one, other = (tf.math.l2_normalize(side, axis=1) for side in vectors)
        return tf.reduce_sum(one * other, axis=1)

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `tokens`, and one signature per prompt."""
        prompted = {
            name: Signature(
                lambda text, prompt=prompt: self.answer_segments(
                    self.tokenize(text, prompt=prompt)
                ),
                self.input_specs(),
                self.answer_specs(),
                batches,
            )
            for name, prompt in self.prompts.items()
            if prompt
        }
        return {**prompted, **super().other_signatures(batches)}

    def answer_tokens(self, **tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        """Checks the model's inputs and computes the embedding from them."""
        tokens = checked_tokens(self.model, tokens)
        # Where the tokenizer adds no special tokens, an empty text has none.
        if "padding_mask" in tokens and self.tokenizer.num_special_tokens(1):
            mask = tokens["padding_mask"]  # (batch, length), or (batch, windows, length)
            real = tf.reduce_any(mask, axis=list(range(1, mask.shape.rank)))  # (batch,)
            with tf.device("CPU:0"):  # the message is a string
                tf.debugging.Assert(tf.reduce_all(real), ["a row has only padding"])
        return self.decode(tokens)

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {"embedding": tf.TensorSpec([None, self._embedding_dim], tf.float32)}

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, whose model already pools."""
        prompts: dict[str, Any] = {}
        if self.prompts:
            prompts = {
                "prompts": dict(self.prompts),
                "default_prompt_name": self.default_prompt_name,
            }
        length = {"max_sequence_length": self.max_sequence_length}
        return {**length, **self.window_options(), **prompts}

    def metadata(self) -> dict[str, Any]:
        """Returns what an export records besides the model and the vocabulary."""
        return {"embedding_dim": self._embedding_dim, **self.config()}

    @property
    def _is_unit(self) -> bool:
        return has_unit_vectors(self.model)

    @property
    def _embedding_dim(self) -> int:
        return self.model.output["embedding"].shape[-1]

    def _side_prompts(self) -> tuple[str, str]:
        """Returns the prompts of queries and documents, as searches use them."""
        names = ("query", "document")
        if set(names) <= set(self.prompts):
            return self.prompts[names[0]], self.prompts[names[1]]
        return self._prompt, self._prompt

    def _explained_examples(
        self, batches: Sequence[Mapping[str, np.ndarray]]
    ) -> list[dict[str, np.ndarray]]:
        pairs = [{"text": b["text"], "text_b": b["text"][::-1]} for b in batches]
        return super()._explained_examples(pairs)

    def _prompt_of(self, name: str) -> str:
        if name not in self.prompts:
            names = ", ".join(self.prompts) or "none"
            raise ValueError(f"prompt_name={name!r}: the prompts of this pipeline are {names}")
        return self.prompts[name]


def _after(prompt: str, spans: Spans) -> Spans:
    """Returns spans in the text after a prompt; those of the prompt's tokens are below 0."""
    length = len(prompt.encode())
    starts, ends = (side.with_values(side.values - length) for side in spans[1:])
    return Spans(spans.ids, starts, ends)


def checked_prompts(prompts: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the prompts; ValueError if a name or a prompt is invalid."""
    for name, prompt in prompts.items():
        if not isinstance(name, str) or not isinstance(prompt, str):
            raise ValueError(f"prompts={prompts!r:.200}: expected a mapping from names to texts")
        for text in (name, prompt):
            check_text(f"prompts: {text!r:.60}", text)
        if name in _SIGNATURES or not name or name.startswith("__"):
            raise ValueError(
                f"prompts: {name!r} cannot name a signature of an export: choose another name"
            )
    return MappingProxyType(dict(prompts))


def _pooled(model: keras.Model, options: Mapping[str, Any]) -> keras.Model:
    """Returns the model if it outputs embeddings, else the model with a head added."""
    head_options = {name: value for name, value in options.items() if value is not None}
    outputs: Any = getattr(model, "output", None)
    if not (isinstance(outputs, dict) and "embedding" in outputs):
        return embedder(model, **head_options, name=model.name)
    if head_options:
        choices = " and ".join(f"{name}={value!r}" for name, value in head_options.items())
        raise ValueError(
            f"{choices} for model {model.name!r}, which already pools: leave them out, or pass its "
            "encoder"
        )
    return model
