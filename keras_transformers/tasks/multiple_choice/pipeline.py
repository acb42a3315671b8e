"""Answers multiple choice: a text and several choices in, the one that fits best out."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.tasks.confidence import Confidence
from keras_transformers.tasks.pipeline import Signature
from keras_transformers.tasks.text_lists import ListPipeline, likeliest, picked
from keras_transformers.tasks.token_inputs import one_row, token_names
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__ = ["MultipleChoice"]


class MultipleChoice(ListPipeline):
    """Finds the choice that fits a text best: an ending, an answer, a cause or an effect.

    The model reads each choice as a pair with the text and scores it; the softmax of the scores
    gives the probabilities (Devlin et al. 2018, section 4.4; Zellers et al. 2018, SWAG). Rows may
    have any number of choices. "" is not a choice: it pads rows with fewer choices than others, and
    its probability is 0.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,), choices string (batch, choices)) -> choice string,
      choice_index, num_choices int32 (batch,), probabilities float32 (batch, choices). A row
      without choices has choice "" and choice_index -1. `num_choices` counts up to the last
      choice that is not "".
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, choices, length)) -> the same
      but without `choice`. A row without real tokens is not a choice. It takes only the inputs that
      the model has, and rejects ids beyond the vocabulary and lengths beyond the model's positions.

    Args:
        model: functional, from token_ids, padding_mask and possibly segment_ids (batch, choices,
            length) to logits (batch, choices); see `heads.multiple_choice`.
        tokenizer: turns texts into the model's inputs, such as a `tokenizers.WordPieceTokenizer`.
        max_sequence_length: maximum tokens in a packed pair of text and choice; the tokenizer
            truncates longer ones. Defaults to the model's number of positions; required if it has
            none.
        temperature: divides the scores; above 1, probabilities are less sure. `fit` finds it with
            `calibrate=True`.
        abstain_below: adds the output `abstained` bool (batch,): whether the choice's probability
            is below this.

    Raises:
        ValueError: model, tokenizer and length do not match, or an option is out of range.

    Example:
        >>> import keras_transformers as kt
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        ... )
        >>> encoder = kt.bert_tiny(vocabulary_size=tokenizer.vocabulary_size)
        >>> choose = MultipleChoice(kt.heads.multiple_choice(encoder), tokenizer)
        >>> answer = choose("Good", ["films", "!", "good"])
        >>> answer.choice == ["films", "!", "good"][answer.choice_index]
        True
        >>> [len(a.probabilities) for a in choose(["Good", "film"], [["!", "film"], ["!"]])]
        [2, 1]
    """

    task = "multiple_choice"
    _LIST = "choices"
    _EXAMPLES = (
        (
            "He opened the umbrella.",
            ["It had begun to rain.", "The soup was cold.", "A dog barked."],
        ),
        ("It is late.", ["They go home.", "Two and two are four.", "The sea is blue, as always."]),
    )

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        *,
        max_sequence_length: int | None = None,
        temperature: float = 1.0,
        abstain_below: float | None = None,
    ) -> None:
        super().__init__(
            model, tokenizer, outputs=("logits",), max_sequence_length=max_sequence_length
        )
        shapes = [tensor.shape for tensor in self.model.input.values()]
        if "padding_mask" not in self.token_inputs or any(len(shape) != 3 for shape in shapes):
            raise ValueError(
                f"model {model.name!r} must take token_ids and padding_mask (batch, choices, "
                "length): put keras_transformers.heads.multiple_choice on an encoder"
            )
        self.temperature, self.abstain_below = temperature, abstain_below
        self._confidence = Confidence(temperature, abstain_below)

    def encode(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Turns texts into the model's inputs, in the graph.

        Args:
            *texts: the texts, strings (batch,), and their choices, strings (batch, choices).

        Returns:
            The model's inputs (batch, choices, length).
        """
        text, choices = texts
        with tf.device("CPU:0"):  # string ops run only on the CPU
            is_choice = tf.not_equal(choices, "")
            text_tokens = self.tokenizer.tokenize(text)
            choice_tokens = self.tokenizer.tokenize(tf.boolean_mask(choices, is_choice))
            return self.pack_choices(text_tokens, choice_tokens, is_choice)

    def pack_choices(
        self, text: tf.RaggedTensor, choices: tf.RaggedTensor, is_choice: tf.Tensor
    ) -> dict[str, Any]:
        """Pairs the tokens of texts with those of their choices and pads them.

        Args:
            text: int32 (batch, None).
            choices: int32 (rows, None), the choices of all texts one after the other.
            is_choice: bool (batch, choices), True where a text has a choice, `rows` in all.

        Returns:
            The model's inputs (batch, choices, length): padding where there is no choice.
        """
        with tf.device("CPU:0"):
            tf.debugging.assert_equal(
                text.nrows(), tf.shape(is_choice, tf.int64)[0], "text and choices differ in number"
            )
            places = tf.where(is_choice)  # (rows, 2)
            packed = self.pack([tf.gather(text, places[:, 0]), choices])  # (rows, length)
            shape = tf.concat([tf.shape(is_choice), tf.shape(packed["token_ids"])[1:]], axis=0)
            at = tf.cast(places, tf.int32)
            return {name: tf.scatter_nd(at, value, shape) for name, value in packed.items()}

    def read(self, *texts: str | bytes | Sequence[str]) -> dict[str, list[str]]:
        """Runs the model once on a text and its first choice; see `Pipeline.read`.

        Raises:
            ValueError: there are no choices.
        """
        text, choices = texts
        encoded = self.encode(one_row("text", text), self._first(choices)[None])
        self.run_model(encoded)
        return {"source": token_names(self.tokenizer, encoded["token_ids"][0])}

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes outputs from strings, in the graph."""
        text, choices = (texts[name] for name in self.text_names)
        outputs = self.decode(self.encode(text, choices))
        return {"choice": picked(choices, outputs["choice_index"]), **outputs}

    def decode(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes probabilities, choice_index and num_choices from the model's inputs."""
        logits = self._confidence.calibrated(self.run_model(tokens)["logits"])  # (batch, choices)
        is_choice = tf.reduce_any(tokens["padding_mask"], axis=-1)
        probabilities = tf.where(is_choice, tf.nn.softmax(logits), 0.0)
        index, count, highest = likeliest(probabilities, is_choice)
        return {
            "probabilities": probabilities,
            "choice_index": index,
            "num_choices": count,
            **self._confidence.abstention(highest),
        }

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {
            "choice": tf.TensorSpec([None], tf.string),
            "probabilities": tf.TensorSpec([None, None], tf.float32),
            "choice_index": tf.TensorSpec([None], tf.int32),
            "num_choices": tf.TensorSpec([None], tf.int32),
            **self._confidence.specs(),
        }

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `tokens`, from the model's inputs to the same outputs except the strings."""
        outputs = {name: spec for name, spec in self.answer_specs().items() if name != "choice"}
        return {"tokens": self.tokens_signature(self.answer_tokens, outputs, batches)}

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {**super().config(), **self._confidence.config()}
