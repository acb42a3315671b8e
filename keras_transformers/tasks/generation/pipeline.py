"""Generates text: continues a prompt, or scores how likely a text is."""

import functools
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.convert.families import families
from keras_transformers.convert.formats.chat_templates import read_chat_template
from keras_transformers.convert.formats.generation_config import read_sampling_options
from keras_transformers.decoding.rows import sample_rows
from keras_transformers.decoding.step import within_vocabulary
from keras_transformers.dependencies import graph_errors
from keras_transformers.files.surrogates import check_text
from keras_transformers.models.anatomy import anatomy
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.generation.conversations import (
    OPTIONS,
    as_conversations,
    conversation_columns,
    decoding_options,
)
from keras_transformers.tasks.pipeline import Pipeline, Signature, shared
from keras_transformers.tasks.task import Task
from keras_transformers.tasks.texts import strings
from keras_transformers.tasks.token_inputs import (
    check_vocabulary,
    one_row,
    text_batches,
    token_names,
)
from keras_transformers.tokenizers.chat_templates import (
    CHAT_TEMPLATES,
    ChatTemplate,
    find_chat_template,
)
from keras_transformers.tokenizers.conversations import ConversationTokenizer
from keras_transformers.tokenizers.described.tokenizer import DescribedTokenizer
from keras_transformers.tokenizers.packing import document_start

__all__ = ["TextGenerator"]

_EXAMPLES = ("The old man and", "It was a day like any other, and")
_EXAMPLE_LENGTH = 8  # new tokens per example
_OPTIONS = {
    "max_length": tf.int32,
    "temperature": tf.float32,
    "top_k": tf.int32,
    "top_p": tf.float32,
    "seed": tf.int64,
}
# Options added later: `generate` uses the pipeline's values, `complete` and `chat_complete` take
# one per row.
_MORE_OPTIONS = {"repetition_penalty": tf.float32}
_ALL_OPTIONS = {**_OPTIONS, **_MORE_OPTIONS}  # and `stop`
_GRAPHS = ("_graph", "_chat_graph")
_STRINGS = tf.TensorSpec([None], tf.string)
_LISTS = tf.TensorSpec([None, None], tf.string)
_EXAMPLE_CHAT = ("What is the capital of France?", "Paris.", "And of Spain?")


