"""Turns prompts and the options of requests into the rows that a search continues."""

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.decoding.rows import ROW_OPTIONS, option_rules
from keras_transformers.files.surrogates import check_text
from keras_transformers.models.anatomy import anatomy
from keras_transformers.tokenizers.packing import document_start
from keras_transformers.tokenizers.protocols import GeneratorTokenizer

__all__: list[str] = []


class Prompts:
    """Makes rows of tokens to continue, in the graph, and checks them and their options.

    Args:
        tokenizer: the pipeline's.
        longest: the maximum number of tokens in a text, with the start token.
    """

    def __init__(self, tokenizer: GeneratorTokenizer, longest: int) -> None:
        self._tokenizer = tokenizer
        self._longest = longest

    def tokens(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Returns the start token and the text's tokens, int32 (batch, None)."""
        return self.with_start(self._tokenizer.tokenize(text))

    def with_start(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the start token and these tokens of texts, int32 (batch, None)."""
        starts = tf.fill([tokens.nrows(), 1], document_start(self._tokenizer))
        return tf.concat([starts, tokens], axis=1)

    def to_continue(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the tokens that a model continues, at least one, int32 (batch, None).

        Args:
            tokens: what `tokens` returns.
        """
        if self._tokenizer.special_tokens(1)[0]:
            return tokens
        lengths = tokens.row_lengths()
        kept = tf.ragged.range(lengths) >= tf.cast(lengths > 1, tf.int64)[:, None]
        return tf.ragged.boolean_mask(tokens, kept)

    def rows(
        self, tokens: tf.RaggedTensor, what: str, stop: tf.Tensor, options: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Returns what `Decoder` takes, once the graph has checked it.

        Args:
            tokens: int32 (batch, None), at least one in each row.
            what: what a row is, for messages: "prompt" or "conversation".
            stop: strings (batch, stops).
            options: those of `ROW_OPTIONS`, each (batch,).
        """
        options = {
            name: tf.convert_to_tensor(options[name], dtype) for name, dtype in ROW_OPTIONS.items()
        }
        with tf.device("CPU:0"):  # string ops run only on the CPU
            rows = tf.cast(tokens.nrows(), tf.int32)
            rules = option_rules(options, self._tokenizer.vocabulary_size)
            checks = [
                tf.debugging.Assert(tf.reduce_all(holds), [f"{name} must be {rule}"])
                for name, (holds, rule) in rules.items()
            ]
            checks += [  # one shared value would give all rows the same random numbers
                tf.debugging.assert_equal(
                    tf.shape(value)[0], rows, f"{option} must have a value for each {what}"
                )
                for option, value in {**options, "stop": tf.convert_to_tensor(stop)}.items()
            ]
            # All signatures share one function, which is traced for these shapes.
            stop = tf.compat.v1.placeholder_with_default(stop, [None, None])
        return {**self.read(tokens, what, checks), "stop": stop, **options}

    def read(
        self, tokens: tf.RaggedTensor, what: str, checks: Sequence[Any] = ()
    ) -> dict[str, tf.Tensor]:
        """Returns rows of tokens padded, `token_ids` (batch, length), and `num_tokens` (batch,).

        Args:
            tokens: int32 (batch, None), at least one in each row.
            what: what a row is, for messages.
            checks: other assertions, to run before.
        """
        with tf.device("CPU:0"):  # string ops run only on the CPU
            num_tokens = tf.cast(tokens.row_lengths(), tf.int32)  # (batch,)
            checks = [*checks, self.length_check(num_tokens, what)]
            token_ids = self.padded(tokens, checks, width=1)
            token_ids = tf.compat.v1.placeholder_with_default(token_ids, [None, None])
        return {"token_ids": token_ids, "num_tokens": num_tokens}

    def padded(self, tokens: tf.RaggedTensor, checks: Sequence[Any], *, width: int) -> tf.Tensor:
        """Pads ragged tokens to (batch, length), at least `width` wide, once the checks pass.

        An empty batch has no longest row, but a model needs at least one token.
        """
        with tf.control_dependencies([check for check in checks if check is not None]):
            token_ids = tokens.to_tensor(self._tokenizer.pad_token_id)
        missing = tf.maximum(0, width - tf.shape(token_ids)[1])
        return tf.pad(token_ids, [[0, 0], [0, missing]])

    def length_check(self, num_tokens: tf.Tensor, name: str) -> Any:
        """Returns an assertion that texts are not longer than the model's positions."""
        return tf.debugging.assert_less_equal(
            num_tokens,
            self._longest,
            f"a {name} is longer than the {self._longest} positions of the model, start token "
            "included: pass only its last tokens",
        )


def checked_length(model: keras.Model, length: int | None) -> int:
    """Returns the maximum length, the model's by default; ValueError if it does not fit."""
    parts = anatomy(model)
    positions = parts.max_sequence_length
    length = parts.trained_length if length is None else length
    if length is None or not 1 <= length <= (positions or length):
        most = "" if positions is None else f", at most {positions}"
        raise ValueError(
            f"max_sequence_length={length} for model {model.name!r}: pass the maximum number "
            f"of tokens in a text, at least 1{most}"
        )
    return length


def checked_options(options: Mapping[str, Any], vocabulary_size: int) -> dict[str, Any]:
    """Returns all options of decoding; ValueError if one has the wrong type or range."""
    values = {name: _number(name, options[name], dtype) for name, dtype in ROW_OPTIONS.items()}
    tensors = {name: tf.constant(value, ROW_OPTIONS[name]) for name, value in values.items()}
    for name, (holds, rule) in option_rules(tensors, vocabulary_size).items():
        if not holds:
            raise ValueError(f"{name}={values[name]}: {name} must be {rule}")
    return {**values, "stop": _checked_stops(options["stop"])}


def in_rows(options: Mapping[str, Any], rows: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns options as signatures take them, the same for `rows` rows, int32 (1,)."""
    columns = {
        name: tf.fill(rows, tf.constant(options[name], dtype))
        for name, dtype in ROW_OPTIONS.items()
    }
    stops = tf.constant([options["stop"] or ("",)], tf.string)
    return {**columns, "stop": tf.tile(stops, tf.concat([rows, [1]], axis=0))}


def checked_end_token_ids(
    tokenizer: GeneratorTokenizer, token_ids: Sequence[int]
) -> tuple[int, ...]:
    """Returns the additional tokens that end texts; ValueError if one is not a token."""
    for token_id in token_ids:
        if type(token_id) is not int or not 0 <= token_id < tokenizer.vocabulary_size:
            raise ValueError(
                f"also_end_token_ids: {token_id!r} is not a token of a vocabulary of "
                f"{tokenizer.vocabulary_size}"
            )
    return tuple(sorted(set(token_ids) - {tokenizer.end_token_id}))


def _number(name: str, value: Any, dtype: tf.DType) -> int | float:
    """Returns the value of an option; ValueError if it is no number of this type."""
    kind, wanted = (int, "an integer") if dtype.is_integer else (float, "a number")
    is_number = isinstance(value, numbers.Integral if dtype.is_integer else numbers.Real)
    in_range = kind is float or (is_number and dtype.min <= value <= dtype.max)
    if not is_number or isinstance(value, bool) or not in_range:
        raise ValueError(f"{name}={value!r:.100}: {name} must be {wanted}")
    return kind(value)


def _checked_stops(stop: str | Sequence[str]) -> tuple[str, ...]:
    """Returns stop strings; ValueError if one is invalid."""
    stops = (stop,) if isinstance(stop, str) or not isinstance(stop, Iterable) else tuple(stop)
    if not all(isinstance(text, str) and text for text in stops):
        raise ValueError(f"stop={stop!r:.100}: pass a non-empty string or a sequence of them")
    for text in stops:
        check_text(f"stop={text!r:.60}", text)
    return stops
