"""Turns conversations into tokens by the chat template of a model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.tasks.generation.conversations import Message, conversation_columns
from keras_transformers.tasks.generation.tools import Tool
from keras_transformers.tasks.texts import strings
from keras_transformers.tokenizers.chat_templates import CHAT_TEMPLATES, find_chat_template
from keras_transformers.tokenizers.conversations import ConversationTokenizer
from keras_transformers.tokenizers.described.tokenizer import DescribedTokenizer

__all__: list[str] = []

_QUESTION, _ANSWER, _NEXT_QUESTION = "What is the capital of France?", "Paris.", "And of Spain?"


class Chat:
    """Reads conversations, if the model has a chat template.

    Args:
        chat_template: its name or text; None for a model that only continues prompts.
        tokenizer: the pipeline's.

    Attributes:
        template: the `ChatTemplate`, or None.
        answer_tokenizer: the tokenizer of answers, in which the marks of calls are not left out.

    Raises:
        ValueError: the template is unknown, or the tokenizer is not one of language models.
    """

    def __init__(self, chat_template: str | None, tokenizer: Any) -> None:
        self.template = None if chat_template is None else find_chat_template(chat_template)
        self.answer_tokenizer = tokenizer
        self._tokenize: ConversationTokenizer | None = None
        if self.template is None:
            return
        if not isinstance(tokenizer, DescribedTokenizer):
            raise ValueError(
                f"chat_template={self.template.name!r}: conversations need a DescribedTokenizer, "
                f"not a {type(tokenizer).__name__}"
            )
        self._tokenize = ConversationTokenizer(self.template, tokenizer)
        if self.template.tools is not None:
            self.answer_tokenizer = tokenizer.showing(self.template.tools.call_marks)

    def tokens(self, roles: tf.Tensor, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of conversations, in the graph; see `ConversationTokenizer`.

        Raises:
            ValueError: there is no template.
        """
        return self.required()(roles, texts)

    def required(self) -> ConversationTokenizer:
        """Returns the conversations' tokenizer; ValueError if there is no template."""
        if self._tokenize is None:
            raise ValueError(
                "this model has no chat template: pass chat_template=... with the name of the one "
                f"that it was trained with: {', '.join(CHAT_TEMPLATES)}"
            )
        return self._tokenize

    def columns(
        self, conversations: Sequence[Sequence[Message]], tools: Sequence[Tool] = ()
    ) -> dict[str, tf.Tensor]:
        """Returns `roles` and `texts` of conversations, strings (batch, messages).

        Raises:
            ValueError: a message or a tool is malformed, or the template has no tools.
        """
        roles, texts = conversation_columns(conversations, tools, lambda: self.template)
        return {"roles": tf.constant(roles), "texts": tf.constant(texts)}

    def examples(self) -> dict[str, np.ndarray]:
        """Returns two conversations, the first of them shorter, to check an export with."""
        roles, texts = ["user", "assistant", "user"], [_QUESTION, _ANSWER, _NEXT_QUESTION]
        if self.template is not None and "system" in self.template.roles:
            roles, texts = ["system", *roles], ["Answer in a word.", *texts]
        empty = [""] * (len(roles) - 1)
        return {
            "roles": np.stack([strings(["user", *empty]), strings(roles)]),
            "texts": np.stack([strings([_QUESTION, *empty]), strings(texts)]),
        }
