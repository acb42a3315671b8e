"""MPNet's tokenizer: BERT's word pieces between RoBERTa's special tokens."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from keras_transformers.tokenizers.packing import RobertaPacking
from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

__all__ = ["MPNetTokenizer"]


class MPNetTokenizer(RobertaPacking, WordPieceTokenizer):
    """WordPiece as MPNet uses it (Song et al. 2020, arXiv:2004.09297).

    Texts are split as by `WordPieceTokenizer`. Ids equal those of Hugging Face's MPNetTokenizer,
    special tokens in the text split (`split_special_tokens=True`). One text is packed as <s> a
    </s>, a pair as <s> a </s></s> b </s>. There are no segment ids.

    Args:
        vocabulary: a file with one token per line, or the tokens, in the order of their ids. <s>
            <pad> </s> [UNK] <mask> must be included; [UNK], not <unk>, is the unknown token.
        lowercase: lower-case texts and strip accents, as MPNet-base does.
        parts: see `WordPieceTokenizer`.
        name: name of the module.

    Attributes:
        start_token_id: id of <s>, also called `cls_token_id`.
        end_token_id: id of </s>, also called `sep_token_id`.
        pad_token_id: id of <pad>.
        unknown_token_id: id of [UNK].
        mask_token: "<mask>".
        mask_token_id: its id.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8, a token is empty or repeated (the message names file and
            line), or a special token is missing.

    Example:
        >>> tokenizer = MPNetTokenizer(
        ...     ["<s>", "<pad>", "</s>", "[UNK]", "good", "film", "##s", "<mask>"]
        ... )
        >>> packed = tokenizer(["Good films", "film"], ["good", "x"], max_sequence_length=16)
        >>> packed["token_ids"].numpy().tolist()
        [[0, 4, 5, 6, 2, 2, 4, 2], [0, 5, 2, 2, 3, 2, 1, 1]]
    """

    special_names: ClassVar[Mapping[str, str]] = {
        "cls": "<s>",
        "pad": "<pad>",
        "sep": "</s>",
        "unknown": "[UNK]",
        "mask": "<mask>",
    }

    def __init__(
        self,
        vocabulary: str | os.PathLike[str] | Sequence[str],
        *,
        lowercase: bool = True,
        parts: Mapping[str, Any] | None = None,
        name: str = "mpnet_tokenizer",
    ) -> None:
        super().__init__(vocabulary, lowercase=lowercase, parts=parts, name=name)
        self.start_token_id = self.cls_token_id
        self.end_token_id = self.sep_token_id
