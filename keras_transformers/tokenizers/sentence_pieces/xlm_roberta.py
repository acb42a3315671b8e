"""XLM-RoBERTa's tokenizer: SentencePiece with fairseq's ids and RoBERTa's packing."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformers.tokenizers.sentence_pieces.fairseq import FairseqPieces

__all__ = ["XlmRobertaTokenizer"]


class XlmRobertaTokenizer(FairseqPieces):
    """SentencePiece as XLM-RoBERTa uses it (Conneau et al. 2019, arXiv:1911.02116).

    A piece's id is one more than in the SentencePiece model, because fairseq puts <s> <pad> </s>
    <unk> first; <mask> is last. One text is packed as <s> a </s>, a pair as <s> a </s></s> b </s>.
    All methods run in the graph. Ids equal those of Hugging Face's XLMRobertaTokenizer, except that
    a special token's name in a text is ordinary text, and that either of two equally likely ways to
    split a word may be chosen ("AA" "A" or "A" "AA").

    Unusual text:
      - White space ends a word; runs of it are one space. The model's normalization converts other
        characters; XLM-RoBERTa's own applies Unicode NFKC.
      - Characters that the model does not know and invalid UTF-8 become the unknown token,
        neighbours together.
      - Empty or blank text has no tokens.

    Args:
        path: a SentencePiece model, or a folder with `sentencepiece.bpe.model`.
        added_tokens: more tokens, after <mask>: `id`, `content` and flags, as in the `added_tokens`
            of a tokenizer.json. Their names in a text are these tokens.
        name: name of the module.

    Attributes:
        vocabulary_size: the number of tokens.
        start_token_id: 0, id of <s>.
        pad_token_id: 1, id of <pad>.
        end_token_id: 2, id of </s>.
        unknown_token_id: 3, id of <unk>.
        mask_token: "<mask>".
        mask_token_id: the last id before added tokens.
        own_tokens: the tokens whose names in a text are ordinary text.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, its first pieces are not <unk>, <s>, </s>, or
            added tokens do not fit: see `AddedPieces`.
    """

    first_tokens = ("<s>", "<pad>", "</s>", "<unk>")
    offset = 1
    start_token_id = 0
    pad_token_id = 1
    end_token_id = 2
    unknown_token_id = 3

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "xlm_roberta_tokenizer",
    ) -> None:
        super().__init__(path, added_tokens=added_tokens, name=name)
