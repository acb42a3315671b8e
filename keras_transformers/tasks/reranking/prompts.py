"""Defines the prompts with which language models judge documents."""

from keras_transformers.files.surrogates import check_text

__all__: list[str] = []

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
# As in Qwen3-Reranker's model card.
PROMPT = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {text}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


class Prompt:
    """A prompt around a query and a document.

    Attributes:
        start: the text before the query.
        middle: the text between the query and the document.
        end: the text after the document.

    Raises:
        ValueError: the prompt does not have one place for each, in this order, or one of the two
            arguments is not a text.
    """

    def __init__(self, prompt: str, instruction: str) -> None:
        for name, text in (("prompt", prompt), ("instruction", instruction)):
            if not isinstance(text, str):
                raise ValueError(f"{name}={text!r:.100}: expected a text")
            check_text(f"{name}: {text!r:.60}", text)
        start, *after = prompt.split("{text}")
        parts = [part for text in after for part in text.split("{document}")]
        if len(after) != 1 or len(parts) != 2 or "{document}" in start:
            raise ValueError(
                f"prompt={prompt!r:.300}: expected {{text}} once, then {{document}} once"
            )
        self.start, self.middle, self.end = (
            part.replace("{instruction}", instruction) for part in (start, *parts)
        )
