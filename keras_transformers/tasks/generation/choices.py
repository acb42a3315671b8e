"""Computes how probable it is that a model writes each of some texts, in the graph."""

from collections.abc import Callable, Mapping, Sequence

import keras
import tensorflow as tf

from keras_transformers.decoding.single_path import Place, SinglePath
from keras_transformers.decoding.step import LengthBounds, StepFunction, within_vocabulary
from keras_transformers.tasks.generation.tokens import as_text
from keras_transformers.tasks.token_inputs import in_chunks
from keras_transformers.tokenizers.protocols import GeneratorTokenizer

__all__: list[str] = []

_GROWING_AXIS = 2  # of the cache's keys and values (rows, heads, time, head_dim)


class Choices:
    """Scores the choices of rows of tokens.

    The model reads the tokens of each row once. Then it reads the tokens of all choices of all
    rows, one step after the other, 32 choices at a time: each has a copy of its row's cache.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer.
        longest: the maximum number of tokens in a text, with the start token.
        also_end_token_ids: tokens that end texts in addition to the tokenizer's end token.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: GeneratorTokenizer,
        *,
        longest: int,
        also_end_token_ids: Sequence[int] = (),
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._longest = longest
        self._end_token_ids = [tokenizer.end_token_id, *also_end_token_ids]

    def rows(
        self,
        choices: tf.Tensor,
        num_tokens: tf.Tensor,
        tokenize: Callable[..., tf.RaggedTensor],
    ) -> dict[str, tf.Tensor]:
        """Returns what `scores` takes besides the rows' own tokens, once the graph has checked it.

        Args:
            choices: strings (batch, choices); "" is none.
            num_tokens: int32 (batch,), the number of tokens of each row.
            tokenize: the tokenizer's, on `text`.
        """
        with tf.device("CPU:0"):  # string ops run only on the CPU
            same = tf.debugging.assert_equal(
                tf.shape(choices)[0], tf.size(num_tokens), "choices must have a row for each prompt"
            )
            with tf.control_dependencies([] if same is None else [same]):
                places = tf.where(choices != "")  # (pairs, 2)
            row = tf.cast(places[:, 0], tf.int32)
            texts = tf.gather_nd(choices, places)
            tokens = tokenize(text=texts)
            lengths = tf.cast(tokens.row_lengths(), tf.int32)
            written = as_text(self._tokenizer.detokenize(tokens))
            # TensorFlow cannot raise an error whose message is not UTF-8.
            of_choice = {"choice": as_text(texts), "of row": row}
            checks = [
                _check(
                    tf.math.bincount(row, minlength=tf.size(num_tokens)) > 0,
                    "choices must have at least one text in each row, unlike",
                    {"row": tf.range(tf.size(num_tokens))},
                ),
                _check(
                    _is_first(row, texts), "each choice must be there once in its row:", of_choice
                ),
                _check(
                    written == texts,
                    "the tokens of a choice must be exactly its text:",
                    {**of_choice, "become": written},
                ),
                _check(
                    tf.gather(num_tokens, row) + lengths <= self._longest,
                    f"a prompt with a choice is longer than the {self._longest} positions of the "
                    "model, start token included: shorten the prompt of",
                    of_choice,
                ),
            ]
            with tf.control_dependencies([check for check in checks if check is not None]):
                token_ids = tokens.to_tensor(self._tokenizer.pad_token_id)
            # All signatures share one function, which is traced for this shape.
            token_ids = tf.compat.v1.placeholder_with_default(token_ids, [None, None])
        return {"row": row, "choice_token_ids": token_ids, "lengths": lengths}

    def scores(
        self,
        *,
        token_ids: tf.Tensor,
        num_tokens: tf.Tensor,
        row: tf.Tensor,
        choice_token_ids: tf.Tensor,
        lengths: tf.Tensor,
    ) -> tf.Tensor:
        """Returns the log-probability that a text goes on with a choice and then ends.

        Args:
            token_ids: int32 (batch, prompt), padded at the end.
            num_tokens: int32 (batch,), the number of tokens of each prompt.
            row: int32 (pairs,), the row of each choice.
            choice_token_ids: int32 (pairs, length).
            lengths: int32 (pairs,), the number of tokens of each choice.

        Returns:
            float32 (pairs,).
        """
        width = tf.shape(token_ids)[1]
        mask = tf.sequence_mask(num_tokens, width)
        _, last_token_ids, cache = self._model.start_decoding(token_ids, mask)

        def of_some(pairs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            rows = pairs.pop("row")
            step = self._model.decoding_step(tf.gather(width - num_tokens, rows), width)
            search = self._search(step, **pairs)
            copies = tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), cache)
            path = search.follow(
                tf.gather(last_token_ids, rows), copies, growing_axis=_GROWING_AXIS
            )
            return {"score": path.log_probs}

        pairs = {"row": row, "token_ids": choice_token_ids, "lengths": lengths}
        return in_chunks(of_some, pairs, {"score": tf.TensorSpec([None], tf.float32)})["score"]

    def _search(
        self, step: StepFunction, *, token_ids: tf.Tensor, lengths: tf.Tensor
    ) -> SinglePath:
        """Returns a search that takes these tokens (rows, length), and then an end token."""

        def take(logits: tf.Tensor, place: Place) -> tuple[tf.Tensor, tf.Tensor]:
            log_probs = tf.nn.log_softmax(logits)  # (rows, vocabulary)
            ends = tf.reduce_logsumexp(tf.gather(log_probs, self._end_token_ids, axis=1), axis=1)
            at = tf.minimum(place.index, tf.shape(token_ids)[1] - 1)
            token = tf.gather(token_ids, at, axis=1)
            log_prob = tf.gather(log_probs, token, batch_dims=1)
            return token, tf.where(place.index < lengths, log_prob, ends)

        longest = lengths + 1
        return SinglePath(
            within_vocabulary(step, self._tokenizer.vocabulary_size),
            take,
            LengthBounds(shortest=longest, longest=longest),
            tf.reduce_max(tf.concat([longest, [1]], axis=0)),
            end_token_id=None,
            pad_token_id=self._tokenizer.pad_token_id,
        )


def answers(
    choices: tf.Tensor, scores: tf.Tensor, lengths: tf.Tensor, num_prompt_tokens: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns the likeliest choice of each row and the probabilities of all, in the graph.

    Args:
        choices: strings (batch, choices); "" is none.
        scores: float32 (pairs,), the log-probability of each choice, row by row.
        lengths: int32 (pairs,), the number of tokens of each choice.
        num_prompt_tokens: int32 (batch,).
    """
    with tf.device("CPU:0"):  # string ops run only on the CPU
        places = tf.where(choices != "")
        shape = tf.shape(choices, tf.int64)
        best = tf.math.unsorted_segment_max(scores, places[:, 0], shape[0])
        # Relative to the best, as softmax computes it: others may underflow to 0.
        weights = tf.exp(scores - tf.gather(best, places[:, 0]))
        weights = tf.scatter_nd(places, weights, shape)
        probabilities = tf.math.divide_no_nan(
            weights, tf.reduce_sum(weights, axis=1, keepdims=True)
        )
        one_more = [[0, 0], [0, 1]]  # an empty batch may have no column
        index = tf.argmax(tf.pad(weights, one_more), axis=1)
        text = tf.gather(tf.pad(choices, one_more, constant_values=""), index, batch_dims=1)
        num_new_tokens = tf.scatter_nd(places, lengths + 1, shape)  # and the end token
        return {
            "text": text,
            "probability": tf.gather(tf.pad(probabilities, one_more), index, batch_dims=1),
            "probabilities": probabilities,
            "num_new_tokens": tf.gather(tf.pad(num_new_tokens, one_more), index, batch_dims=1),
            "num_prompt_tokens": num_prompt_tokens,
        }


def _check(
    holds: tf.Tensor, message: str, of_first: Mapping[str, tf.Tensor]
) -> tf.Operation | None:
    """Returns an assertion that tells the values of the first item for which it does not hold."""
    wrong = tf.where(~holds)[:1, 0]
    data: list[tf.Tensor | str] = [message]
    for name, values in of_first.items():
        data += [name, tf.gather(values, wrong)]
    return tf.debugging.Assert(tf.reduce_all(holds), data, summarize=20)


def _is_first(row: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
    """Returns which texts (pairs,) are not yet among those before them in their row."""
    _, index = tf.unique(tf.strings.join([tf.strings.as_string(row), texts], " "))
    number = tf.range(tf.size(texts))
    first = tf.math.unsorted_segment_min(number, index, tf.size(texts))
    return number == tf.gather(first, index)
