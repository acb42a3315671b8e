"""Export of ELMo: a text in, its words out, each with a vector of every layer."""

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.pipelines import token_inputs as texts
from keras_transformers.pipelines.bounded_memory import in_chunks
from keras_transformers.saved_model.metadata import of_model
from keras_transformers.saved_model.writing import Signature, write
from keras_transformers.tokenizers.characters import CharacterTokenizer

_LONG = ("a" + "é" * 60 + " and short", "x" * 48 + " " + "x" * 49)  # around what a word may have
# Of spelled words that go through the convolutions at once: these take thousands of numbers for
# every character of a word.
_CHUNK = 256


def word_embedder(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    examples: Sequence[str] | None = None,
    scores: Mapping[str, float] | None = None,
    check: bool = True,
) -> Path:
    """Exports ELMo as a SavedModel for TF Serving that takes strings.

    Its signatures, where `batch` may be 0, a text may be empty or any bytes, and `words` is the
    largest of `num_tokens`; beyond a row's own, tokens are "" and vectors 0:

    - serving_default(text string (batch,)) -> tokens string (batch, words), vectors float32
      (batch, words, layers, dim), num_tokens int32 (batch,). Tokens are what stands between white
      space: give punctuation apart from words, as the training had it. Layer 0 is the word alone,
      twice; then come the LSTMs, forward and backward side by side.
    - words(words string (batch, words)) -> vectors, num_tokens: for words that are cut already,
      rows filled up with "" behind their last word. "" before it is a word without characters.

    A word is spelled by its first `max_characters` - 2 bytes, 48 as a rule: what is longer and
    begins alike has the same vectors. `tokens` returns it whole. Each text is read from its first
    word to its last, however long it is, and by itself.

    Args:
        model: from `models.elmo.elmo`.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next one.
        examples: texts to check the export with; they are stored in it with their vectors, so give
            none that are secret. Two plain sentences by default.
        scores: what the model reached, stored in the export: figure -> value, the data in the
            figure's name, such as {"accuracy on SST-2 dev": 0.91}.
        check: reload the export in a fresh process and compare before it is published.

    Returns:
        The version folder, BASE/<number>.

    Raises:
        FileExistsError: the version exists.
        ValueError: the model is no ELMo encoder, or an example is no string.
        RuntimeError: the written export does not repeat the model's outputs.
    """
    graph = _graph(model)
    batches = texts.example_batches(examples, 20, pair=False)
    batches.append({"text": np.array([text.encode() for text in _LONG], dtype=object)})
    num_layers, width = model.output["layer_outputs"].shape[2:]
    vectors = {
        "vectors": tf.TensorSpec([None, None, num_layers, width], tf.float32),
        "num_tokens": tf.TensorSpec([None], tf.int32),
    }
    tokens = {"tokens": tf.TensorSpec([None, None], tf.string)}
    return write(
        path,
        {
            "serving_default": Signature(
                graph.from_text,
                {"text": tf.TensorSpec([None], tf.string)},
                tokens | vectors,
                batches,
            ),
            "words": Signature(
                graph.from_words,
                {"words": tokens["tokens"]},
                vectors,
                [_as_words(batch["text"]) for batch in batches],
            ),
        },
        variables=model.weights,
        trackables=[graph.tokenizer],
        metadata={
            "task": "word_embedding",
            **of_model(model),
            "num_layers": num_layers,
            "embedding_dim": width,
            "max_characters": graph.tokenizer.max_characters,
            "lengths": {"num_tokens": ["tokens", "vectors"]},
        },
        tolerance=texts.tolerance(model),
        scores=scores,
        check=check,
    )