class TextGenerator(Pipeline):
    """Continues prompts and scores texts.

    Every text starts with the start token, as documents do in training, so an empty prompt starts a
    new document. If the tokenizer's files put no token before texts, as for Qwen and SmolLM2, the
    start token comes only before empty prompts and before texts to score; a tokenizer without a
    start token uses the end token instead. The graph rejects prompts and texts longer than the
    model's positions.

    A pipeline decodes with its options, which a call may override:
    `generate("hello", max_length=5)`. By default it always takes the likeliest token (greedy
    search). It samples if `temperature`, `top_p` or a `top_k` other than 1 is set.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(prompt string (batch,)) -> text string (batch,), num_new_tokens int32
      (batch,), log_probability float32 (batch,), finished bool (batch,), with the options below.
    - generate(prompt, max_length int32, temperature float32, top_k int32, top_p float32, seed
      int64, each (batch,)) -> the same, with options per row. The graph rejects options that are
      out of range.
    - complete(the same inputs, repetition_penalty float32 (batch,), stop string (batch, stops)) ->
      the same outputs. "" is not a stop string.
    - chat(roles string (batch, messages), texts string (batch, messages)) -> the same outputs: the
      answer to each conversation, if there is a chat template. "" pads shorter conversations.
    - chat_complete(roles, texts, and all options of `complete`) -> the same outputs.
    - score(text string (batch,)) -> log_probability float32 (batch,), tokens string (batch,
      length), token_log_probabilities float32 (batch, length), num_tokens int32 (batch,).

    Args:
        model: a causal language model, such as one from `models.gpt` or `models.llama`.
        tokenizer: such as a `tokenizers.BytePairTokenizer`.
        max_sequence_length: maximum tokens in a text, with the start token. Defaults to the model's
            number of positions, or to the length that its rotary positions were trained for;
            required if the model has neither.
        max_length: the maximum number of new tokens, without the prompt's, 50 by default
            (transformers: max_new_tokens); see `generate`. Calls, `chat` and `serving_default` use
            this and the options below.
        temperature: see `generate`; 1 by default.
        top_k: see `generate`; 1 by default, or 0 if `temperature` or `top_p` is given.
        top_p: see `generate`; 1 by default.
        seed: see `generate`.
        repetition_penalty: see `complete`.
        stop: strings that end a text, see `complete`.
        chat_template: how conversations become texts: a name in `tokenizers.CHAT_TEMPLATES`, or the
            published Jinja text of one of them, which is not executed. Needs a
            `DescribedTokenizer`.
        also_end_token_ids: tokens that end texts in addition to the tokenizer's end token, as in
            instruction-tuned Llamas and Qwens (`eos_token_id` in a generation_config.json).

    Raises:
        ValueError: the model cannot continue a text, the tokenizer has more tokens than the model,
            or an option is out of range.
    """

    task = "generation"
    text_names = ("prompt",)

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Any,
        *,
        max_sequence_length: int | None = None,
        max_length: int = 50,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        repetition_penalty: float = 1.0,
        stop: Sequence[str] = (),
        chat_template: str | None = None,
        also_end_token_ids: Sequence[int] = (),
    ) -> None:
        if not hasattr(model, "start_decoding") or "token_ids" not in model.input:
            known = [family.model_type for family in families() if family.task == self.task]
            raise ValueError(
                f"model {model.name!r} is not a causal language model: use one of the families "
                f"{', '.join(known)}, whose sizes keras_transformers.list_models() names"
            )
        check_vocabulary(model, tokenizer)
        self.model = model
        self.tokenizer = tokenizer
        self._given_length = max_sequence_length
        self.max_sequence_length = _checked_length(model, max_sequence_length)
        self.also_end_token_ids = _checked_ends(tokenizer, also_end_token_ids)
        self.chat_template = chat_template
        self._conversations = _conversations(chat_template, tokenizer)
        sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        chosen: dict[str, Any] = {n: value for n, value in sampling.items() if value is not None}
        chosen |= {"max_length": max_length, "seed": seed}
        chosen |= {"repetition_penalty": repetition_penalty, "stop": stop}
        options = self._checked(decoding_options(OPTIONS, chosen))
        self.max_length: int = options["max_length"]
        self.temperature: float = options["temperature"]
        self.top_k: int = options["top_k"]
        self.top_p: float = options["top_p"]
        self.seed: int = options["seed"]
        self.repetition_penalty: float = options["repetition_penalty"]
        self.stop: tuple[str, ...] = options["stop"]

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of decoding, which are also attributes: name -> value; read only."""
        return MappingProxyType({name: getattr(self, name) for name in OPTIONS})

    def with_options(self, **options: Any) -> Self:
        """Returns another pipeline on the same model; see `Pipeline`.

        A `temperature` or a `top_p` makes a greedy pipeline sample from all tokens, if `top_k` is
        not given.
        """
        chosen = {name: value for name, value in options.items() if name in OPTIONS}
        decoding = self._checked(decoding_options(self.options, chosen))
        other = super().with_options(**options | decoding)
        if len(chosen) == len(options):  # which are inputs of the graphs
            vars(other).update({n: vars(self)[n] for n in _GRAPHS if n in vars(self)})
        return other

    def answer(self, **texts: Any) -> dict[str, Any]:
        """Continues each prompt with the pipeline's options, in the graph; see `generate`.

        Args:
            **texts: `prompt`, strings (batch,).
        """
        rows = tf.shape(texts["prompt"])[:1]
        return self.complete(texts["prompt"], **_in_rows(self.options, rows))

    def answer_specs(self) -> dict[str, Any]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None,)."""
        return {
            "text": _STRINGS,
            "num_new_tokens": tf.TensorSpec([None], tf.int32),
            "log_probability": tf.TensorSpec([None], tf.float32),
            "finished": tf.TensorSpec([None], tf.bool),
        }

    def generate(
        self, prompt: Any, max_length: Any, temperature: Any, top_k: Any, top_p: Any, seed: Any
    ) -> dict[str, Any]:
        """Samples a continuation of each prompt, in the graph; see `decoding.sample_rows`.

        A row's continuation does not depend on the other rows or their number.

        Args:
            prompt: strings (batch,).
            max_length: int32 (batch,), the maximum number of new tokens, 0 or more. The text also
                ends where the model's positions do.
            temperature: float32 (batch,), above 0.
            top_k: int32 (batch,), from 1 (always the most likely token) to the vocabulary size; 0
                keeps all tokens.
            top_p: float32 (batch,), above 0 and at most 1, which keeps all tokens.
            seed: int64 (batch,); a different seed gives a different text.

        Returns:
            `text`, strings (batch,): the continuation, with U+FFFD for bytes that are not UTF-8;
            `num_new_tokens` int32 (batch,), end token included; `log_probability` float32 (batch,)
            of these tokens under the model, before the options apply; `finished` bool (batch,),
            True if the text ended with the end token or a stop string, False if it reached its
            maximum length.

        Raises:
            tf.errors.InvalidArgumentError: an option is out of range or does not have one value per
                prompt, or a prompt is longer than the model's positions.
        """
        own = _in_rows(self.options, tf.shape(prompt)[:1])
        given = (max_length, temperature, top_k, top_p, seed)
        return self.complete(prompt, **own | dict(zip(_OPTIONS, given, strict=True)))

    def complete(self, prompt: Any, *, stop: Any, **options: Any) -> dict[str, Any]:
        """Samples a continuation of each prompt, in the graph, with all options.

        Args:
            prompt: strings (batch,).
            stop: strings (batch, stops) that end a text, which does not include them. "" is
                ignored.
            **options: those of `generate`, and `repetition_penalty` float32 (batch,), above 0,
                which makes tokens that occur in the prompt or the text less likely; 1 changes
                nothing (Keskar et al. 2019, arXiv:1909.05858).

        Returns:
            The outputs of `generate`. `num_new_tokens` and `log_probability` include the tokens of
            a stop string.

        Raises:
            tf.errors.InvalidArgumentError: as for `generate`.
        """
        with tf.device("CPU:0"):  # string ops run only on the CPU
            tokens = self._prompt_tokens(prompt)
        return self._continue(tokens, "prompt", stop, options)

    def chat_complete(self, roles: Any, texts: Any, *, stop: Any, **options: Any) -> dict[str, Any]:
        """Samples an answer to each conversation, in the graph, with all options.

        Names of special tokens in `texts` are ordinary text, so no message can end its turn early.

        Args:
            roles: strings (batch, messages), such as "system", "user" and "assistant"; "" pads
                shorter conversations.
            texts: strings (batch, messages), the content of each message.
            stop: see `complete`.
            **options: see `complete`.

        Returns:
            The outputs of `complete`.

        Raises:
            ValueError: the pipeline has no chat template.
            tf.errors.InvalidArgumentError: as for `generate`; or the chat template lacks a role or
                does not allow it in that place, or the last message is not the user's.
        """
        tokens = self._known_conversations()(roles, texts)
        return self._continue(tokens, "conversation", stop, options)

    def chat(self, messages: Sequence[Any], **options: Any) -> Any:
        """Answers one conversation or several.

        Args:
            messages: a sequence of {"role": ..., "content": ...}, ending with a message from the
                user; or a sequence of such sequences.
            **options: those of `complete`, each with one value for all conversations, the
                pipeline's by default; `stop` is a string or a sequence of strings. As in a call,
                `temperature` or `top_p` without `top_k` makes a greedy pipeline sample.

        Returns:
            A `results.Generation` for one conversation; a list for several.

        Raises:
            ValueError: a message or an option has the wrong form or is out of range, the pipeline
                has no chat template, the template lacks a role or does not allow it in that place,
                or the conversation is longer than the model's positions.

        Example:
            answer = generate.chat([{"role": "user", "content": "What is the capital of France?"}])
        """
        self._known_conversations()
        chosen = self._checked(decoding_options(self.options, options))
        conversations, one = as_conversations(messages)
        if not conversations:
            return []
        roles, texts = conversation_columns(conversations)
        with graph_errors.as_value_errors():
            found = self._chat_graph(
                roles=tf.constant(roles),
                texts=tf.constant(texts),
                **_in_rows(chosen, tf.constant([len(roles)])),
            )
            outputs = {name: value.numpy() for name, value in found.items()}
        answer = reading.answer_type(self.task)
        rows = [reading.typed(row, answer) for row in reading.rows(outputs, [], answer)]
        return rows[0] if one else rows

    def _answers_with(self, options: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
        """Returns what answers a call with these options, all of them inputs of one graph."""
        chosen = self._checked(decoding_options(self.options, options))
        return lambda prompt: self._graph(prompt=prompt, **_in_rows(chosen, tf.shape(prompt)[:1]))

    @functools.cached_property
    def _graph(self) -> Any:
        """Computes `complete`, in the graph."""
        return self._traced(self.complete, ("prompt",))

    @functools.cached_property
    def _chat_graph(self) -> Any:
        """Computes `chat_complete`, in the graph."""
        return self._traced(self.chat_complete, ("roles", "texts"))

    def _traced(self, function: Callable[..., Any], names: Sequence[str]) -> Any:
        """Returns a graph of these texts and all options."""
        specs = self._input_specs(names, _ALL_OPTIONS)
        named = {name: tf.TensorSpec(s.shape, s.dtype, name=name) for name, s in specs.items()}
        return tf.function(function, autograph=False).get_concrete_function(**named)

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns all options of decoding; ValueError if one has the wrong type or range."""
        values = {name: _number(name, options[name], kind) for name, kind in _ALL_OPTIONS.items()}
        tensors = {name: tf.constant(value, _ALL_OPTIONS[name]) for name, value in values.items()}
        for name, (holds, rule) in self._rules(tensors).items():
            if not holds:
                raise ValueError(f"{name}={values[name]}: {name} must be {rule}")
        return {**values, "stop": _checked_stops(options["stop"])}

    def _known_conversations(self) -> ConversationTokenizer:
        if self._conversations is None:
            raise ValueError(
                "this model has no chat template: pass chat_template=... with the name of the one "
                f"that it was trained with: {', '.join(CHAT_TEMPLATES)}"
            )
        return self._conversations

    def _continue(
        self, tokens: Any, what: str, stop: Any, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Samples continuations of tokens (batch, None); each row is a prompt or a conversation."""
        options = {
            name: tf.convert_to_tensor(given[name], dtype) for name, dtype in _ALL_OPTIONS.items()
        }
        with tf.device("CPU:0"):
            rows = tf.cast(tokens.nrows(), tf.int32)
            num_tokens = tf.cast(tokens.row_lengths(), tf.int32)  # (batch,)
            checks = [
                tf.debugging.Assert(tf.reduce_all(holds), [f"{name} must be {rule}"])
                for name, (holds, rule) in self._rules(options).items()
            ]
            checks += [  # one shared value would give all rows the same random numbers
                tf.debugging.assert_equal(
                    tf.shape(value)[0], rows, f"{option} must have a value for each {what}"
                )
                for option, value in {**options, "stop": tf.convert_to_tensor(stop)}.items()
            ]
            checks.append(self._length_check(num_tokens, what))
            token_ids = self._padded(tokens, checks, width=1)
            # All signatures share one function, which is traced for these shapes.
            stop = tf.compat.v1.placeholder_with_default(stop, [None, None])
            token_ids = tf.compat.v1.placeholder_with_default(token_ids, [None, None])
        return self._sample(token_ids=token_ids, num_tokens=num_tokens, stop=stop, **options)

    @shared
    def _sample(self, token_ids: Any, num_tokens: Any, stop: Any, **options: Any) -> dict[str, Any]:
        """Samples continuations of padded tokens (batch, length)."""
        mask = tf.sequence_mask(num_tokens, tf.shape(token_ids)[1])
        step, last_token_ids, cache = self.model.start_decoding(token_ids, mask)
        step = within_vocabulary(step, self.tokenizer.vocabulary_size)
        # The model never reads the last token, so it needs no position.
        room = self.max_sequence_length + 1 - num_tokens
        found = sample_rows(
            step,
            last_token_ids,
            cache,
            end_token_id=self.tokenizer.end_token_id,
            longest=self.max_sequence_length,
            pad_token_id=self.tokenizer.pad_token_id,
            growing_axis=2,
            also_end_token_ids=self.also_end_token_ids,
            prompt_token_ids=tf.where(mask, token_ids, token_ids[:, :1]),
            stops=functools.partial(self._stops, stop),
            **options | {"max_length": tf.minimum(options["max_length"], room)},
        )
        with tf.device("CPU:0"):
            text = self._text(found.token_ids[:, 0])
            text = tf.cond(
                tf.reduce_any(stop != ""), lambda: _cut(text, stop), lambda: tf.identity(text)
            )
        return {
            "text": text,
            "num_new_tokens": found.lengths[:, 0],
            "log_probability": found.scores[:, 0],
            "finished": found.finished[:, 0],
        }

    def _text(self, token_ids: Any) -> Any:
        text = self.tokenizer.detokenize(token_ids)
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")

    def _stops(self, stop: Any, token_ids: Any) -> Any:
        """Returns which texts (batch,) contain one of their stop strings (batch, stops)."""

        def has_one() -> Any:
            text = self._text(token_ids)
            return _cut(text, stop) != text

        with tf.device("CPU:0"):
            rows = tf.shape(token_ids)[:1]
            return tf.cond(tf.reduce_any(stop != ""), has_one, lambda: tf.zeros(rows, tf.bool))

    def read(self, *texts: Any) -> dict[str, list[str]]:
        """Runs the model once on one text, after the start token; see `Pipeline.read`."""
        (text,) = texts
        token_ids = self._tokens(one_row("prompt", text)).to_tensor()
        self.run_model(
            dict.fromkeys(self.model.input, tf.zeros_like(token_ids)) | {"token_ids": token_ids}
        )
        return {"target": token_names(self.tokenizer, token_ids)}

    def score(self, text: Any) -> dict[str, Any]:
        """Computes the log-probability of texts and of each of their tokens, in the graph.

        Args:
            text: strings (batch,).

        Returns:
            `log_probability` float32 (batch,), in nats, 0 for an empty text; `tokens` strings
            (batch, length), spelled as in the vocabulary; `token_log_probabilities` float32
            (batch, length), each given the tokens before it; `num_tokens` int32 (batch,), after
            which tokens are "" and their log-probabilities 0.

        Raises:
            tf.errors.InvalidArgumentError: a text is longer than the model's positions.
        """
        with tf.device("CPU:0"):
            tokens = self._tokens(text)
            num_tokens = tf.cast(tokens.row_lengths(), tf.int32) - 1  # without the start token
            checks = [self._length_check(num_tokens, "text")]
            token_ids = self._padded(tokens, checks, width=2)
        read, targets = token_ids[:, :-1], token_ids[:, 1:]
        # Some models also read `document_ids`: zeros make all tokens one document.
        inputs = dict.fromkeys(self.model.input, tf.zeros_like(read)) | {"token_ids": read}
        logits = tf.cast(self.run_model(inputs)["logits"], tf.float32)
        logits = logits[..., : self.tokenizer.vocabulary_size]  # the model may have more rows
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

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns the examples, awkward texts and an empty batch.

        Raises:
            ValueError: an example is not a string, or is longer than the model's positions.
        """
        # A token is at least one byte, so half of the positions remain for the continuation.
        room = self.max_sequence_length // 2
        if examples is None:
            examples = [text[:room] for text in _EXAMPLES]
        given, _, empty = text_batches(examples, self.text_names, long=0)
        for prompt in given["prompt"]:
            num_tokens = self._tokens(tf.constant([prompt])).row_lengths()[0]
            if num_tokens > self.max_sequence_length:
                raise ValueError(
                    f"example {prompt.decode()!r}: {num_tokens} tokens with the start token, but "
                    f"the model has {self.max_sequence_length} positions: use shorter examples"
                )
        awkward = strings([text[:room] for text in (b"", b"\xff\xfe is no UTF-8 \x00", b"  \n")])
        return [given, {"prompt": awkward}, empty]

    def signatures(self, examples: Sequence[Any] | None = None) -> dict[str, Signature]:
        """Returns the signatures of an export, with only one example for `serving_default`.

        Its texts are long, and where two tokens are almost equally likely, rounding may make the
        graph and eager execution draw different tokens. `generate` gets all examples.
        """
        found = super().signatures(examples)
        default = found["serving_default"]
        first = {"prompt": default.examples[0]["prompt"][:1]}
        return found | {"serving_default": replace(default, examples=[first])}

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `generate` and `complete`, with options per row, `score`, and those for chat."""
        prompts = [{**batch, **_example_options(len(batch["prompt"]))} for batch in batches]
        scored = {
            "log_probability": tf.TensorSpec([None], tf.float32),
            "tokens": tf.TensorSpec([None, None], tf.string),
            "token_log_probabilities": tf.TensorSpec([None, None], tf.float32),
            "num_tokens": tf.TensorSpec([None], tf.int32),
        }
        texts = [{"text": batch["prompt"]} for batch in batches]
        answers = self.answer_specs()

        def signature(
            function: Any, names: Sequence[str], options: Mapping[str, Any], examples: Any
        ) -> Signature:
            return Signature(function, self._input_specs(names, options), answers, examples)

        found = {
            "generate": signature(self.generate, ("prompt",), _OPTIONS, prompts),
            "score": Signature(self.score, {"text": _STRINGS}, scored, texts),
            "complete": signature(
                self.complete, ("prompt",), _ALL_OPTIONS, [_with_more(each) for each in prompts[:1]]
            ),
        }
        if self._conversations is not None:
            chat = _example_chat(self._conversations.template)
            more = _with_more({**chat, **_example_options(2)})
            one = {name: column[1:] for name, column in chat.items()}  # see `signatures`
            found["chat"] = signature(self._answer_chat, ("roles", "texts"), {}, [one])
            found["chat_complete"] = signature(
                self.chat_complete, ("roles", "texts"), _ALL_OPTIONS, [more]
            )
        return found

    def _answer_chat(self, roles: Any, texts: Any) -> dict[str, Any]:
        """Answers conversations with the pipeline's options, in the graph."""
        return self.chat_complete(roles, texts, **_in_rows(self.options, tf.shape(roles)[:1]))

    def _input_specs(self, names: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs of a signature; with all options, they include the stop strings."""
        found = {name: _STRINGS if name == "prompt" else _LISTS for name in names}
        found |= {name: tf.TensorSpec([None], dtype) for name, dtype in options.items()}
        return found | ({"stop": _LISTS} if options == _ALL_OPTIONS else {})

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        given = {
            "max_sequence_length": self._given_length,
            "also_end_token_ids": list(self.also_end_token_ids) or None,
            "repetition_penalty": None if self.repetition_penalty == 1 else self.repetition_penalty,
            "stop": list(self.stop) or None,
            "chat_template": self.chat_template,
        }
        found = {name: value for name, value in given.items() if value is not None}
        found |= {"max_length": self.max_length, "seed": self.seed}
        sampling = {name: self.options[name] for name in ("temperature", "top_k", "top_p")}
        is_greedy = all(value == OPTIONS[name] for name, value in sampling.items())
        return found if is_greedy else found | sampling

    def metadata(self) -> dict[str, Any]:
        """Returns what an export records besides the model and the vocabulary."""
        found = {
            "lengths": {"num_tokens": ["tokens", "token_log_probabilities"]},
            **self.options,
            "max_sequence_length": self.max_sequence_length,
            "stop": list(self.stop),
        }
        if self._conversations is not None:
            template = self._conversations.template
            found["chat"] = {"template": template.name, "roles": list(template.roles)}
        return found

    @property
    def tokenizers(self) -> Mapping[str, Any]:
        """The tokenizers, keyed by the names of their arguments; read only."""
        return MappingProxyType({"tokenizer": self.tokenizer})

    def _rules(self, options: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
        """Returns option -> (which of its values are in range, the range in words)."""
        temperature, top_k, top_p = (options[name] for name in ("temperature", "top_k", "top_p"))
        penalty = options["repetition_penalty"]
        size = self.tokenizer.vocabulary_size
        return {
            "max_length": (options["max_length"] >= 0, "0 or more"),
            "temperature": (
                (temperature > 0) & tf.math.is_finite(temperature),
                "above 0; to always take the likeliest token, set top_k to 1",
            ),
            "top_k": (
                (top_k >= 0) & (top_k <= size),
                f"from 1 to {size}, the vocabulary size, or 0 for all tokens",
            ),
            "top_p": ((top_p > 0) & (top_p <= 1), "above 0 and at most 1"),
            "repetition_penalty": (
                (penalty > 0) & tf.math.is_finite(penalty),
                "above 0; 1 changes nothing",
            ),
        }

    def _tokens(self, text: Any) -> Any:
        """Returns the start token and the text's tokens, int32 (batch, None)."""
        tokens = self.tokenizer.tokenize(text)
        starts = tf.fill([tokens.nrows(), 1], document_start(self.tokenizer))
        return tf.concat([starts, tokens], axis=1)

    def _prompt_tokens(self, prompt: Any) -> Any:
        """Returns the tokens to continue, at least one per prompt, int32 (batch, None)."""
        tokens = self._tokens(prompt)
        if self.tokenizer.special_tokens(1)[0]:
            return tokens
        lengths = tokens.row_lengths()
        kept = tf.ragged.range(lengths) >= tf.cast(lengths > 1, tf.int64)[:, None]
        return tf.ragged.boolean_mask(tokens, kept)

    def _padded(self, tokens: Any, checks: Sequence[Any], *, width: int) -> Any:
        """Pads ragged tokens to (batch, length), at least `width` wide, once the checks pass.

        An empty batch has no longest row, but a model needs at least one token.
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
            "token included: pass only its last tokens",
        )


def _checked_ends(tokenizer: Any, token_ids: Sequence[int]) -> tuple[int, ...]:
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


def _in_rows(options: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Returns options as `complete` takes them, the same for `rows` rows, int32 (1,)."""
    found = {
        name: tf.fill(rows, tf.constant(options[name], dtype))
        for name, dtype in _ALL_OPTIONS.items()
    }
    stops = tf.constant([options["stop"] or ("",)], tf.string)
    return {**found, "stop": tf.tile(stops, tf.concat([rows, [1]], axis=0))}


def _checked_stops(stop: str | Sequence[str]) -> tuple[str, ...]:
    """Returns stop strings; ValueError if one is invalid."""
    stops = (stop,) if isinstance(stop, str) or not isinstance(stop, Iterable) else tuple(stop)
    if not all(isinstance(each, str) and each for each in stops):
        raise ValueError(f"stop={stop!r:.100}: pass a non-empty string or a sequence of them")
    for each in stops:
        check_text(f"stop={each!r:.60}", each)
    return stops


def _conversations(chat_template: str | None, tokenizer: Any) -> ConversationTokenizer | None:
    """Returns a template's encoder of conversations, if one is given; ValueError if unusable."""
    if chat_template is None:
        return None
    template = find_chat_template(chat_template)
    if not isinstance(tokenizer, DescribedTokenizer):
        raise ValueError(
            f"chat_template={template.name!r}: conversations need a DescribedTokenizer, not a "
            f"{type(tokenizer).__name__}"
        )
    return ConversationTokenizer(template, tokenizer)


def _cut(text: Any, stop: Any) -> Any:
    """Returns texts (batch,) up to the first of their stop strings (batch, stops)."""

    def before(pair: Any) -> Any:
        line, separator = pair
        # An empty separator would split at white space, and an empty line has no parts.
        parts = tf.strings.split([line], sep=tf.where(separator == "", "\n", separator)).values
        return tf.where(separator == "", line, tf.concat([parts, [""]], axis=0)[0])

    lines = tf.broadcast_to(text[:, None], tf.shape(stop))
    pairs = tf.reshape(lines, [-1]), tf.reshape(stop, [-1])
    starts = tf.map_fn(before, pairs, fn_output_signature=tf.TensorSpec([], tf.string))
    starts = tf.reshape(starts, tf.shape(stop))
    return tf.gather(starts, tf.argmin(tf.strings.length(starts), axis=1), batch_dims=1)


def _with_more(example: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns an example with the options that were added later."""
    rows = len(example["seed"])
    stops = [stop for row in range(rows) for stop in (("\n", "e.") if row % 2 else ("", ""))]
    return {
        **example,
        "repetition_penalty": np.where(np.arange(rows) % 2 == 0, 1.2, 1.0),
        "stop": strings(stops).reshape(rows, 2),
    }


def _example_chat(template: ChatTemplate) -> dict[str, np.ndarray]:
    """Returns two conversations, the first of them shorter."""
    roles = ["user", "assistant", "user"]
    texts = list(_EXAMPLE_CHAT)
    if "system" in template.roles:
        roles, texts = ["system", *roles], ["Answer in a word.", *texts]
    empty = [""] * (len(roles) - 1)
    return {
        "roles": np.stack([strings(["user", *empty]), strings(roles)]),
        "texts": np.stack([strings([texts[-3], *empty]), strings(texts)]),
    }


def _checked_length(model: keras.Model, length: int | None) -> int:
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


def _example_options(rows: int) -> dict[str, np.ndarray]:
    """Returns options for the rows of an example, different in every row."""
    number = np.arange(rows)
    return {
        "max_length": np.where(number == 2, 0, _EXAMPLE_LENGTH),
        "temperature": 0.5 + 0.25 * number,
        "top_k": np.where(number == 1, 0, 5),
        "top_p": np.where(number == 0, 0.9, 1.0),
        "seed": number,
    }


def _read_options(folder: Path) -> dict[str, Any]:
    return {**read_sampling_options(folder), **read_chat_template(folder)}


TASK = Task(name="generation", pipeline=TextGenerator, headless=True, read_options=_read_options)
