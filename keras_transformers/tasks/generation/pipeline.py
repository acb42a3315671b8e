"""Generates text: continues a prompt, or scores how likely a text is."""

import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self, overload

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.convert.families import families
from keras_transformers.decoding.rows import ROW_OPTIONS
from keras_transformers.dependencies import graph_errors
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.generation.answer import ANSWER, Generation, Reply, Selection
from keras_transformers.tasks.generation.chat import Chat
from keras_transformers.tasks.generation.choice_lists import choice_columns, selections
from keras_transformers.tasks.generation.choices import Choices
from keras_transformers.tasks.generation.choices import answers as answers_of
from keras_transformers.tasks.generation.conversations import (
    OPTIONS,
    Message,
    as_conversations,
    decoding_options,
)
from keras_transformers.tasks.generation.decoding import Decoder
from keras_transformers.tasks.generation.examples import (
    CHOICES,
    EXAMPLES,
    example_options,
    shortened,
    with_later_options,
)
from keras_transformers.tasks.generation.prompts import (
    Prompts,
    checked_end_token_ids,
    checked_length,
    checked_options,
    in_rows,
)
from keras_transformers.tasks.generation.step_names import CONVERSATIONS, PROMPTS
from keras_transformers.tasks.generation.steps import step_signatures
from keras_transformers.tasks.generation.tokens import as_text, token_bytes
from keras_transformers.tasks.generation.tools import Tool, with_calls
from keras_transformers.tasks.pipeline import Pipeline, Signature, shared
from keras_transformers.tasks.texts import string_column, strings
from keras_transformers.tasks.token_inputs import (
    check_vocabulary,
    one_row,
    text_batches,
    token_names,
)
from keras_transformers.tasks.tracing import traced
from keras_transformers.tokenizers.conversations import ConversationTokenizer
from keras_transformers.tokenizers.protocols import GeneratorTokenizer

__all__ = ["TextGenerator"]

