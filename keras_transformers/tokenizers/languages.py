"""Tokenizes for models that translate between many languages, each with a token for its code."""

import copy
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import tensorflow as tf

from keras_transformers.tokenizers.targets import Targets
from keras_transformers.tokenizers.tensors import Texts, texts_of

__all__: list[str] = []


class Languages(Targets):
    """A base of tokenizers whose sources and targets name their languages.

    A source is its language, text, end token; a target is the end token, which starts it, language,
    text, end token. Others override `special_tokens`, `target_start` and `target_end`.

    They set the ids and define `_tokenize`, and call `_set_languages`.

    Attributes:
        languages: code -> id of its token; read only.
        source_language: the code of the sources' language; None if it is not set.
        target_language: the code of the targets' language; None if it is not set.
    """

    bos_token_id = cls_token_id = 0  # <s>, which is in no text
    end_token_id: int
    languages: Mapping[str, int]
    source_language: str | None
    target_language: str | None

    def _set_languages(
        self, ids: Mapping[str, int], source_language: str | None, target_language: str | None
    ) -> None:
        """Sets the languages, by code, and those of either side."""
        for side, code in (("source", source_language), ("target", target_language)):
            if code is not None and code not in ids:
                raise ValueError(f"{side}_language={code!r}: expected {named(ids)}")
        self.languages = MappingProxyType(dict(ids))
        self.source_language, self.target_language = source_language, target_language

    def between(self, source_language: str | None, target_language: str | None) -> Self:
        """Returns the same tokenizer for other languages; None keeps the one that is set.

        Raises:
            ValueError: it has no such language.
        """
        other = copy.copy(self)
        other._set_languages(
            self.languages,
            source_language or self.source_language,
            target_language or self.target_language,
        )
        return other

    def language_ids(self, code: tf.Tensor) -> tf.Tensor:
        """Converts codes, strings (batch,), to the ids of their tokens, int32 (batch,).

        Raises:
            tf.errors.InvalidArgumentError: one is unknown.
        """
        with tf.device("CPU:0"):  # string ops run only on the CPU
            is_this = code[:, None] == tf.constant([*self.languages])  # (batch, languages)
            is_language = tf.reduce_any(is_this, axis=1)
            message = f"unknown language: expected {named(self.languages)}, not"
            others = tf.boolean_mask(code, ~is_language)
            check = tf.debugging.Assert(tf.reduce_all(is_language), [message, others])
            with tf.control_dependencies([check] if check is not None else []):
                return tf.gather(
                    tf.constant([*self.languages.values()]), tf.argmax(is_this, axis=1)
                )

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids before each source and after the last."""
        before = [self._id("source", self.source_language)]
        return [before, *[[]] * (num_segments - 1), [self.end_token_id]]

    def target_start(self, language: Any = None) -> list[Any]:
        """Returns the ids before a target: the start token and its language.

        Args:
            language: the id of the language, or int32 (batch,); that of the target by default.
        """
        return [self.end_token_id, self._target(language)]

    def target_end(self) -> list[int]:
        """Returns the ids after a target."""
        return [self.end_token_id]

    def tokenize(
        self, text: Texts, *, add_start: bool = False, add_end: bool = False
    ) -> tf.RaggedTensor:
        """Converts texts to token ids.

        Args:
            text: strings (batch,).
            add_start: add the start token and the target's language before each row.
            add_end: add the end token, and whatever follows it, after each row.

        Returns:
            int32 (batch, None).
        """
        token_ids = self._tokenize(texts_of(text))
        if not add_start and not add_end:
            return token_ids
        before = self.target_start() if add_start else []
        after = self.target_end() if add_end else []
        rows = token_ids.nrows()
        columns = [tf.tile(tf.constant([ids], tf.int32), [rows, 1]) for ids in (before, after)]
        return tf.concat([columns[0], token_ids, columns[1]], axis=1)

    def _target(self, language: Any = None) -> Any:
        return self._id("target", self.target_language) if language is None else language

    def _id(self, side: str, code: str | None) -> int:
        if code is None:
            raise ValueError(
                f"{side}_language is not set: pass one of {named(self.languages)} to the tokenizer "
                "or the pipeline"
            )
        return self.languages[code]

    def _language_config(self) -> dict[str, Any]:
        """Returns the arguments that restore the languages, as JSON values."""
        return {"source_language": self.source_language, "target_language": self.target_language}


def named(codes: Mapping[str, int] | Sequence[str]) -> str:
    """Returns language codes for a message, the first few if there are many."""
    codes = list(codes)
    shown = ", ".join(map(repr, codes[:8]))
    return shown if len(codes) <= 8 else f"{shown} and {len(codes) - 8} others"
