"""BART's tokenizer: RoBERTa's, for the sources and targets of an encoder-decoder."""

import os
from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from keras_transformers.tokenizers.byte_pairs.roberta import RobertaTokenizer
from keras_transformers.tokenizers.packing import join
from keras_transformers.tokenizers.tensors import Texts

__all__ = ["BartTokenizer"]


class BartTokenizer(RobertaTokenizer):
    """Byte-level byte-pair encoding as BART uses it (Lewis et al. 2019, arXiv:1910.13461).

    Ids equal those of Hugging Face's BartTokenizer, special tokens in the text split
    (`split_special_tokens=True`). Sources and targets are <s> a </s>; as another </s> starts a
    target, a decoder reads </s> <s> a and writes <s> a </s>.

    Args:
        path: a folder with `vocab.json` and `merges.txt`.
        vocabulary_size: number of tokens of the model that uses this tokenizer. Some models, such
            as BART Large fine-tuned on CNN/DailyMail, lack <mask>, the vocabulary's last token;
            then so does the tokenizer.
        parts: see `BytePairTokenizer`.
        name: name of the module.

    Attributes:
        start_token_id: id of "</s>", which starts a target.
        bos_token_id: id of "<s>", the first token of sources and targets; also `cls_token_id`.
        end_token_id: id of "</s>", the last one.
        pad_token_id: id of "<pad>".
        unknown_token_id: id of "<unk>".

    Raises:
        FileNotFoundError: the folder or one of the two files does not exist.
        ValueError: the files contain no vocabulary, a special token is missing, or there are more
            tokens than `vocabulary_size`, <mask> aside.
    """

    special_names: ClassVar[dict[str, str]] = {
        "bos": "<s>",
        "cls": "<s>",
        "pad": "<pad>",
        "end": "</s>",
        "unknown": "<unk>",
        "mask": "<mask>",
    }
    bos_token_id: int
    cls_token_id: int

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        vocabulary_size: int | None = None,
        parts: Mapping[str, Any] | None = None,
        name: str = "bart_tokenizer",
    ) -> None:
        super().__init__(path, parts=parts, name=name)
        self.start_token_id = self.end_token_id
        self._has_mask = True
        if vocabulary_size is None or vocabulary_size >= self.vocabulary_size:
            return
        if super().vocabulary[vocabulary_size:] != [self.mask_token]:
            raise ValueError(
                f"{path}: {self.vocabulary_size} tokens, but the model only has "
                f"{vocabulary_size}: use the vocabulary that belongs to the weights"
            )
        self.vocabulary_size, self._has_mask = vocabulary_size, False
        del self.mask_token_id

    def tokenize(
        self, text: Texts, *, add_start: bool = False, add_end: bool = False
    ) -> tf.RaggedTensor:
        """Converts texts to token ids.

        Args:
            text: strings (batch,).
            add_start: add the start token and <s> before each row, as decoders read targets.
            add_end: add the end token after each row.

        Returns:
            int32 (batch, None).
        """
        start = [self.start_token_id, self.bos_token_id] if add_start else []
        return join([super().tokenize(text)], [start, [self.end_token_id] if add_end else []])

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids that `pack` adds around segments: <s> a </s></s> b </s>."""
        between = [[self.end_token_id, self.end_token_id]] * (num_segments - 1)
        return [[self.bos_token_id], *between, [self.end_token_id]]

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        size = {} if self._has_mask else {"vocabulary_size": self.vocabulary_size}
        return {**super().config(), **size}

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id; cannot run in a graph."""
        return super().vocabulary[: self.vocabulary_size]
