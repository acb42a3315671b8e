"""RoBERTa's tokenizer: GPT-2's byte-level byte pairs between BERT-like special tokens."""

from collections.abc import Sequence
from typing import ClassVar

from keras_transformers.tokenizers.byte_pairs.tokenizer import BytePairTokenizer
from keras_transformers.tokenizers.packing import RobertaPacking

__all__ = ["RobertaTokenizer"]


class RobertaTokenizer(RobertaPacking, BytePairTokenizer):
    """Byte-level byte-pair encoding as RoBERTa uses it (Liu et al. 2019, arXiv:1907.11692).

    Ids equal those of Hugging Face's RobertaTokenizer, special tokens in the text split
    (`split_special_tokens=True`). One text is packed as <s> a </s>, a pair as <s> a </s></s> b
    </s>.

    Args:
        path: a folder with `vocab.json` and `merges.txt`.
        name: name of the module.

    Attributes:
        mask_token: "<mask>".
        mask_token_id: its id; also `start_token_id` of "<s>", `end_token_id` of "</s>",
            `pad_token_id` of "<pad>", `unknown_token_id` of "<unk>".

    Raises:
        FileNotFoundError: the folder or one of the two files does not exist.
        ValueError: the files contain no vocabulary, or a special token is missing.
    """

    special_names: ClassVar[dict[str, str]] = {
        "start": "<s>",
        "pad": "<pad>",
        "end": "</s>",
        "unknown": "<unk>",
        "mask": "<mask>",
    }
    # GPT-2's special token, and fairseq's padding of the vocabulary: no text contains them.
    unused_tokens: ClassVar[Sequence[str]] = (
        "<|endoftext|>",
        *(f"madeupword{number:04}" for number in range(3)),
    )
    mask_token_id: int
    unknown_token_id: int
