"""Defines the base class of pipelines whose model reads tokens, with `encode` and helpers."""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.files.errors import short_repr
from keras_transformers.files.surrogates import check_text
from keras_transformers.layers import ShiftRight
from keras_transformers.models.anatomy import anatomy
from keras_transformers.ranges import Default
from keras_transformers.tasks.pipeline import Pipeline, Signature
from keras_transformers.tasks.texts import string_column, strings
from keras_transformers.tokenizers.protocols import PackingTokenizer, Tokenizer

__all__ = ["TextPipeline"]

_logger = logging.getLogger(__name__)

TEXT_INPUTS = ("text", "text_b")  # the second for pairs only
TOKEN_INPUTS = ("token_ids", "segment_ids", "padding_mask")

_EXAMPLES = ("A sentence to try the model with.", "And another one, which is a little longer!")
_LEAST_PADDING, _MOST_PADDING = 8, 128  # rows of a matrix are padded to a multiple of 8 to 128
# Windows per call of the model. A server's memory must not grow with the longest text that a client
# sends: attention alone takes chunk * heads * length^2 numbers.
_CHUNK = 32


class TextPipeline(Pipeline):
    """A pipeline whose model reads the tokens of one text, or of a pair of texts.

    Args:
        model: functional, with inputs among token_ids, segment_ids int32 and padding_mask bool
            (batch, length), and outputs in a dict.
        tokenizer: turns texts into these inputs, such as a `tokenizers.WordPieceTokenizer`.
        outputs: the outputs that the task needs; the rest of the model is dropped.
        extra_inputs: inputs of the model that the pipeline provides itself.
        max_sequence_length: maximum tokens in a packed row; the tokenizer truncates longer rows.
            Defaults to the model's number of positions; required if it has none.
        pair: whether a row is a pair of texts.

    Raises:
        ValueError: model, tokenizer and length do not match.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        *,
        outputs: Sequence[str],
        extra_inputs: Sequence[str] = (),
        max_sequence_length: int | None = None,
        pair: bool = False,
    ) -> None:
        self.model = part(model, outputs, extra_inputs)
        self.tokenizer = tokenizer
        self.token_inputs = tuple(name for name in TOKEN_INPUTS if name in self.model.input)
        check_vocabulary(self.model, tokenizer)
        self.pair = pair
        self.max_sequence_length = checked_length(
            self.model, tokenizer, max_sequence_length, num_texts=1 + pair
        )
        self.text_names = TEXT_INPUTS if pair else TEXT_INPUTS[:1]
        self._check_inputs()

    def tokenize(self, *texts: tf.Tensor) -> list[tf.RaggedTensor]:
        """Tokenizes texts without special tokens: int32 (batch, None), one tensor per text."""
        with tf.device("CPU:0"):  # string ops run only on the CPU
            segments = [self.tokenizer.tokenize(text) for text in texts]
            for segment in segments[1:]:
                tf.debugging.assert_equal(
                    segment.nrows(),
                    segments[0].nrows(),
                    f"{' and '.join(self.text_names)} differ in number",
                )
            return segments

    def pack(self, segments: Sequence[tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """Truncates and pads the tokens of one or two texts and adds special tokens.

        Returns:
            The model's inputs (batch, length), as long as the longest row.
        """
        with tf.device("CPU:0"):
            packed = widened(
                self.tokenizer.pack(segments, max_sequence_length=self.max_sequence_length)
            )
            return {name: packed[name] for name in self.token_inputs}

    def encode(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Turns texts, strings (batch,), into the model's inputs (batch, length), in the graph."""
        return self.pack(self.tokenize(*texts))

    def read_tokens(self, **texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens that the model reads of each row, one part after the other.

        The parts are the windows of a long text, or a text with each of its choices.

        Args:
            **texts: the inputs of `answer`.

        Returns:
            int32 (batch, None), with special tokens.
        """
        return self.real_tokens(self.encode(*(texts[name] for name in self.text_names)))

    def real_tokens(self, tokens: Mapping[str, tf.Tensor]) -> tf.RaggedTensor:
        """Returns the tokens in the model's inputs (batch, ..., length): int32 (batch, None)."""
        token_ids = tokens["token_ids"]
        is_real = tokens.get("padding_mask", token_ids != self.tokenizer.pad_token_id)
        with tf.device("CPU:0"):  # ragged ops run only on the CPU
            shape = tf.shape(token_ids)
            flat = tf.stack([shape[0], tf.reduce_prod(shape[1:])])
            return tf.ragged.boolean_mask(tf.reshape(token_ids, flat), tf.reshape(is_real, flat))

    def encode_row(self, *texts: str | bytes | Sequence[str]) -> dict[str, tf.Tensor]:
        """Turns one row of texts into the model's inputs (1, length)."""
        return self.encode(*map(one_row, self.text_names, texts))

    def read(self, *texts: str | bytes | Sequence[str]) -> dict[str, list[str]]:
        """Runs the model once on one row of texts; see `Pipeline.read`."""
        encoded = self.encode_row(*texts)
        others = {
            name: tf.zeros([1] * len(tensor.shape), tensor.dtype)
            for name, tensor in self.model.input.items()
        }
        self.run_model(others | encoded)
        return names_read(self.model, self.tokenizer, encoded)

    def lengths(self, segments: Sequence[tf.RaggedTensor]) -> tf.Tensor:
        """Counts each row's tokens, special ones included, before truncation: int32 (batch,)."""
        num_tokens = sum(segment.row_lengths() for segment in segments)
        return tf.cast(num_tokens, tf.int32) + self.tokenizer.num_special_tokens(len(segments))

    def num_windows(self, segments: Sequence[tf.RaggedTensor]) -> tf.Tensor:
        """Counts the windows in which each row of tokens is read: int32 (batch,)."""
        return tf.ones([tf.cast(segments[0].nrows(), tf.int32)], tf.int32)

    @property
    def reads_windows(self) -> bool:
        """Whether the model's inputs are windows of long texts, (batch, windows, length)."""
        return False

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes outputs from strings, in the graph."""
        return self.decode(self.encode(*(texts[name] for name in self.text_names)))

    def decode(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes outputs from the model's inputs, in the graph."""
        raise NotImplementedError

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `tokens`, from the model's inputs to the same outputs."""
        return {"tokens": self.tokens_signature(self.answer_tokens, self.answer_specs(), batches)}

    def tokens_signature(
        self,
        function: Callable[..., Mapping[str, tf.Tensor]],
        outputs: Mapping[str, tf.TensorSpec],
        batches: Sequence[Mapping[str, np.ndarray]],
    ) -> Signature:
        """Returns a signature that takes the model's inputs."""
        dtypes = {"token_ids": tf.int32, "segment_ids": tf.int32, "padding_mask": tf.bool}
        ranks = {name: len(self.model.input[name].shape) for name in self.token_inputs}
        specs = {name: tf.TensorSpec([None] * ranks[name], dtypes[name]) for name in ranks}
        return Signature(function, specs, outputs, [self._encoded(batch) for batch in batches])

    def answer_tokens(self, **tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        """Checks the model's inputs and computes outputs from them."""
        return self.decode(checked_tokens(self.model, tokens))

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns the examples, awkward texts (one too long) and an empty batch."""
        return text_batches(examples, self.text_names, long=self.max_sequence_length)

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {"max_sequence_length": self.max_sequence_length, "pair": self.pair}

    def metadata(self) -> dict[str, Any]:
        """Returns what an export records besides the model and the vocabulary."""
        return self.config()

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """The tokenizers, keyed by the names of their arguments; read only."""
        return MappingProxyType({"tokenizer": self.tokenizer})

    def _check_inputs(self) -> None:
        empty = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int32), [0, 0])  # one row
        packed = self.tokenizer.pack(
            [empty] * (1 + self.pair), max_sequence_length=self.max_sequence_length
        )
        missing = [name for name in self.token_inputs if name not in packed]
        if missing:
            raise ValueError(
                f"model {self.model.name!r} takes {', '.join(missing)}, which "
                f"{type(self.tokenizer).__name__} does not make: use the tokenizer that the model "
                "was trained with"
            )

    def _encoded(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        texts = [tf.constant(batch[name], tf.string) for name in self.text_names]
        return {name: tensor.numpy() for name, tensor in self.encode(*texts).items()}


def part(
    model: keras.Model, outputs: Sequence[str], extra_inputs: Sequence[str] = ()
) -> keras.Model:
    """Returns the part of a model that computes `outputs`, without its other layers.

    Raises:
        ValueError: the model lacks an input or output, or needs an input that no pipeline provides.
    """
    inputs, returned = _ends(model)
    names = {*TOKEN_INPUTS, *extra_inputs}
    if not {"token_ids", *extra_inputs} <= set(inputs) or not set(outputs) <= set(returned):
        raise ValueError(
            f"model {model.name!r} must take {', '.join(('token_ids', *extra_inputs))} and return "
            f"{', '.join(outputs)}, in dicts: put a head of keras_transformers.heads on an encoder"
        )
    if set(outputs) == set(returned) and set(inputs) <= names:
        return model
    wanted = {name: inputs[name] for name in inputs if name in names}
    return keras.Model(wanted, {name: returned[name] for name in outputs}, name=model.name)


def check_vocabulary(model: keras.Model, tokenizer: Tokenizer) -> None:
    """Raises ValueError unless the model embeds the tokenizer's tokens; see `check_rows`."""
    embedding = anatomy(model, "token_embedding").token_embedding
    check_rows(model, embedding.input_dim, tokenizer, "the tokenizer")


def check_rows(model: keras.Model, num_rows: int, tokenizer: Tokenizer, what: str) -> None:
    """Raises ValueError unless each of the tokenizer's tokens has a row in the model's matrix.

    More rows are common: matrices are padded to a multiple of 8, 64 or 128. These rows have no
    tokens, and pipelines never predict them. A warning names surplus rows that are not such
    padding, because the vocabulary may lack tokens.

    Args:
        model: the model, for the message.
        num_rows: the number of rows in the model's matrix.
        tokenizer: the tokenizer; one with `fills_model` needs exactly as many rows as it has
            tokens.
        what: the tokenizer's name in the message.
    """
    size = tokenizer.vocabulary_size
    if size > num_rows or (size < num_rows and getattr(tokenizer, "fills_model", False)):
        raise ValueError(
            f"{what} has {size} tokens but model {model.name!r} embeds {num_rows}: use the "
            "vocabulary that the model was trained with"
        )
    if num_rows - size >= _MOST_PADDING or (num_rows > size and num_rows % _LEAST_PADDING):
        _logger.warning(
            "%s has %d tokens but model %r embeds %d: the last %d rows have no token and are never "
            "predicted; is this the vocabulary that the model was trained with?",
            what, size, model.name, num_rows, num_rows - size,
        )  # fmt: skip


def checked_length(
    model: keras.Model, tokenizer: PackingTokenizer, length: int | None, *, num_texts: int
) -> int:
    """Returns the length to pack to, the model's by default; ValueError if it does not fit.

    A `ranges.Default` above the model's positions is lowered to them.
    """
    parts = anatomy(model)
    positions = parts.max_sequence_length
    length = parts.trained_length if length is None else length
    if isinstance(length, Default):
        length = length.at_most(positions)
    if positions is None:
        if length is None or length < 1:
            raise ValueError(
                f"max_sequence_length={length}: model {model.name!r} takes any number of tokens: "
                "pass the maximum for a text, at least 1"
            )
        return int(length)
    shortest = tokenizer.num_special_tokens(num_texts) + num_texts
    if length is None or not shortest <= length <= positions:
        raise ValueError(
            f"max_sequence_length={length}: expected at least {shortest}, to hold one token of "
            f"each text, and at most {positions}, the positions of model {model.name!r}"
        )
    return int(length)


def checked_labels(labels: Sequence[str], model: keras.Model) -> tuple[str, ...]:
    """Returns the labels as a tuple; ValueError if they do not fit the model's logits."""
    wrong = [label for label in labels if not isinstance(label, str) or not label]
    if isinstance(labels, str) or wrong:
        raise ValueError(f"labels must be non-empty strings, not {wrong or labels!r}")
    for label in labels:
        check_text(f"labels: {label!r:.60}", label)
    num_classes = model.output["logits"].shape[-1]
    if len(labels) != num_classes:
        raise ValueError(
            f"{len(labels)} labels {list(labels)} for the {num_classes} classes of model "
            f"{model.name!r}: pass one label per class, in the order of the logits"
        )
    repeated = sorted({label for label in labels if list(labels).count(label) > 1})
    if repeated:
        raise ValueError(f"labels {repeated} occur more than once: each class needs its own label")
    return tuple(labels)


def check_offset_unit(offset_unit: str) -> None:
    """Raises ValueError for an unknown unit of offsets."""
    if offset_unit not in ("character", "byte"):
        raise ValueError(f"offset_unit={offset_unit!r}: use 'character' or 'byte'")


def text_batches(
    examples: Sequence[Any] | None, names: Sequence[str], *, long: int
) -> list[dict[str, np.ndarray]]:
    """Returns batches for checking an export: the examples, awkward texts and an empty batch.

    Args:
        examples: one string per row, or a tuple with one per name; None for the defaults.
        names: the names of the inputs.
        long: number of words in the longest awkward text.

    Returns:
        Three batches, each name -> strings (batch,).

    Raises:
        ValueError: an example is not a string, or not a tuple of strings.
    """
    several = len(names) > 1
    if examples is None:
        examples = [(text,) * len(names) for text in _EXAMPLES] if several else _EXAMPLES
    rows = [tuple(row) if several and isinstance(row, tuple | list) else (row,) for row in examples]
    for row in rows:
        if len(row) != len(names) or not all(isinstance(text, str) for text in row):
            wanted = f"tuples of strings ({', '.join(names)})" if several else "strings"
            wrong = short_repr(row if several else row[0])
            raise ValueError(f"examples must be {wanted}, not {wrong}")
    awkward = ["", b"\xff\xfe is no UTF-8 \x00", "long " * long]
    turned = [awkward[::-1] if i else awkward for i in range(len(names))]
    columns = [[row[i] for row in rows] for i in range(len(names))]
    batches: list[list[list[Any]]] = [columns, turned, [[]] * len(names)]
    return [
        {name: strings(column) for name, column in zip(names, batch, strict=True)}
        for batch in batches
    ]


def one_row(name: str, text: object) -> tf.Tensor:
    """Returns a text as a batch of one row, strings (1,); ValueError if it is not a string."""
    return tf.constant(string_column(name, [text]))


def joined(parts: tf.RaggedTensor, rows: tf.Tensor, batch: tf.Tensor) -> tf.RaggedTensor:
    """Joins parts of rows, such as their windows.

    Args:
        parts: int32 (parts, None).
        rows: the row of each part, in ascending order, (parts,).
        batch: number of rows; some may have no part.

    Returns:
        int32 (batch, None).
    """
    of_rows = tf.RaggedTensor.from_value_rowids(
        parts, tf.cast(rows, tf.int64), tf.cast(batch, tf.int64)
    )
    return of_rows.merge_dims(1, 2)


def widened(tokens: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Pads packed tokens (batch, length) to at least two columns.

    An empty batch has no longest row to set its width. It becomes (0, 2): encoders read the first
    position, and in eager mode Keras would mistake (0, 1, hidden) for a bias.
    """
    missing = tf.maximum(0, 2 - tf.shape(tokens["token_ids"])[1])
    return {name: tf.pad(value, [[0, 0], [0, missing]]) for name, value in tokens.items()}


def checked_tokens(model: keras.Model, tokens: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the tokens after assertions, run with the graph, that they fit the model.

    Without the assertions, a GPU would silently embed an id beyond the vocabulary as zeros.
    """
    parts = anatomy(model, "token_embedding")
    num_embedded, positions = parts.token_embedding.input_dim, parts.max_sequence_length
    with tf.device("CPU:0"):  # the messages are strings
        shape = tf.shape(tokens["token_ids"])  # (batch, ..., length)
        checks = [
            tf.debugging.assert_equal(
                tf.shape(value), shape, f"{name} and token_ids differ in shape"
            )
            for name, value in tokens.items()
        ]
        checks += [
            tf.debugging.assert_positive(shape[-1], "token_ids have length 0"),
            tf.debugging.assert_non_negative(tokens["token_ids"], "token_ids below 0"),
            tf.debugging.assert_less(
                tokens["token_ids"], num_embedded, f"token_ids beyond the {num_embedded} tokens"
            ),
        ]
        if positions is not None:
            text = f"token_ids are longer than the {positions} positions"
            checks.append(tf.debugging.assert_less_equal(shape[-1], positions, text))
        with tf.control_dependencies([check for check in checks if check is not None]):
            return {name: tf.identity(value) for name, value in tokens.items()}


def in_chunks(
    function: Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]],
    rows: Mapping[str, tf.Tensor],
    outputs: Mapping[str, tf.TensorSpec],
    *,
    size: int | tf.Tensor = _CHUNK,
) -> dict[str, tf.Tensor]:
    """Calls a function on chunks of the rows and concatenates its outputs.

    Args:
        function: takes a chunk of `rows` and returns `outputs` with as many rows.
        rows: name -> tensor (rows, ...). With no rows, the function runs once on an empty chunk.
        outputs: name -> tf.TensorSpec (None, ...) of what `function` returns.
        size: rows per chunk.

    Returns:
        The outputs of all rows.
    """
    num_rows = tf.shape(next(iter(rows.values())))[0]
    num_chunks = tf.maximum(1, -(-num_rows // size))  # rounded up

    def body(index: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
        start = index * size
        chunk = function({name: value[start : start + size] for name, value in rows.items()})
        written = (
            array.write(index, chunk[name]) for name, array in zip(outputs, arrays, strict=True)
        )
        return index + 1, *written

    arrays = [
        tf.TensorArray(spec.dtype, num_chunks, infer_shape=False, element_shape=spec.shape)
        for spec in outputs.values()
    ]
    _, *filled = tf.while_loop(
        lambda index, *_: index < num_chunks, body, (0, *arrays), parallel_iterations=1
    )
    return {name: array.concat() for name, array in zip(outputs, filled, strict=True)}


def _ends(model: keras.Model) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns inputs and outputs by name; empty if the model has no dicts of them."""
    inputs: Any = getattr(model, "input", None)  # a subclassed model has none
    outputs: Any = getattr(model, "output", None)
    has_names = isinstance(inputs, dict) and isinstance(outputs, dict)
    return (inputs, outputs) if has_names else ({}, {})


def zero_at_padding(outputs: tf.Tensor, tokens: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Sets outputs (batch, length, ...) to 0 at padding, where exports compute nothing.

    Args:
        outputs: float.
        tokens: the model's inputs; without `padding_mask`, nothing is padding.
    """
    if "padding_mask" not in tokens:
        return outputs
    mask = tokens["padding_mask"]
    shape = tf.concat([tf.shape(mask), tf.ones(outputs.shape.rank - 2, tf.int32)], axis=0)
    return tf.where(tf.reshape(mask, shape), outputs, 0.0)


def token_names(tokenizer: Tokenizer, token_ids: tf.Tensor) -> list[str]:
    """Returns the tokens of one row of ids (1, length), spelled as in the vocabulary."""
    vocabulary = list(tokenizer.vocabulary)
    return [vocabulary[token_id] for token_id in token_ids[0].numpy()]


def names_read(
    model: keras.Model, tokenizer: Tokenizer, tokens: Mapping[str, tf.Tensor]
) -> dict[str, list[str]]:
    """Returns the tokens at the positions of a model's attention; see `Pipeline.read`.

    Args:
        model: the model, which reads one text.
        tokenizer: its tokenizer.
        tokens: the model's inputs, of one row.
    """
    text = token_names(tokenizer, tokens["token_ids"])
    shifts = [layer for layer in model.layers if isinstance(layer, ShiftRight)]
    moved = [layer(tokens["token_ids"], tokens["padding_mask"]) for layer in shifts]
    target = token_names(tokenizer, moved[0]) if moved else text
    return {"source": text, "target": target, "predicted": text}
