"""What the exports of encoders that read tokens of texts have in common."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.export.metadata import of_model, of_vocabulary

TEXT_INPUTS = ("text", "text_b")  # the second for pairs only
TOKEN_INPUTS = ("token_ids", "segment_ids", "padding_mask")
ONE_TEXT_INPUTS = ("token_ids", "padding_mask")  # of models that tell no segments apart

_EXAMPLES = ("A sentence to try the model with.", "And another one, which is a little longer!")


def check_model(
    model: keras.Model, tokenizer: Any, output: str, *, inputs: Sequence[str] = TOKEN_INPUTS
) -> None:
    """Raises ValueError unless the model takes tokens of this tokenizer and returns `output`."""
    found, returned = _ends(model)
    if set(found) != set(inputs) or output not in returned:
        raise _unfit(model, inputs, output)
    num_embedded = layer(model, "token_embedding").input_dim
    if num_embedded != tokenizer.vocabulary_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocabulary_size} tokens and model {model.name!r} "
            f"embeds {num_embedded}: use the vocabulary that the model was trained with"
        )


def token_inputs(model: keras.Model) -> tuple[str, ...]:
    """The tokens that a model takes, with segments or without them."""
    found, _ = _ends(model)
    return ONE_TEXT_INPUTS if set(found) == set(ONE_TEXT_INPUTS) else TOKEN_INPUTS


def part(
    model: keras.Model, tokenizer: Any, output: str, *, inputs: Sequence[str] = TOKEN_INPUTS
) -> keras.Model:
    """What of a model leads from `inputs` to `output`: its layers, and no others are exported.

    Raises:
        ValueError: the model lacks one of these, or takes no tokens of this tokenizer.
    """
    found, returned = _ends(model)
    if not set(inputs) <= set(found) or output not in returned:
        raise _unfit(model, inputs, output)
    outcome = keras.Model(
        {name: found[name] for name in inputs}, {output: returned[output]}, name=model.name
    )
    check_model(outcome, tokenizer, output, inputs=inputs)
    return outcome


def checked_length(model: keras.Model, length: int | None, *, pair: bool) -> int:
    """The length to pack to, by default the model's; ValueError when it does not fit."""
    positions = _positions(model)
    if positions is None:
        if length is None or length < 1:
            raise ValueError(
                f"max_sequence_length={length}: model {model.name!r} takes any number of tokens: "
                "say how many of a text shall count, at least 1"
            )
        return length
    shortest = 5 if pair else 3  # [CLS] a [SEP], with a pair [CLS] a [SEP] b [SEP]
    length = positions if length is None else length
    if not shortest <= length <= positions:
        raise ValueError(
            f"max_sequence_length={length}: give at least {shortest}, to hold one token of each "
            f"text, and at most {positions}, the positions of model {model.name!r}"
        )
    return length


def checked_labels(labels: Sequence[str], model: keras.Model) -> list[str]:
    """The names of the classes behind `logits`; ValueError where they do not fit."""
    wrong = [label for label in labels if not isinstance(label, str) or not label]
    if isinstance(labels, str) or wrong:
        raise ValueError(f"labels must be strings that are not empty, not {wrong or labels!r}")
    num_classes = model.output["logits"].shape[-1]
    if len(labels) != num_classes:
        raise ValueError(
            f"{len(labels)} labels {list(labels)} for the {num_classes} classes of model "
            f"{model.name!r}: give one label a class, in the order of the logits"
        )
    repeated = sorted({label for label in labels if list(labels).count(label) > 1})
    if repeated:
        raise ValueError(f"labels {repeated} occur more than once: a label names one class")
    return list(labels)


def check_offset_unit(offset_unit: str) -> None:
    """Raises ValueError unless offsets into texts can be counted in it."""
    if offset_unit not in ("character", "byte"):
        raise ValueError(f"offset_unit={offset_unit!r}: take 'character' or 'byte'")


def layer(model: keras.Model, name: str) -> Any:
    """The layer of that name; ValueError without it."""
    for candidate in model.layers:
        if candidate.name == name:
            return candidate
    raise ValueError(
        f"model {model.name!r} has no layer {name!r}: its encoder must be one of "
        "keras_transformers.models"
    )


def example_batches(
    examples: Sequence[str] | Sequence[tuple[str, str]] | None, length: int, *, pair: bool
) -> list[dict[str, np.ndarray]]:
    """What an export is checked on: the examples, awkward texts, and an empty batch.

    Args:
        examples: texts, or with `pair` pairs of texts; two plain sentences by default.
        length: of the packed tokens, which one of the awkward texts is beyond.
        pair: texts come in pairs.

    Returns:
        Three batches, each {"text": strings (batch,)}, with `pair` also "text_b".

    Raises:
        ValueError: an example is no string, or no pair of strings.
    """
    if examples is None:
        examples = [(text, text) for text in _EXAMPLES] if pair else _EXAMPLES
    rows = [tuple(row) if pair and isinstance(row, tuple | list) else (row,) for row in examples]
    for row in rows:
        if len(row) != 1 + pair or not all(isinstance(text, str) for text in row):
            wanted = "pairs of strings (text, text_b)" if pair else "strings"
            raise ValueError(f"examples must be {wanted}, not {row if pair else row[0]!r}")
    names = TEXT_INPUTS if pair else TEXT_INPUTS[:1]
    awkward = ["", b"\xff\xfe is no UTF-8 \x00", "long " * length]
    given = [[row[i] for row in rows] for i in range(len(names))]
    batches: list[list[Any]] = [given, [awkward, awkward[::-1]], [[], []]]
    return [
        {name: _strings(column) for name, column in zip(names, columns, strict=False)}
        for columns in batches
    ]


