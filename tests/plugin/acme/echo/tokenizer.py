"""Echo's tokenizer: word pieces between special tokens of its own."""

from collections.abc import Mapping
from typing import ClassVar

from keras_transformers.tokenizers import WordPieceTokenizer


class EchoTokenizer(WordPieceTokenizer):
    """Splits words into word pieces, and packs them as [ECHO] text [END] text [END]."""

    special_names: ClassVar[Mapping[str, str]] = {
        **WordPieceTokenizer.special_names,
        "cls": "[ECHO]",
        "sep": "[END]",
    }


TOKENIZER = EchoTokenizer
