"""Defines the answers of generation: the continuation of a prompt, or a choice between some."""

from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["Generation", "Selection"]


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
