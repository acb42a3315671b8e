"""The tokenizers of mBART and mBART-50: SentencePiece with fairseq's ids, and languages."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformers.tokenizers.packing import Packing
from keras_transformers.tokenizers.sentence_pieces.nllb import NllbTokenizer

__all__ = ["MBart50Tokenizer", "MBartTokenizer"]

# In the order of their ids.
_CODES = """
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV
    my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN
"""
_MORE_CODES = """
    af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX
    sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
"""
MBART_LANGUAGES = tuple(_CODES.split())
MBART_50_LANGUAGES = (*MBART_LANGUAGES, *_MORE_CODES.split())


class MBart50Tokenizer(NllbTokenizer, Packing):
    """SentencePiece as mBART-50 uses it (Tang et al. 2020, arXiv:2008.00401).

    The ids and the places of the languages are those of `NllbTokenizer`, with mBART-50's 52
    languages. Ids equal those of Hugging Face's MBart50Tokenizer, with the exceptions named there.

    Args:
        path: a SentencePiece model, or a folder with `sentencepiece.bpe.model`.
        languages: codes of the languages, in the order of their ids; mBART-50's by default.
        source_language: the sources' code, such as "de_DE".
        target_language: the targets' code.
        vocabulary_size: number of tokens of the model that uses this tokenizer; the last ones,
            without text, only pad its matrices. By default there are none.
        added_tokens: more tokens, after <mask>; see `XlmRobertaTokenizer`.
        name: name of the module.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: see `NllbTokenizer`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        languages: Sequence[str] = MBART_50_LANGUAGES,
        source_language: str | None = None,
        target_language: str | None = None,
        vocabulary_size: int | None = None,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "mbart_50_tokenizer",
    ) -> None:
        super().__init__(
            path,
            languages=languages,
            source_language=source_language,
            target_language=target_language,
            vocabulary_size=vocabulary_size,
            added_tokens=added_tokens,
            name=name,
        )


class MBartTokenizer(NllbTokenizer, Packing):
    """SentencePiece as mBART uses it (Liu et al. 2020, arXiv:2001.08210).

    The ids are those of `NllbTokenizer`, with mBART's 25 languages, but languages follow texts: a
    source is text, </s> and its language. A target starts with its language, which takes the place
    of </s>; then come text, </s> and, in training, its language again. Ids equal those of Hugging
    Face's MBartTokenizer, with the exceptions named there and one more: transformers 5 leaves out
    the SentencePiece model's normalization, such as that of "ﬁ".

    Args:
        path: a SentencePiece model, or a folder with `sentencepiece.bpe.model`.
        languages: codes of the languages, in the order of their ids; mBART's by default.
        source_language: the sources' code, such as "de_DE".
        target_language: the targets' code.
        vocabulary_size: number of tokens of the model that uses this tokenizer; the last ones,
            without text, only pad its matrices. By default there are none.
        added_tokens: more tokens, after <mask>; see `XlmRobertaTokenizer`.
        name: name of the module.

    Attributes:
        start_token_id: the id of the target language; that of </s> while there is none.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: see `NllbTokenizer`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        languages: Sequence[str] = MBART_LANGUAGES,
        source_language: str | None = None,
        target_language: str | None = None,
        vocabulary_size: int | None = None,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "mbart_tokenizer",
    ) -> None:
        super().__init__(
            path,
            languages=languages,
            source_language=source_language,
            target_language=target_language,
            vocabulary_size=vocabulary_size,
            added_tokens=added_tokens,
            name=name,
        )

    def _set_languages(
        self, ids: Mapping[str, int], source_language: str | None, target_language: str | None
    ) -> None:
        super()._set_languages(ids, source_language, target_language)
        if target_language is not None:
            self.start_token_id = ids[target_language]

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids before each source and after the last."""
        language = self._id("source", self.source_language)
        return [*[[]] * num_segments, [self.end_token_id, language]]

    def target_start(self, language: Any = None) -> list[Any]:
        """Returns the id before a target: its language's.

        Args:
            language: the id of the language, or int32 (batch,); that of the target by default.
        """
        return [self._target(language)]

    def target_end(self) -> list[int]:
        """Returns the ids after a target: the end token and its language."""
        return [self.end_token_id, self._target()]
