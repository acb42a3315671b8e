"""CamemBERT's tokenizer: SentencePiece with fairseq's ids and RoBERTa's packing."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformers.tokenizers.sentence_pieces.fairseq import FairseqPieces

__all__ = ["CamembertTokenizer"]


class CamembertTokenizer(FairseqPieces):
    """SentencePiece as CamemBERT uses it (Martin et al. 2020, arXiv:1911.03894).

    A piece's id is four more than in the SentencePiece model, because fairseq puts <s>NOTUSED <pad>
    </s>NOTUSED <unk> <unk>NOTUSED first; <mask> is last. One text is packed as <s> a </s>, a pair
    as <s> a </s></s> b </s>. All methods run in the graph. Ids equal those of Hugging Face's
    CamembertTokenizer, except that a special token's name in a text is ordinary text, and that
    either of two equally likely ways to split a word may be chosen ("AA" "A" or "A" "AA").

    Unusual text:
      - White space ends a word; runs of it are one space. The model's normalization converts other
        characters; CamemBERT's own applies Unicode NFKC.
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
        pad_token_id: 1, id of <pad>.
        unknown_token_id: 3, id of <unk>.
        start_token_id: 5, id of <s>.
        end_token_id: 6, id of </s>.
        mask_token: "<mask>".
        mask_token_id: the last id before added tokens.
        own_tokens: the tokens whose names in a text are ordinary text.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, its first pieces are not <unk>, <s>, </s>, or
            added tokens do not fit: see `AddedPieces`.
    """

    first_tokens = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED")
    offset = 4
    pad_token_id = 1
    unknown_token_id = 3
    start_token_id = 5
    end_token_id = 6

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "camembert_tokenizer",
    ) -> None:
        super().__init__(path, added_tokens=added_tokens, name=name)
