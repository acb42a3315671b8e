"""Export of causal language models: how a text goes on, and how likely it is."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.decoding.sampling import draw, keep_nucleus, tempered
from keras_transformers.decoding.single_path import follow_path
from keras_transformers.decoding.step import Hypotheses
from keras_transformers.pipelines import token_inputs as texts
from keras_transformers.saved_model.storage import WeightsDtype
from keras_transformers.saved_model.writing import Signature, write

_EXAMPLES = ("The old man and", "It was a day like any other, and")
_EXAMPLE_LENGTH = 8  # tokens that are drawn for each of them
_OPTIONS = {
    "max_length": tf.int32,
    "temperature": tf.float32,
    "top_k": tf.int32,
    "top_p": tf.float32,
    "seed": tf.int64,
}


class TextGenerator:
    """Goes on with texts, and scores them, with a model in memory: what an export does.

    Each text stands behind the start token, as a document does in training; so an empty prompt
    begins a new one. All methods run in the graph or eagerly.

    Args:
        model: a `models.gpt_model.CausalLM`.
        tokenizer: a `tokenizers.BytePairTokenizer`.

    Raises:
        ValueError: the model cannot go on with a text, or the tokenizer has another number of
            tokens.
    """

    def __init__(self, model: keras.Model, tokenizer: Any) -> None:
        if not hasattr(model, "start_decoding") or "token_ids" not in model.input:
            raise ValueError(
                f"model {model.name!r} is no causal language model: take one of "
                "keras_transformers.models.gpt"
            )
        self.vocabulary_size = texts.layer(model, "token_embedding").vocabulary_size
        if self.vocabulary_size != tokenizer.vocabulary_size:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocabulary_size} tokens and model {model.name!r} "
                f"{self.vocabulary_size}: use the vocabulary that the model was trained with"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.max_sequence_length = texts.layer(model, "position_embedding").max_sequence_length

    def generate(
        self, prompt: Any, max_length: Any, temperature: Any, top_k: Any, top_p: Any, seed: Any
    ) -> dict[str, Any]:
        """Draws a continuation of each prompt; see `decoding.sample`.

        What is drawn for a row depends on that row alone, not on others nor on their number. Of
        equally likely tokens at the border of `top_k` all are kept.

        Args:
            prompt: strings (batch,).
            max_length: int32 (batch,), new tokens at most, 0 or more. Where the model's positions
                end first, the text ends there.
            temperature: float32 (batch,), above 0.
            top_k: int32 (batch,), 1 (the likeliest token each time) to the size of the vocabulary;
                0 keeps all tokens.
            top_p: float32 (batch,), above 0, at most 1, which keeps all tokens.
            seed: int64 (batch,), another one gives another text.

        Returns:
            `text`, strings (batch,): what follows the prompt, bytes that make no UTF-8 as U+FFFD;
            `num_new_tokens` int32 (batch,), the end token counted; `log_probability` float32
            (batch,), of these tokens by the model itself; `finished` bool (batch,), True where the
            end token came, False where the text was cut at its length.

        Raises:
            tf.errors.InvalidArgumentError: an option is out of its range or has no value for each
                prompt, or a prompt is longer than the model's positions.
        """
        options = {
            "max_length": max_length,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
        }
        options = {name: tf.convert_to_tensor(v, _OPTIONS[name]) for name, v in options.items()}
        with tf.device("CPU:0"):
            tokens = self._tokens(prompt)
            num_tokens = tf.cast(tokens.row_lengths(), tf.int32)  # (batch,)
            checks = [*self.check_options(options), self._length_check(num_tokens, "prompt")]
            checks += [  # one for all would be taken for each row's, and all draw the same numbers
                tf.debugging.assert_equal(
                    tf.shape(value), tf.shape(prompt), f"{name} must have a value for each prompt"
                )
                for name, value in options.items()
            ]
            token_ids = self._padded(tokens, checks, width=1)
        # The last token need not be read: it takes no position.
        room = self.max_sequence_length + 1 - num_tokens
        found = self._sample(
            token_ids, num_tokens, options | {"limit": tf.minimum(options["max_length"], room)}
        )
        with tf.device("CPU:0"):
            text = self.tokenizer.detokenize(found.token_ids[:, 0])
            text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
        return {
            "text": text,
            "num_new_tokens": found.lengths[:, 0],
            "log_probability": found.scores[:, 0],
            "finished": found.finished[:, 0],
        }

    def score(self, text: Any) -> dict[str, Any]:
        """The log-probability of texts, and of each of their tokens.

        Args:
            text: strings (batch,).

        Returns:
            `log_probability` float32 (batch,), in nats, 0 for an empty text; `tokens` strings
            (batch, length), as the vocabulary spells them, and `token_log_probabilities` float32
            (batch, length), each given those before it, "" and 0 beyond `num_tokens` int32
            (batch,).

        Raises:
            tf.errors.InvalidArgumentError: a text is longer than the model's positions.
        """
        with tf.device("CPU:0"):
            tokens = self._tokens(text)
            num_tokens = tf.cast(tokens.row_lengths(), tf.int32) - 1  # without the start token
            checks = [self._length_check(num_tokens, "text")]
            token_ids = self._padded(tokens, checks, width=2)
        read, targets = token_ids[:, :-1], token_ids[:, 1:]
        # Of some models `document_ids` too: all is one document.
        inputs = dict.fromkeys(self.model.input, tf.zeros_like(read)) | {"token_ids": read}
        logits = tf.cast(self.model(inputs, training=False)["logits"], tf.float32)
        costs = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)  # (batch, length)
        is_token = tf.sequence_mask(num_tokens, tf.shape(targets)[1])
        log_probabilities = tf.where(is_token, -costs, 0.0)
        with tf.device("CPU:0"):
            return {
                "log_probability": tf.reduce_sum(log_probabilities, axis=1),
                "tokens": tf.where(is_token, self.tokenizer.tokens(targets), ""),
                "token_log_probabilities": log_probabilities,
                "num_tokens": num_tokens,
            }

    def check_prompts(self, prompt: Any) -> None:
        """Raises tf.errors.InvalidArgumentError, eagerly, for prompts that `generate` refuses."""
        self._length_check(tf.cast(self._tokens(prompt).row_lengths(), tf.int32), "prompt")

    def _tokens(self, text: Any) -> Any:
        """Start token and tokens, int32 (batch, None)."""
        tokens = self.tokenizer.tokenize(text)
        starts = tf.fill([tokens.nrows(), 1], self.tokenizer.start_token_id)
        return tf.concat([starts, tokens], axis=1)

    def _padded(self, tokens: Any, checks: Sequence[Any], *, width: int) -> Any:
        """Ragged tokens to (batch, length), at least `width` wide, once the checks have passed.

        An empty batch has no longest row, and a model reads one token at least.
        """
        with tf.control_dependencies([check for check in checks if check is not None]):
            token_ids = tokens.to_tensor(self.tokenizer.pad_token_id)
        missing = tf.maximum(0, width - tf.shape(token_ids)[1])
        return tf.pad(token_ids, [[0, 0], [0, missing]])

    def _length_check(self, num_tokens: Any, name: str) -> Any:
        return tf.debugging.assert_less_equal(
            num_tokens,
            self.max_sequence_length,
            f"a {name} is longer than the {self.max_sequence_length} positions of the model, start "
            "token included: give its end alone",
        )

    def check_options(self, options: Mapping[str, Any]) -> list[Any]:
        """Assertions that options of `generate`, each (batch,), are in their ranges.

        Raises:
            tf.errors.InvalidArgumentError: eagerly, one is not; else the graph raises it.
        """
        temperature, top_p = options["temperature"], options["top_p"]
        rules = {
            "max_length must be 0 or more": options["max_length"] >= 0,
            "temperature must be above 0; for the likeliest tokens set top_k to 1": (
                (temperature > 0) & tf.math.is_finite(temperature)
            ),
            f"top_k must be from 1 to {self.vocabulary_size}, the size of the vocabulary, or 0 for "
            "all tokens": (options["top_k"] >= 0) & (options["top_k"] <= self.vocabulary_size),
            "top_p must be above 0 and at most 1": (top_p > 0) & (top_p <= 1),
        }
        return [
            tf.debugging.Assert(tf.reduce_all(holds), [message]) for message, holds in rules.items()
        ]

    def _sample(self, token_ids: Any, num_tokens: Any, options: Mapping[str, Any]) -> Hypotheses:
        uniform = _uniform(options["seed"], self.max_sequence_length)

        def choose(logits: Any, index: Any, _: Any) -> tuple[Any, Any]:
            log_probs = tf.nn.log_softmax(logits)  # (batch, vocabulary)
            kept = _keep_top_k(log_probs, options["top_k"])
            probabilities = tempered(kept, options["temperature"][:, None])
            probabilities = _keep_top_p(probabilities, options["top_p"])
            chosen = draw(probabilities, tf.gather(uniform, index, axis=1))
            return chosen, tf.gather(log_probs, chosen, batch_dims=1)

        mask = tf.sequence_mask(num_tokens, tf.shape(token_ids)[1])
        step, last_token_ids, cache = self.model.start_decoding(token_ids, mask)
        return follow_path(
            step,
            last_token_ids,
            cache,
            choose,
            num_hypotheses=1,
            end_token_id=self.tokenizer.end_token_id,
            max_length=tf.reduce_max(tf.concat([options["limit"], [0]], axis=0)),
            min_length=0,
            length_limits=options["limit"],
            pad_token_id=self.tokenizer.pad_token_id,
            growing_axis=2,
        )


def _uniform(seed: Any, count: int) -> Any:
    """Numbers in [0, 1) that each row's seed decides alone: int64 (batch,) to (batch, count)."""

    def of_row(seed: Any) -> Any:
        seeds = tf.stack([seed, tf.zeros_like(seed)])
        bits = tf.random.stateless_uniform(
            [count], seeds, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
        )
        return tf.cast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.float32) / 2**24

    return tf.map_fn(of_row, seed, fn_output_signature=tf.TensorSpec([count], tf.float32))


