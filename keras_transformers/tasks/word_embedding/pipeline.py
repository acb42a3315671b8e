"""Computes ELMo word vectors: a text in, its words out, each with a vector per layer."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.families.elmo.model import split
from keras_transformers.layers.char_cnn import CharacterCNN
from keras_transformers.models.anatomy import only
from keras_transformers.tasks.pipeline import Pipeline, Signature
from keras_transformers.tasks.texts import strings
from keras_transformers.tasks.token_inputs import in_chunks, text_batches
from keras_transformers.tokenizers.characters import CharacterTokenizer

__all__ = ["WordEmbedder"]

_LONG = ("a" + "é" * 60 + " and short", "x" * 48 + " " + "x" * 49)  # around the longest words
# Words per call of the convolutions, which take thousands of numbers for each character.
_CHUNK = 256


class WordEmbedder(Pipeline):
    """Turns words into vectors that depend on their context.

    The model reads the first `max_characters` - 2 bytes of a word, usually 48: longer words that
    share them get the same vectors, but `tokens` keeps all their characters. Texts may have any
    length, and no text affects the vectors of another.

    Signatures of the export, where `batch` may be 0, a text may be empty or any bytes, and `words`
    is the largest of `num_tokens`; beyond a row's own `num_tokens`, tokens are "" and vectors 0:

    - serving_default(text string (batch,)) -> tokens string (batch, words), vectors float32
      (batch, words, layers, dim), num_tokens int32 (batch,). Texts are split at white space:
      separate punctuation from words, as in training. Layer 0 is the word's own vector, twice; the
      LSTM layers follow, each with its forward and backward states side by side.
    - words(words string (batch, words)) -> vectors, num_tokens: for texts already split into words,
      rows padded with "" after the last word. A "" before that is a word without characters.

    Args:
        model: a model from `models.elmo`.

    Raises:
        ValueError: the model is not an ELMo encoder.

    Example:
        >>> import keras_transformers as kt
        >>> model = kt.families.elmo.elmo(
        ...     lstm_dim=8, projection_dim=4, num_highways=1, filters=[(1, 3), (2, 5)]
        ... )
        >>> answer = WordEmbedder(model)("The cat sat .")
        >>> answer.tokens, np.shape(answer.vectors)
        (['The', 'cat', 'sat', '.'], (4, 3, 8))
    """

    task = "word_embedding"
    text_names = ("text",)

    def __init__(self, model: keras.Model) -> None:
        # The first model turns characters into a vector per word; the second one adds the context.
        self._spelled, self._in_context = split(model)
        num_characters = only(model, CharacterCNN).num_characters
        if num_characters != CharacterTokenizer.num_characters:
            raise ValueError(
                f"model {model.name!r} embeds {num_characters} characters but the tokenizer has "
                f"{CharacterTokenizer.num_characters}: build it with num_characters=262"
            )
        self.model = model
        max_characters = model.input["character_ids"].shape[-1]
        self.tokenizer = CharacterTokenizer(max_characters=max_characters)

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Splits texts into words and computes their vectors, in the graph."""
        with tf.device("CPU:0"):  # string ops run only on the CPU
            words = self.tokenizer.words(texts["text"])
            tokens = words.to_tensor("")
        return {"tokens": tokens, **self._embedded(words)}

    def answer_words(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the vectors of words, strings (batch, words), in the graph."""
        with tf.device("CPU:0"):
            place = tf.range(1, tf.shape(words)[1] + 1)
            lengths = tf.reduce_max(tf.where(words == "", 0, place), axis=1)  # (batch,)
            # The maximum over an empty axis is the smallest int32.
            cut = tf.RaggedTensor.from_tensor(words, tf.maximum(lengths, 0))
        return self._embedded(cut)

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {
            "tokens": tf.TensorSpec([None, None], tf.string),
            "vectors": tf.TensorSpec([None, None, *self._vector_shape], tf.float32),
            "num_tokens": tf.TensorSpec([None], tf.int32),
        }

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `words`, for texts already split into words."""
        outputs = self.answer_specs()
        inputs = {"words": outputs.pop("tokens")}
        examples = [_as_words(batch["text"]) for batch in batches]
        return {"words": Signature(self.answer_words, inputs, outputs, examples)}

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns the examples, awkward texts, an empty batch, and words near maximum length."""
        return [*text_batches(examples, self.text_names, long=20), {"text": strings(_LONG)}]

    def config(self) -> dict[str, Any]:
        """Returns an empty dict: the model is enough to rebuild this pipeline."""
        return {}

    def metadata(self) -> dict[str, Any]:
        """Returns metadata that an export records with the model."""
        num_layers, width = self._vector_shape
        return {
            "num_layers": num_layers,
            "embedding_dim": width,
            "max_characters": self.tokenizer.max_characters,
            "lengths": {"num_tokens": ["tokens", "vectors"]},
        }

    @property
    def _vector_shape(self) -> tuple[int, int]:
        """The number of layers and the width of a vector."""
        num_layers, width = self.model.output["layer_outputs"].shape[2:]
        return num_layers, width

    def _embedded(self, words: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        """Returns the vectors and the number of words (batch, None)."""
        with tf.device("CPU:0"):
            # The characters of each distinct word once, after those of the two markers.
            spellings, index = tf.unique(words.values)
            markers = self.tokenizer(tf.constant([""]))["character_ids"][0]
            character_ids = tf.concat([markers, self.tokenizer.encode_words(spellings)], axis=0)
            begin, end = (tf.fill([words.nrows(), 1], marker) for marker in (0, 1))
            rows = tf.concat([begin, words.with_values(index + 2), end], axis=1).to_tensor(-1)
            missing = tf.maximum(0, 2 - tf.shape(rows)[1])  # an empty batch has no markers
            rows = tf.pad(rows, [[0, 0], [0, missing]], constant_values=-1)  # (batch, words + 2)
            num_tokens = tf.cast(words.row_lengths(), tf.int32)
        vectors = self._vectors(character_ids, rows)[:, 1:-1]  # (batch, words, layers, dim)
        is_real = tf.sequence_mask(num_tokens, tf.shape(vectors)[1])[:, :, None, None]
        return {"vectors": tf.where(is_real, vectors, 0.0), "num_tokens": num_tokens}

    def _vectors(self, character_ids: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Returns vectors (batch, words, layers, dim).

        Args:
            character_ids: (distinct words, characters).
            rows: (batch, words), indices into `character_ids`, -1 for padding.
        """
        width = self._spelled.output["words"].shape[-1]
        spec = {"words": tf.TensorSpec([None, width], tf.float32)}
        alone = in_chunks(self._spell, {"character_ids": character_ids}, spec, size=_CHUNK)
        inputs = [tf.gather(alone["words"], tf.maximum(rows, 0)), rows >= 0]
        return tf.cast(self._in_context(inputs, training=False)["layer_outputs"], tf.float32)

    def _spell(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = self._spelled({"character_ids": inputs["character_ids"][:, None]}, training=False)
        return {"words": tf.cast(outputs["words"][:, 0], tf.float32)}


def _as_words(column: np.ndarray) -> dict[str, np.ndarray]:
    """Splits texts into words, starting with an empty text, as examples for `words`."""
    rows = [[b"", *text.split()] for text in column]
    width = max(map(len, rows), default=0)
    cells = [row + [b""] * (width - len(row)) for row in rows]
    return {"words": np.array(cells, dtype=object).reshape(len(rows), width)}