# The options of the signature `generate`, which uses the pipeline's values of those added later.
# `complete` and `chat_complete` take all of them, and `stop`.
_OPTIONS = {name: dtype for name, dtype in ROW_OPTIONS.items() if name != "repetition_penalty"}
# What pipelines share that differ only in the options of decoding, which are inputs of graphs.
_SHARED = ("_graph", "_graphs", "_decoder")
Graph = Callable[..., dict[str, tf.Tensor]]  # of tensors by name
_STRINGS = tf.TensorSpec([None], tf.string)
_LISTS = tf.TensorSpec([None, None], tf.string)


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
      (batch,), log_probability float32 (batch,), finished bool (batch,), num_prompt_tokens int32
      (batch,), with the options below.
    - generate(prompt, max_length int32, temperature float32, top_k int32, top_p float32, seed
      int64, each (batch,)) -> the same, with options per row. The graph rejects options that are
      out of range.
    - complete(the same inputs, repetition_penalty float32 (batch,), stop string (batch, stops)) ->
      the same outputs. "" is not a stop string.
    - chat(roles string (batch, messages), texts string (batch, messages)) -> the same outputs: the
      answer to each conversation, if there is a chat template. "" pads shorter conversations.
    - chat_complete(roles, texts, and all options of `complete`) -> the same outputs.
    - complete_tokens(inputs of `complete`), chat_tokens(inputs of `chat_complete`) -> the same
      outputs, token_bytes string (batch, length), tokens string (batch, length),
      token_log_probabilities float32 (batch, length); see `complete_tokens`.
    - choose(prompt string (batch,), choices string (batch, choices)), chat_choose(roles, texts,
      choices) -> text string (batch,), probability float32 (batch,), probabilities float32 (batch,
      choices), num_new_tokens, num_prompt_tokens int32 (batch,); see `choose`. "" pads shorter rows
      of choices.
    - tokenize(prompt) -> token_ids int32 (batch, length), tokens string (batch, length), num_tokens
      int32 (batch,): the prompt as the model reads it.
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
        tokenizer: GeneratorTokenizer,
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
            types = [family.model_type for family in families() if family.task == self.task]
            raise ValueError(
                f"model {model.name!r} is not a causal language model: use one of the families "
                f"{', '.join(types)}, whose sizes keras_transformers.list_models() names"
            )
        check_vocabulary(model, tokenizer)
        self.model = model
        self.tokenizer = tokenizer
        self._length_argument = max_sequence_length
        self.max_sequence_length = checked_length(model, max_sequence_length)
        self.also_end_token_ids = checked_end_token_ids(tokenizer, also_end_token_ids)
        self.chat_template = chat_template
        self._graphs: dict[str, Graph] = {}
        self._chat = Chat(chat_template, tokenizer)
        self._prompts = Prompts(tokenizer, self.max_sequence_length)
        limits: dict[str, Any] = {
            "longest": self.max_sequence_length,
            "also_end_token_ids": self.also_end_token_ids,
        }
        self._decoder = Decoder(model, self._chat.answer_tokenizer, **limits)
        self._choices = Choices(model, tokenizer, **limits)
        sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        chosen: dict[str, Any] = {n: value for n, value in sampling.items() if value is not None}
        chosen |= {"max_length": max_length, "seed": seed}
        chosen |= {"repetition_penalty": repetition_penalty, "stop": stop}
        options = self._chosen(OPTIONS, chosen)
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

    @property
    def notes(self) -> Mapping[str, str]:
        """The name of the chat template, if there is one; see `Pipeline.notes`."""
        template = self._chat.template
        notes = {} if template is None else {reading.CHAT_SIGNATURE: template.name}
        return MappingProxyType(notes)

    def conversation_tokenizer(self) -> ConversationTokenizer:
        """Returns what converts conversations to tokens; ValueError without a chat template."""
        return self._chat.required()

    def with_options(self, **options: Any) -> Self:
        """Returns another pipeline on the same model; see `Pipeline`.

        A `temperature` or a `top_p` makes a greedy pipeline sample from all tokens, if `top_k` is
        not given.
        """
        chosen = {name: value for name, value in options.items() if name in OPTIONS}
        decoding = self._chosen(self.options, chosen)
        other = super().with_options(**options | decoding)
        if len(chosen) == len(options):
            vars(other).update({n: vars(self)[n] for n in _SHARED if n in vars(self)})
        return other

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Continues each prompt with the pipeline's options, in the graph; see `generate`.

        Args:
            **texts: `prompt`, strings (batch,).
        """
        rows = tf.shape(texts["prompt"])[:1]
        return self.complete(texts["prompt"], **in_rows(self.options, rows))

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None,)."""
        return {
            "text": _STRINGS,
            "num_new_tokens": tf.TensorSpec([None], tf.int32),
            "log_probability": tf.TensorSpec([None], tf.float32),
            "finished": tf.TensorSpec([None], tf.bool),
            "num_prompt_tokens": tf.TensorSpec([None], tf.int32),
        }

    def read_tokens(self, **texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of each prompt, int32 (batch, None), also of one that is too long."""
        return self._prompt_tokens(texts["prompt"])

    def generate(
        self,
        prompt: tf.Tensor,
        max_length: tf.Tensor,
        temperature: tf.Tensor,
        top_k: tf.Tensor,
        top_p: tf.Tensor,
        seed: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
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
            maximum length; `num_prompt_tokens` int32 (batch,), those of the prompt as the model
            reads it, special ones included.

        Raises:
            tf.errors.InvalidArgumentError: an option is out of range or does not have one value per
                prompt, or a prompt is longer than the model's positions.
        """
        defaults = in_rows(self.options, tf.shape(prompt)[:1])
        values = (max_length, temperature, top_k, top_p, seed)
        return self.complete(prompt, **defaults | dict(zip(_OPTIONS, values, strict=True)))

    def complete(
        self, prompt: tf.Tensor, *, stop: tf.Tensor, **options: tf.Tensor
    ) -> dict[str, tf.Tensor]:
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
        return self._answers(self._rows_of_prompts(prompt, stop=stop, **options))

    def complete_tokens(
        self, prompt: tf.Tensor, *, stop: tf.Tensor, **options: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Samples a continuation of each prompt and returns its tokens too, in the graph.

        Args:
            prompt: strings (batch,).
            stop: see `complete`.
            **options: see `complete`.

        Returns:
            The outputs of `complete`. `token_bytes` strings (batch, length), what each new token
            adds to the text: "" for an end token, and bytes that are no UTF-8 for a part of a
            character. `tokens` strings (batch, length), the same with U+FFFD for such bytes.
            `token_log_probabilities` float32 (batch, length). All are "" and 0 after
            `num_new_tokens`. A stop string is in the tokens, though not in the text.

        Raises:
            tf.errors.InvalidArgumentError: as for `generate`.
        """
        return self._answers_and_tokens(self._rows_of_prompts(prompt, stop=stop, **options))

    def chat_complete(
        self, roles: tf.Tensor, texts: tf.Tensor, *, stop: tf.Tensor, **options: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Samples an answer to each conversation, in the graph, with all options.

        Names of special tokens in `texts` are ordinary text, so no message can end its turn early.

        Args:
            roles: strings (batch, messages), such as "system", "user" and "assistant"; "" pads
                shorter conversations. If the chat template has tools, also "tools" for each tool,
                "tool_call" for each call of the answer before it, and "tool" for each result.
            texts: strings (batch, messages), the content of each message: of a tool as the template
                writes it, of a call JSON with its `name` and `arguments`.
            stop: see `complete`.
            **options: see `complete`.

        Returns:
            The outputs of `complete`.

        Raises:
            ValueError: the pipeline has no chat template.
            tf.errors.InvalidArgumentError: as for `generate`; or the chat template lacks a role or
                does not allow it in that place, or the last message is neither the user's nor a
                tool's.
        """
        return self._answers(self._rows_of_conversations(roles, texts, stop=stop, **options))

    def chat_tokens(
        self, roles: tf.Tensor, texts: tf.Tensor, *, stop: tf.Tensor, **options: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Samples an answer to each conversation and returns its tokens too, in the graph.

        Args:
            roles: see `chat_complete`.
            texts: see `chat_complete`.
            stop: see `complete`.
            **options: see `complete`.

        Returns:
            The outputs of `complete_tokens`.

        Raises:
            ValueError: as for `chat_complete`.
            tf.errors.InvalidArgumentError: as for `chat_complete`.
        """
        rows = self._rows_of_conversations(roles, texts, stop=stop, **options)
        return self._answers_and_tokens(rows)

    @overload
    def chat(
        self, messages: Sequence[Message], *, tools: None = None, **options: Any
    ) -> Generation: ...

    @overload
    def chat(
        self, messages: Sequence[Sequence[Message]], *, tools: None = None, **options: Any
    ) -> list[Generation]: ...

    @overload
    def chat(
        self, messages: Sequence[Message], *, tools: Sequence[Tool], **options: Any
    ) -> Reply: ...

    @overload
    def chat(
        self, messages: Sequence[Sequence[Message]], *, tools: Sequence[Tool], **options: Any
    ) -> list[Reply]: ...

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        *,
        tools: Sequence[Tool] | None = None,
        **options: Any,
    ) -> Generation | Sequence[Generation]:
        """Answers one conversation or several.

        Args:
            messages: a sequence of {"role": ..., "content": ...}, ending with a message from the
                user; or a sequence of such sequences. With tools, an assistant's message may have
                `tool_calls`, as OpenAI and transformers have them, and the results follow it as
                {"role": "tool", "content": ...}, in the order of the calls.
            tools: what the model may call: {"type": "function", "function": {"name": ...,
                "description": ..., "parameters": JSON schema}} each. Nothing is called here: the
                answer says what to call.
            **options: those of `complete`, each with one value for all conversations, the
                pipeline's by default; `stop` is a string or a sequence of strings. As in a call,
                `temperature` or `top_p` without `top_k` makes a greedy pipeline sample.

        Returns:
            A `results.Generation` for one conversation, or a `results.Reply` if `tools` is given; a
            list for several.

        Raises:
            ValueError: a message, a tool or an option has the wrong form or is out of range, the
                pipeline has no chat template, the template has no tools, lacks a role or does not
                allow it in that place, or the conversation is longer than the model's positions.

        Example:
            answer = generate.chat([{"role": "user", "content": "What is the capital of France?"}])
        """
        self._chat.required()
        chosen = self._chosen(self.options, options)
        conversations, one = as_conversations(messages)
        if not conversations:
            return []
        rows = in_rows(chosen, tf.constant([len(conversations)]))
        columns = self._chat.columns(conversations, tools or ())
        with graph_errors.as_value_errors():
            tensors = self._chat_graph(**columns, **rows)
            outputs = {name: value.numpy() for name, value in tensors.items()}
        answers = [Generation(**row) for row in reading.rows(outputs, [], ANSWER)]
        if tools is not None:
            answers = [with_calls(answer, self._chat.template) for answer in answers]
        return answers[0] if one else answers

    @overload
    def choose(  # type: ignore[overload-overlap]
        self, prompt: str | bytes, choices: Sequence[str | bytes]
    ) -> Selection: ...

    @overload
    def choose(
        self,
        prompt: Sequence[str | bytes],
        choices: Sequence[str | bytes] | Sequence[Sequence[str | bytes]],
    ) -> list[Selection]: ...

    def choose(self, prompt: Any, choices: Any) -> Selection | list[Selection]:
        """Finds which of some texts the model would write after a prompt, and how probably.

        The probability of a choice is that the model writes its tokens and then an end token, as a
        share of the choices' sum. So "a" and "ab" are different texts, and the model writes nothing
        but one of them. Options of decoding, such as `temperature`, have no effect on it. A choice
        is read as a text of its own and follows the prompt as it is: after a prompt without a space
        at its end, most tokenizers need choices with one at their beginning, such as " Paris".

        Args:
            prompt: one text, or a sequence of them.
            choices: strings, none of them empty or there twice; or for several prompts also a
                sequence of strings for each.

        Returns:
            A `results.Selection` for one prompt; a list for several.

        Raises:
            ValueError: a list of choices is empty or has a choice twice, a choice is empty, does
                not fit into the model's positions after the prompt, or is a text that the tokenizer
                cannot write exactly. The message says which.

        Example:
            generate.choose("The capital of France is", [" Paris", " Rome"]).text
        """
        one = isinstance(prompt, str | bytes)
        prompts = string_column("prompt", [prompt] if one else prompt)
        graph = self._traced(self.choose_completion, ("prompt", "choices"), {})
        return self._selections(graph, {"prompt": tf.constant(prompts)}, choices, one=one)

    @overload
    def choose_chat(
        self,
        messages: Sequence[Message],
        choices: Sequence[str | bytes],
        *,
        tools: Sequence[Tool] | None = None,
    ) -> Selection: ...

    @overload
    def choose_chat(
        self,
        messages: Sequence[Sequence[Message]],
        choices: Sequence[str | bytes] | Sequence[Sequence[str | bytes]],
        *,
        tools: Sequence[Tool] | None = None,
    ) -> list[Selection]: ...

    def choose_chat(
        self, messages: Any, choices: Any, *, tools: Sequence[Tool] | None = None
    ) -> Selection | list[Selection]:
        """Finds which of some answers the model would give to a conversation; see `choose`.

        Args:
            messages: see `chat`.
            choices: see `choose`.
            tools: see `chat`.

        Returns:
            A `results.Selection` for one conversation; a list for several.

        Raises:
            ValueError: as for `chat` and `choose`.
        """
        self._chat.required()
        conversations, one = as_conversations(messages)
        if not conversations:
            return []
        columns = self._chat.columns(conversations, tools or ())
        graph = self._traced(self.choose_answer, ("roles", "texts", "choices"), {})
        return self._selections(graph, columns, choices, one=one)

    def _selections(
        self, graph: Graph, columns: Mapping[str, tf.Tensor], choices: Any, *, one: bool
    ) -> Selection | list[Selection]:
        number = len(next(iter(columns.values())))
        lists = choice_columns(choices, number)
        with graph_errors.as_value_errors():
            tensors = graph(**columns, choices=tf.constant(lists, tf.string))
        outputs = {name: value.numpy() for name, value in tensors.items()}
        answers = selections(list(reading.rows(outputs, [], ANSWER)), lists)
        return answers[0] if one else answers

    def stream(self, prompt: str | bytes, **options: Any) -> Generator[str, None, Generation]:
        """Continues a prompt and yields the text piece by piece, as the model writes it.

        Joined, the pieces are the text of a call with the same options. A piece has whole
        characters, and nothing of a stop string; most steps yield one. Each step is computed when
        the next piece is asked for, so a loop that is left, or a generator that is closed, computes
        no other.

        Args:
            prompt: one text.
            **options: those of a call.

        Yields:
            The pieces, none of them empty.

        Returns:
            The `results.Generation` of the call: the value of `yield from`, or of `StopIteration`.

        Raises:
            ValueError: as in a call, before the first piece.

        Example:
            for piece in generate.stream("The old man and", max_length=100):
                print(piece, end="", flush=True)
        """
        chosen = self._chosen(self.options, options)
        graph = self._traced(self._rows_of_prompts, ("prompt",))
        return self._stream(graph, chosen, prompt=one_row("prompt", prompt))

    @overload
    def stream_chat(
        self, messages: Sequence[Message], *, tools: None = None, **options: Any
    ) -> Generator[str, None, Generation]: ...

    @overload
    def stream_chat(
        self, messages: Sequence[Message], *, tools: Sequence[Tool], **options: Any
    ) -> Generator[str, None, Reply]: ...

    def stream_chat(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] | None = None, **options: Any
    ) -> Generator[str, None, Generation]:
        """Answers one conversation and yields the answer piece by piece; see `stream`.

        Args:
            messages: see `chat`.
            tools: see `chat`.
            **options: those of `chat`.

        Yields:
            The pieces; joined, they are the text of `chat`, with its calls.

        Returns:
            The `results.Generation` or `results.Reply` of `chat`.

        Raises:
            ValueError: as in `chat`, before the first piece.
        """
        self._chat.required()
        chosen = self._chosen(self.options, options)
        conversations, one = as_conversations(messages)
        if not one and len(conversations) != 1:
            raise ValueError(
                f"{len(conversations)} conversations: stream_chat answers one; chat answers several"
            )
        columns = self._chat.columns(conversations, tools or ())
        graph = self._traced(self._rows_of_conversations, ("roles", "texts"))
        pieces = self._stream(graph, chosen, **columns)
        return pieces if tools is None else self._with_calls(pieces)

    def _with_calls(
        self, pieces: Generator[str, None, Generation]
    ) -> Generator[str, None, Generation]:
        answer = yield from pieces
        return with_calls(answer, self._chat.template)

    def _stream(
        self, rows_graph: Graph, options: Mapping[str, Any], **texts: tf.Tensor
    ) -> Generator[str, None, Generation]:
        columns = in_rows(options, tf.constant([1]))
        with graph_errors.as_value_errors():
            rows = rows_graph(**texts, **columns)
            return self._decoder.stream(rows)

    def _answers_with(self, options: Mapping[str, Any]) -> Graph:
        """Returns what answers a call with these options, all of them inputs of one graph."""
        chosen = self._chosen(self.options, options)
        return lambda prompt: self._graph(prompt=prompt, **in_rows(chosen, tf.shape(prompt)[:1]))

    def _chosen(self, defaults: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns all options of decoding; ValueError if one is unknown or out of range."""
        chosen = decoding_options(defaults, options)
        return checked_options(chosen, self.tokenizer.vocabulary_size)

    @functools.cached_property
    def _graph(self) -> Graph:
        """Computes `complete`, in the graph."""
        return self._traced(self.complete, ("prompt",))

    @property
    def _chat_graph(self) -> Graph:
        """Computes `chat_complete`, in the graph."""
        return self._traced(self.chat_complete, ("roles", "texts"))

    def _traced(
        self,
        function: Graph,
        names: Sequence[str],
        options: Mapping[str, tf.DType] = ROW_OPTIONS,
    ) -> Graph:
        """Returns the graph of a method that takes these texts and options, traced once."""
        if function.__name__ not in self._graphs:
            specs = self._input_specs(names, options)
            named = {name: tf.TensorSpec(s.shape, s.dtype, name=name) for name, s in specs.items()}
            self._graphs[function.__name__] = traced(function, **named)
        return self._graphs[function.__name__]

    def _rows_of_prompts(
        self, prompt: tf.Tensor, *, stop: tf.Tensor, **options: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        return self._prompts.rows(self._prompt_tokens(prompt), "prompt", stop, options)

    def _rows_of_conversations(
        self, roles: tf.Tensor, texts: tf.Tensor, *, stop: tf.Tensor, **options: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        tokens = self._conversation_tokens(roles=roles, texts=texts)
        return self._prompts.rows(tokens, "conversation", stop, options)

    def _prompt_tokens(self, prompt: tf.Tensor) -> tf.RaggedTensor:
        tokens = self._text_tokens(text=prompt)
        with tf.device("CPU:0"):  # ragged ops run only on the CPU
            return self._prompts.to_continue(self._prompts.with_start(tokens))

    @shared
    def _text_tokens(self, text: tf.Tensor) -> tf.RaggedTensor:
        with tf.device("CPU:0"):  # string ops run only on the CPU
            return self.tokenizer.tokenize(text)

    @shared
    def _conversation_tokens(self, roles: tf.Tensor, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._chat.tokens(roles, texts)

    def _answers(self, rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        sampled = self._sample(**rows)
        return {name: sampled[name] for name in self.answer_specs()}

    def _answers_and_tokens(self, rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        sampled = self._sample(**rows)
        lengths = sampled["num_new_tokens"]
        pieces = token_bytes(self.tokenizer, sampled.pop("token_ids"), lengths)
        return {**sampled, "token_bytes": pieces, "tokens": as_text(pieces)}

    @shared
    def _sample(self, **rows: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._decoder.sample_tokens(**rows)

    def choose_completion(self, prompt: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the probabilities of choices after prompts, in the graph; see `choose`.

        Args:
            prompt: strings (batch,).
            choices: strings (batch, choices), where "" pads shorter rows.

        Returns:
            `text` strings (batch,), the likeliest choice, the first of equals; `probability`
            float32 (batch,), its probability; `probabilities` float32 (batch, choices), 0 for
            padding; `num_new_tokens` int32 (batch,), those of `text` and the end token;
            `num_prompt_tokens` int32 (batch,).

        Raises:
            tf.errors.InvalidArgumentError: a row has no choice, one twice, one that does not fit
                into the positions, or one that is not exactly the text of its tokens.
        """
        return self._chosen_of(self._prompt_tokens(prompt), "prompt", choices)

    def choose_answer(
        self, roles: tf.Tensor, texts: tf.Tensor, choices: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Computes the probabilities of answers to conversations, in the graph.

        Args:
            roles: see `chat_complete`.
            texts: see `chat_complete`.
            choices: see `choose_completion`.

        Returns:
            The outputs of `choose_completion`.

        Raises:
            ValueError: the pipeline has no chat template.
            tf.errors.InvalidArgumentError: as for `choose_completion` and `chat_complete`.
        """
        tokens = self._conversation_tokens(roles=roles, texts=texts)
        return self._chosen_of(tokens, "conversation", choices)

    def _chosen_of(
        self, tokens: tf.RaggedTensor, what: str, choices: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        rows = self._prompts.read(tokens, what)
        pairs = self._choices.rows(choices, rows["num_tokens"], self._text_tokens)
        scores = self._scores(**rows, **pairs)
        return answers_of(choices, scores, pairs["lengths"], rows["num_tokens"])

    @shared
    def _scores(self, **rows: tf.Tensor) -> tf.Tensor:
        return self._choices.scores(**rows)

    def read(self, *texts: Any) -> dict[str, list[str]]:
        """Runs the model once on one text, after the start token; see `Pipeline.read`."""
        (text,) = texts
        token_ids = self._prompts.tokens(one_row("prompt", text)).to_tensor()
        self.run_model(
            dict.fromkeys(self.model.input, tf.zeros_like(token_ids)) | {"token_ids": token_ids}
        )
        return {"target": token_names(self.tokenizer, token_ids)}

    def prompt_ids(self, prompt: str | bytes) -> tf.Tensor:
        """Returns the tokens of one prompt as the model reads them to continue it.

        Returns:
            int32 (1, tokens), at least one: the start token comes first if the tokenizer puts it
            before every text, or if the prompt is empty.
        """
        return self._prompt_tokens(one_row("prompt", prompt)).to_tensor()

    def watch_greedy(
        self, prompt: str | bytes, on_logits: Callable[[tf.Tensor], None], *, max_length: int
    ) -> dict[str, list[str]]:
        """Continues one prompt with the likeliest token each time, whatever the options say.

        Args:
            prompt: one text.
            on_logits: called after each step with the logits (1, vocabulary) of the next token.
            max_length: how many tokens to add at most, as far as the model has positions.

        Returns:
            The tokens, under the names of `Pipeline.read`: one in `predicted` for each step.
        """
        token_ids = self.prompt_ids(prompt)
        search = self._decoder.greedy(token_ids, on_logits, max_length=max_length)
        predicted = search.token_ids[:, 0, : search.lengths[0, 0]]
        read = tf.concat([token_ids, predicted], axis=1)
        return {
            "target": token_names(self.tokenizer, read[:, :-1]),
            "predicted": token_names(self.tokenizer, predicted),
        }

    def score(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
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
        tokens = self._text_tokens(text=text)
        with tf.device("CPU:0"):
            tokens = self._prompts.with_start(tokens)
            num_tokens = tf.cast(tokens.row_lengths(), tf.int32) - 1  # without the start token
            checks = [self._prompts.length_check(num_tokens, "text")]
            token_ids = self._prompts.padded(tokens, checks, width=2)
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
            examples = [text[:room] for text in EXAMPLES]
        batch, _, empty = text_batches(examples, self.text_names, long=0)
        for prompt in batch["prompt"]:
            num_tokens = self._prompts.tokens(tf.constant([prompt])).row_lengths()[0]
            if num_tokens > self.max_sequence_length:
                raise ValueError(
                    f"example {prompt.decode()!r}: {num_tokens} tokens with the start token, but "
                    f"the model has {self.max_sequence_length} positions: use shorter examples"
                )
        awkward = strings([text[:room] for text in (b"", b"\xff\xfe is no UTF-8 \x00", b"  \n")])
        return [batch, {"prompt": awkward}, empty]

    def signatures(self, examples: Sequence[Any] | None = None) -> dict[str, Signature]:
        """Returns the signatures of an export, with only one example for `serving_default`.

        Its texts are long, and where two tokens are almost equally likely, rounding may make the
        graph and eager execution draw different tokens. `generate` gets all examples.
        """
        signatures = super().signatures(examples)
        default = signatures["serving_default"]
        first = {"prompt": default.examples[0]["prompt"][:1]}
        return signatures | {"serving_default": replace(default, examples=[first])}

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `generate` and `complete`, with options per row, `score`, and those for chat."""
        prompts = [{**batch, **example_options(len(batch["prompt"]))} for batch in batches]
        scored = {
            "log_probability": tf.TensorSpec([None], tf.float32),
            "tokens": tf.TensorSpec([None, None], tf.string),
            "token_log_probabilities": tf.TensorSpec([None, None], tf.float32),
            "num_tokens": tf.TensorSpec([None], tf.int32),
        }
        of_tokens = {
            "token_bytes": tf.TensorSpec([None, None], tf.string),
            "tokens": tf.TensorSpec([None, None], tf.string),
            "token_log_probabilities": tf.TensorSpec([None, None], tf.float32),
        }
        texts = [{"text": batch["prompt"]} for batch in batches]
        answers = self.answer_specs()

        def signature(
            function: Graph,
            names: Sequence[str],
            options: Mapping[str, tf.DType],
            examples: Sequence[Mapping[str, np.ndarray]],
            **more: tf.TensorSpec,
        ) -> Signature:
            outputs = answers | more
            return Signature(function, self._input_specs(names, options), outputs, examples)

        more = list(map(with_later_options, prompts[:1]))
        signatures = {
            "generate": signature(self.generate, ("prompt",), _OPTIONS, prompts),
            "score": Signature(self.score, {"text": _STRINGS}, scored, texts),
            "complete": signature(self.complete, ("prompt",), ROW_OPTIONS, more),
            "complete_tokens": signature(
                self.complete_tokens,
                ("prompt",),
                ROW_OPTIONS,
                list(map(shortened, more)),
                **of_tokens,
            ),
        }
        selected = {
            "text": _STRINGS,
            "probability": tf.TensorSpec([None], tf.float32),
            "probabilities": tf.TensorSpec([None, None], tf.float32),
            "num_new_tokens": tf.TensorSpec([None], tf.int32),
            "num_prompt_tokens": tf.TensorSpec([None], tf.int32),
        }

        def choosing(function: Graph, texts: Sequence[Mapping[str, np.ndarray]]) -> Signature:
            names = (*texts[0], "choices")
            tokens = [self._tokens_of(batch) for batch in texts]
            examples = [
                {**batch, "choices": column}
                for batch, rows in zip(texts, tokens, strict=True)
                if (column := self._example_choices(rows)).size or not len(column)
            ]
            return Signature(function, self._input_specs(names, {}), selected, examples)

        signatures["choose"] = choosing(self.choose_completion, [batches[0], batches[-1]])
        if self._chat.template is not None:
            chat = self._chat.examples()
            last = {name: column[1:] for name, column in chat.items()}  # see `signatures`
            names, more = tuple(chat), [with_later_options({**chat, **example_options(2)})]
            signatures["chat"] = signature(self._answer_chat, names, {}, [last])
            signatures["chat_complete"] = signature(self.chat_complete, names, ROW_OPTIONS, more)
            signatures["chat_tokens"] = signature(
                self.chat_tokens, names, ROW_OPTIONS, list(map(shortened, more)), **of_tokens
            )
            signatures["chat_choose"] = choosing(self.choose_answer, [chat])
        return signatures

    def step_signatures(self) -> dict[str, Signature]:
        """Returns the signatures with which a server writes texts step by step."""
        begins: dict[str, Any] = {
            PROMPTS: (self._rows_of_prompts, self._input_specs(("prompt",), ROW_OPTIONS))
        }
        if self._chat.template is not None:
            specs = self._input_specs(("roles", "texts"), ROW_OPTIONS)
            begins[CONVERSATIONS] = (self._rows_of_conversations, specs)
        return step_signatures(self._decoder, begins)

    def _tokens_of(self, batch: Mapping[str, np.ndarray]) -> tf.RaggedTensor:
        """Returns the tokens of example prompts or conversations."""
        texts = {name: tf.constant(column, tf.string) for name, column in batch.items()}
        return self._prompt_tokens(**texts) if "prompt" in batch else self._chat.tokens(**texts)

    def _example_choices(self, tokens: tf.RaggedTensor) -> np.ndarray:
        """Returns choices for example rows, as far as they fit and the tokenizer can write them."""
        room = self.max_sequence_length - int(max([0, *tokens.row_lengths().numpy()]))
        ids = self.tokenizer.tokenize(CHOICES)
        written = self.tokenizer.detokenize(ids).numpy()
        kept = [
            choice
            for choice, token_ids, text in zip(CHOICES, ids.to_list(), written, strict=True)
            if text == choice.encode() and len(token_ids) <= room
        ]
        rows = [kept[row % 2 :] or kept for row in range(int(tokens.nrows()))]
        return string_column("choices", rows, rank=2)

    def _answer_chat(self, roles: tf.Tensor, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers conversations with the pipeline's options, in the graph."""
        return self.chat_complete(roles, texts, **in_rows(self.options, tf.shape(roles)[:1]))

    def _input_specs(
        self, names: Sequence[str], options: Mapping[str, tf.DType]
    ) -> dict[str, tf.TensorSpec]:
        """Returns the inputs of a signature; with all options, they include the stop strings."""
        specs = {name: _STRINGS if name == "prompt" else _LISTS for name in names}
        specs |= {name: tf.TensorSpec([None], dtype) for name, dtype in options.items()}
        return specs | ({"stop": _LISTS} if options == ROW_OPTIONS else {})

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        arguments = {
            "max_sequence_length": self._length_argument,
            "also_end_token_ids": list(self.also_end_token_ids) or None,
            "repetition_penalty": None if self.repetition_penalty == 1 else self.repetition_penalty,
            "stop": list(self.stop) or None,
            "chat_template": self.chat_template,
        }
        arguments = {name: value for name, value in arguments.items() if value is not None}
        arguments |= {"max_length": self.max_length, "seed": self.seed}
        sampling = {name: self.options[name] for name in ("temperature", "top_k", "top_p")}
        is_greedy = all(value == OPTIONS[name] for name, value in sampling.items())
        return arguments if is_greedy else arguments | sampling

    def metadata(self) -> dict[str, Any]:
        """Returns what an export records besides the model and the vocabulary."""
        chat = self._chat.template
        return {
            "lengths": {"num_tokens": ["tokens", "token_log_probabilities"]},
            **self.options,
            "max_sequence_length": self.max_sequence_length,
            "stop": list(self.stop),
            **({} if chat is None else {"chat": {"template": chat.name, "roles": [*chat.roles]}}),
        }

    @property
    def tokenizers(self) -> Mapping[str, Any]:
        """The tokenizers, keyed by the names of their arguments; read only."""
        return MappingProxyType({"tokenizer": self.tokenizer})