def tokenize(tokenizer: Any, texts: Mapping[str, Any], length: int) -> dict[str, Any]:
    """Texts to tokens (batch, length), in the graph of an export."""
    with tf.device("CPU:0"):  # where alone strings can be
        columns = [texts[name] for name in TEXT_INPUTS if name in texts]
        return widened(tokenizer(*columns, max_sequence_length=length))


def widened(tokens: Mapping[str, Any]) -> dict[str, Any]:
    """Packed tokens (batch, length), those of an empty batch as wide as those of an empty text.

    An empty batch has no longest row to be as wide as. It becomes (0, 2): encoders look at the
    first position, and Keras, eagerly, takes (0, 1, hidden) for a bias.
    """
    missing = tf.maximum(0, 2 - tf.shape(tokens["token_ids"])[1])
    return {name: tf.pad(value, [[0, 0], [0, missing]]) for name, value in tokens.items()}


def tokenized(
    tokenizer: Any, texts: Mapping[str, np.ndarray], length: int
) -> dict[str, np.ndarray]:
    """A batch of texts as tokens, for the examples of a signature that takes tokens."""
    tensors = {name: tf.constant(column, tf.string) for name, column in texts.items()}
    return {name: t.numpy() for name, t in tokenize(tokenizer, tensors, length).items()}


def serialized(texts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A batch of texts as tf.Example records, as TF Serving's Classify and Regress pass them."""
    records = []
    for row in zip(*texts.values(), strict=True):
        record = tf.train.Example()
        for name, text in zip(texts, row, strict=True):
            record.features.feature[name].bytes_list.value.append(text)
        records.append(record.SerializeToString())
    return {"inputs": _strings(records)}


def checked_tokens(model: keras.Model, tokens: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens behind assertions that they fit the model; they fail when the graph runs.

    Without them a GPU would take an id beyond the vocabulary for a vector of zeros and say nothing.
    """
    num_embedded = layer(model, "token_embedding").input_dim
    positions = _positions(model)
    with tf.device("CPU:0"):  # their messages are strings
        shape = tf.shape(tokens["token_ids"])  # (batch, length)
        checks = [
            tf.debugging.assert_equal(
                tf.shape(value), shape, f"{name} and token_ids differ in shape"
            )
            for name, value in tokens.items()
        ]
        checks += [
            tf.debugging.assert_positive(shape[1], "token_ids have length 0"),
            tf.debugging.assert_non_negative(tokens["token_ids"], "token_ids below 0"),
            tf.debugging.assert_less(
                tokens["token_ids"], num_embedded, f"token_ids beyond the {num_embedded} tokens"
            ),
        ]
        if positions is not None:
            text = f"token_ids are longer than the {positions} positions"
            checks.append(tf.debugging.assert_less_equal(shape[1], positions, text))
        with tf.control_dependencies([check for check in checks if check is not None]):
            return {name: tf.identity(value) for name, value in tokens.items()}


def token_specs(inputs: Sequence[str] = TOKEN_INPUTS) -> dict[str, Any]:
    """Dtype and shape of the tokens: (batch, length)."""
    dtypes = {"token_ids": tf.int32, "segment_ids": tf.int32, "padding_mask": tf.bool}
    return {name: tf.TensorSpec([None, None], dtypes[name]) for name in inputs}


def tolerance(model: keras.Model) -> float:
    """1e-5 in float32; a bfloat16 or float16 graph rounds elsewhere than eager execution does."""
    return 1e-5 if {candidate.compute_dtype for candidate in model.layers} == {"float32"} else 2e-2


def metadata(model: keras.Model, tokenizer: Any, length: int) -> dict[str, Any]:
    """What every export of such a model tells of itself."""
    return of_model(model) | {"max_sequence_length": length} | of_vocabulary(tokenizer)


def _positions(model: keras.Model) -> int | None:
    """How many tokens there are places for; None for a bag, where places do not matter."""
    if token_inputs(model) == ONE_TEXT_INPUTS and all(
        candidate.name != "position_embedding" for candidate in model.layers
    ):
        return None
    return layer(model, "position_embedding").max_sequence_length


def _ends(model: keras.Model) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and outputs by name; none where the model is not functional or has no names."""
    inputs: Any = getattr(model, "input", None)  # a subclassed model has none
    outputs: Any = getattr(model, "output", None)
    named = isinstance(inputs, dict) and isinstance(outputs, dict)
    return (inputs, outputs) if named else ({}, {})


def _unfit(model: keras.Model, inputs: Sequence[str], output: str) -> ValueError:
    return ValueError(
        f"model {model.name!r} must take {', '.join(inputs)} and return {output}, in "
        "dicts: put a head of keras_transformers.models.heads on an encoder"
    )


def _strings(texts: Sequence[str | bytes]) -> np.ndarray:
    return np.array([t.encode() if isinstance(t, str) else t for t in texts], dtype=object)