@dataclass(frozen=True)
class _Graph:
    """The functions behind the signatures. Strings stay on the CPU, where alone they can be.

    Attributes:
        tokenizer: spells words.
        spelled: the model's part from characters to a vector for each word alone.
        in_context: its part from these vectors and the padding mask to `layer_outputs`.
    """

    tokenizer: CharacterTokenizer
    spelled: keras.Model
    in_context: keras.Model

    def from_text(self, text: Any) -> dict[str, Any]:
        with tf.device("CPU:0"):
            words = self.tokenizer.words(text)
            tokens = words.to_tensor("")
        return {"tokens": tokens, **self._answer(words)}

    def from_words(self, words: Any) -> dict[str, Any]:
        with tf.device("CPU:0"):
            place = tf.range(1, tf.shape(words)[1] + 1)
            lengths = tf.reduce_max(tf.where(words == "", 0, place), axis=1)  # (batch,)
            # Of no places TensorFlow takes the least number for the largest.
            cut = tf.RaggedTensor.from_tensor(words, tf.maximum(lengths, 0))
        return self._answer(cut)

    def _answer(self, words: tf.RaggedTensor) -> dict[str, Any]:
        """Words (batch, None) to their vectors, and how many they are."""
        with tf.device("CPU:0"):
            # Each different word is spelled once. The two markers stand before all.
            spellings, index = tf.unique(words.values)
            markers = self.tokenizer(tf.constant([""]))["character_ids"][0]
            character_ids = tf.concat([markers, self.tokenizer.encode_words(spellings)], axis=0)
            begin, end = (tf.fill([words.nrows(), 1], marker) for marker in (0, 1))
            rows = tf.concat([begin, words.with_values(index + 2), end], axis=1).to_tensor(-1)
            missing = tf.maximum(0, 2 - tf.shape(rows)[1])  # a batch of no texts has no markers
            rows = tf.pad(rows, [[0, 0], [0, missing]], constant_values=-1)  # (batch, words + 2)
            num_tokens = tf.cast(words.row_lengths(), tf.int32)
        vectors = self._vectors(character_ids, rows)[:, 1:-1]  # (batch, words, layers, dim)
        is_real = tf.sequence_mask(num_tokens, tf.shape(vectors)[1])[:, :, None, None]
        return {"vectors": tf.where(is_real, vectors, 0.0), "num_tokens": num_tokens}

    def _vectors(self, character_ids: Any, rows: Any) -> Any:
        """Of words by their row in `character_ids`, -1 at padding: (batch, words, layers, dim)."""
        spec = {"words": tf.TensorSpec([None, self.spelled.output["words"].shape[-1]], tf.float32)}
        alone = in_chunks(self._spell, {"character_ids": character_ids}, spec, size=_CHUNK)
        inputs = [tf.gather(alone["words"], tf.maximum(rows, 0)), rows >= 0]
        return tf.cast(self.in_context(inputs, training=False)["layer_outputs"], tf.float32)

    def _spell(self, inputs: dict[str, Any]) -> dict[str, Any]:
        found = self.spelled({"character_ids": inputs["character_ids"][:, None]}, training=False)
        return {"words": tf.cast(found["words"][:, 0], tf.float32)}


def _graph(model: keras.Model) -> _Graph:
    """The model in its two parts, with its tokenizer; ValueError where it is no ELMo encoder."""
    inputs: Any = getattr(model, "input", None)
    outputs: Any = getattr(model, "output", None)
    named = isinstance(inputs, dict) and isinstance(outputs, dict)
    if not (named and set(inputs) == {"character_ids"} and "layer_outputs" in outputs):
        raise ValueError(
            f"model {model.name!r} must take character_ids and return layer_outputs, in dicts: "
            "give the encoder of keras_transformers.models.elmo, without a task's layers"
        )
    find = functools.partial(texts.layer, model)
    num_characters = find("character_cnn").num_characters
    if num_characters != CharacterTokenizer.num_characters:
        raise ValueError(
            f"model {model.name!r} embeds {num_characters} characters and the tokenizer has "
            f"{CharacterTokenizer.num_characters}: build it with num_characters=262"
        )
    words = find("layer_0").input[0]  # (batch, words, projection_dim)
    context = [words, find("padding_mask").output]
    return _Graph(
        CharacterTokenizer(max_characters=inputs["character_ids"].shape[-1]),
        keras.Model(inputs, {"words": words}),
        keras.Model(context, {"layer_outputs": outputs["layer_outputs"]}),
    )


def _as_words(column: np.ndarray) -> dict[str, np.ndarray]:
    """Texts cut at white space, each with an empty word before it, as examples of words."""
    rows = [[b"", *text.split()] for text in column]
    width = max(map(len, rows), default=0)
    cells = [row + [b""] * (width - len(row)) for row in rows]
    return {"words": np.array(cells, dtype=object).reshape(len(rows), width)}
