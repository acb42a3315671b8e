"""Defines the answers of generation: the continuation of a prompt, or a choice between some."""

from dataclasses import dataclass
from typing import Any

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["Generation", "Reply", "Selection", "ToolCall"]


@dataclass(frozen=True, repr=False)
class Generation(Result):
    """The continuation of a prompt, or the answer to a conversation.

    Attributes:
        text: the continuation, without the prompt and without the stop string.
        num_new_tokens: how many tokens were generated.
        log_probability: the sum of their log-probabilities.
        finished: whether the text ended with an end token or a stop string.
        num_prompt_tokens: how many tokens the model read before it, special ones included; None
            from exports of version 1.0.
    """

    text: str
    num_new_tokens: int
    log_probability: float
    finished: bool
    num_prompt_tokens: int | None = None


@dataclass(frozen=True)
class ToolCall:
    """A call that a model asks for.

    Attributes:
        name: the tool's name, which need not be one of those that the model was given.
        arguments: its arguments, which need not fit the tool's schema.
    """

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, repr=False)
class Reply(Generation):
    """The answer to a conversation with tools.

    Attributes:
        content: the text without the calls.
        tool_calls: the calls in it, in their order. What is no call, such as malformed JSON, is
            part of `content`.
    """

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message of the conversation, before those with the tools' results.

        Example:
            >>> Reply("", 9, -0.5, True, tool_calls=(ToolCall("now", {}),)).message["tool_calls"]
            [{'type': 'function', 'function': {'name': 'now', 'arguments': {}}}]
        """
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return message


@dataclass(frozen=True)
class Selection(Result):
    """Which of some texts a language model would write.

    Attributes:
        text: the likeliest of the choices, the first of equals.
        probability: its probability among the choices.
        probabilities: that of each choice, in their order; they add up to 1.
        num_new_tokens: how many tokens the text has, with the end token after it.
        num_prompt_tokens: how many tokens the model read before them, special ones included.
    """

    text: str
    probability: float
    probabilities: list[float]
    num_new_tokens: int
    num_prompt_tokens: int


# The signature `score` counts the tokens of a text.
ANSWER = AnswerType(
    "generation",
    Generation,
    inputs=(("prompt",), ("prompt", "choices")),
    lists=("choices",),
    count="num_tokens",
)