def _keep_top_p(probabilities: Any, top_p: Any) -> Any:
    """(rows, count): those of each row's nucleus; all of them, exactly, where `top_p` is 1."""
    in_part = top_p < 1
    return tf.cond(
        tf.reduce_any(in_part),
        lambda: tf.where(in_part[:, None], keep_nucleus(probabilities, top_p), probabilities),
        lambda: probabilities,
    )


def _keep_top_k(scores: Any, top_k: Any) -> Any:
    """Scores (batch, vocabulary) with -inf in the place of all but the `top_k` (batch,) largest."""
    largest, _ = tf.math.top_k(scores, tf.maximum(1, tf.reduce_max(tf.concat([top_k, [1]], 0))))
    border = tf.gather(largest, tf.maximum(top_k - 1, 0)[:, None], batch_dims=1)  # (batch, 1)
    return tf.where((top_k == 0)[:, None] | (scores >= border), scores, -float("inf"))


def generator(
    model: keras.Model,
    tokenizer: Any,
    path: str | os.PathLike[str],
    *,
    max_length: int = 50,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    examples: Sequence[str] | None = None,
    weights_dtype: WeightsDtype = "float32",
    scores: Mapping[str, float] | None = None,
    check: bool = True,
) -> Path:
    """Exports a causal language model as a SavedModel for TF Serving that takes strings.

    Its signatures, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(prompt string (batch,)) -> text string (batch,), num_new_tokens int32
      (batch,), log_probability float32 (batch,), finished bool (batch,), with the options below.
    - generate(prompt, max_length int32, temperature float32, top_k int32, top_p float32, seed
      int64, each (batch,)) -> the same: every row has options of its own.
    - score(text string (batch,)) -> log_probability float32 (batch,), tokens string (batch,
      length), token_log_probabilities float32 (batch, length), num_tokens int32 (batch,).

    What the options and outputs are, `TextGenerator.generate` and `score` say. Options out of their
    range and texts longer than the model's positions are refused when the graph runs.

    Args:
        model: see `TextGenerator`.
        tokenizer: see `TextGenerator`.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next one.
        max_length: of serving_default.
        temperature: of serving_default.
        top_k: of serving_default.
        top_p: of serving_default.
        seed: of serving_default.
        examples: prompts to check the export with; they are stored in it with what follows them,
            so give none that are secret. Two plain ones by default, cut to fit.
        weights_dtype: "bfloat16" stores matrices in half the space, see `StoredWeights`.
        scores: what the model reached, stored in the export: figure -> value, the data in the
            figure's name, such as {"accuracy on SST-2 dev": 0.91}.
        check: reload the export in a fresh process and compare before it is published.

    Returns:
        The version folder, BASE/<number>.

    Raises:
        FileExistsError: the version exists.
        ValueError: model and tokenizer do not fit each other, an option is out of its range, or an
            example is longer than the model's positions.
        RuntimeError: the written export does not repeat the model's outputs.
    """
    graph = TextGenerator(model, tokenizer)
    defaults: dict[str, Any] = {
        "max_length": max_length,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }

    def from_prompt(prompt: Any) -> dict[str, Any]:
        batch = tf.shape(prompt)
        return graph.generate(
            prompt, **{k: tf.fill(batch, tf.cast(v, _OPTIONS[k])) for k, v in defaults.items()}
        )

    # A token is a byte at least: half of the positions stay for what is drawn.
    room = graph.max_sequence_length // 2
    prompts = _strings([text[:room] for text in _EXAMPLES] if examples is None else examples)
    awkward = _strings(["", b"\xff\xfe is no UTF-8 \x00"[:room], "  \n"[:room]])
    try:
        graph.check_options({k: tf.constant([v], _OPTIONS[k]) for k, v in defaults.items()})
        graph.check_prompts(prompts)
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(f"an option or example is out of its range: {error.message}") from error
    batches = [prompts, awkward, _strings([])]
    generated = {
        "text": tf.TensorSpec([None], tf.string),
        "num_new_tokens": tf.TensorSpec([None], tf.int32),
        "log_probability": tf.TensorSpec([None], tf.float32),
        "finished": tf.TensorSpec([None], tf.bool),
    }
    scored = {
        "log_probability": tf.TensorSpec([None], tf.float32),
        "tokens": tf.TensorSpec([None, None], tf.string),
        "token_log_probabilities": tf.TensorSpec([None, None], tf.float32),
        "num_tokens": tf.TensorSpec([None], tf.int32),
    }
    strings = tf.TensorSpec([None], tf.string)
    options = {name: tf.TensorSpec([None], dtype) for name, dtype in _OPTIONS.items()}
    return write(
        path,
        {
            "serving_default": Signature(
                from_prompt, {"prompt": strings}, generated, [{"prompt": prompts[:1]}]
            ),
            "generate": Signature(
                graph.generate,
                {"prompt": strings} | options,
                generated,
                [{"prompt": batch} | _example_options(len(batch)) for batch in batches],
            ),
            "score": Signature(
                graph.score, {"text": strings}, scored, [{"text": batch} for batch in batches]
            ),
        },
        variables=model.weights,
        trackables=[tokenizer],
        metadata={
            "task": "generation",
            "lengths": {"num_tokens": ["tokens", "token_log_probabilities"]},
            **defaults,
            **texts.metadata(model, tokenizer, graph.max_sequence_length),
        },
        # Sums over tokens, and graphs round elsewhere than eager execution.
        tolerance=max(1e-4, texts.tolerance(model)),
        weights_dtype=weights_dtype,
        scores=scores,
        check=check,
    )


def _strings(values: Sequence[str | bytes]) -> np.ndarray:
    return np.array([v.encode() if isinstance(v, str) else v for v in values], dtype=object)


def _example_options(rows: int) -> dict[str, np.ndarray]:
    """Options of each row of an example, no two alike."""
    number = np.arange(rows)
    return {
        "max_length": np.where(number == 2, 0, _EXAMPLE_LENGTH),
        "temperature": 0.5 + 0.25 * number,
        "top_k": np.where(number == 1, 0, 5),
        "top_p": np.where(number == 0, 0.9, 1.0),
        "seed": number,
    }
