"""NLLB's tokenizer: SentencePiece with fairseq's ids, and tokens for languages."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.tokenizers.languages import Languages
from keras_transformers.tokenizers.sentence_pieces.encoder_pieces import EncoderPieces

__all__ = ["NllbTokenizer"]

_FIRST_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
# Those of NLLB-200, in the order of their ids.
_CODES = """
    ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab
    arb_Arab ars_Arab ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn
    bak_Cyrl bam_Latn ban_Latn bel_Cyrl bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt
    bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn cjk_Latn ckb_Arab crh_Latn cym_Latn
    dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn est_Latn eus_Latn
    ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn
    gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn
    hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn
    kac_Latn kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn
    kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kon_Latn kor_Hang kmr_Latn lao_Laoo
    lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn lua_Latn lug_Latn
    luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn
    mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva
    nso_Latn nus_Latn nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn
    por_Latn prs_Arab pbt_Arab quy_Latn ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng
    scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn sna_Latn snd_Arab som_Latn sot_Latn
    spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn szl_Latn tam_Taml
    tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn
    tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab
    uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans
    zho_Hant zul_Latn
"""
NLLB_LANGUAGES = tuple(_CODES.split())


class NllbTokenizer(Languages, EncoderPieces):
    """SentencePiece as NLLB uses it (NLLB Team 2022, arXiv:2207.04672).

    A piece's id is one more than in the SentencePiece model, because fairseq puts <s> <pad> </s>
    <unk> first; the languages follow the pieces, and <mask> is last. A source is its language, text
    and </s>; a target is </s>, its language, text and </s>. All methods run in the graph. Ids equal
    those of Hugging Face's NllbTokenizer, except that a special token's name in a text is ordinary
    text, and that white space at the end of a text has no token, as in fairseq.

    Args:
        path: a SentencePiece model, or a folder with `sentencepiece.bpe.model`.
        languages: codes of the languages, in the order of their ids; NLLB-200's by default.
        source_language: the sources' code, such as "deu_Latn".
        target_language: the targets' code.
        vocabulary_size: number of tokens of the model that uses this tokenizer; the last ones,
            without text, only pad its matrices. By default there are none.
        added_tokens: more tokens, after <mask>; see `XlmRobertaTokenizer`.
        name: name of the module.

    Attributes:
        languages: code -> id of its token.
        vocabulary_size: the number of tokens.
        num_tokens: the same, without those that only pad a model's matrices.
        pad_token_id: 1, id of <pad>.
        end_token_id: 2, id of </s>.
        start_token_id: the same: </s> starts a target.
        unknown_token_id: 3, id of <unk>.
        mask_token_id: id of <mask>.
        own_tokens: the tokens whose names in a text are ordinary text.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a SentencePiece model, its first pieces are not <unk>, <s>, </s>, a
            language is unknown, or `vocabulary_size` is too small.
    """

    model_file = "sentencepiece.bpe.model"
    first_pieces = ("<unk>", "<s>", "</s>")
    mask_token = "<mask>"
    start_token_id = 2
    pad_token_id = 1
    end_token_id = 2
    unknown_token_id = 3

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        languages: Sequence[str] = NLLB_LANGUAGES,
        source_language: str | None = None,
        target_language: str | None = None,
        vocabulary_size: int | None = None,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        name: str = "nllb_tokenizer",
    ) -> None:
        super().__init__(path, name=name)
        self._first_language = self._num_pieces + 1
        ids = {code: self._first_language + place for place, code in enumerate(languages)}
        self._set_languages(ids, source_language, target_language)
        self.mask_token_id = self._first_language + len(ids)
        self.own_tokens = (*_FIRST_TOKENS, *ids, self.mask_token)
        self._add(added_tokens, self._model, self._tokenizer, num_tokens=self.mask_token_id + 1)
        self.num_tokens = self.vocabulary_size
        if vocabulary_size is not None:
            self.vocabulary_size = checked_size(path, self.num_tokens, vocabulary_size)

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape; "▁" is a space."""
        token_ids = tf.cast(token_ids, tf.int32)
        with tf.device("CPU:0"):
            is_piece = (token_ids >= len(_FIRST_TOKENS)) & (token_ids < self._first_language)
            pieces = self._tokenizer().id_to_string(tf.where(is_piece, token_ids - 1, 0))
            unused = [f"<unused_{n}>" for n in range(self.num_tokens, self.vocabulary_size)]
            last = [*self.languages, self.mask_token, *self._names, *unused]
            special = tf.constant([*_FIRST_TOKENS, *last])
            after = tf.maximum(token_ids - self._first_language, 0) + len(_FIRST_TOKENS)
            place = tf.where(token_ids < len(_FIRST_TOKENS), token_ids, after)
            return tf.where(is_piece, pieces, tf.gather(special, place))

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {
            **super().config(),
            "languages": list(self.languages),
            "vocabulary_size": self.vocabulary_size,
            **self._language_config(),
        }

    def _tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return EncoderPieces.tokenize(self, text)

    def _token_ids(self, pieces: tf.Tensor) -> tf.Tensor:
        """Converts the SentencePiece model's ids to ours; its unknown piece is 0."""
        return tf.where(pieces == 0, self.unknown_token_id, pieces + 1)

    def _pieces(self, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the pieces of the tokens that the SentencePiece model has."""
        is_text = (token_ids >= self.unknown_token_id) & (token_ids < self._first_language)
        pieces = tf.where(token_ids == self.unknown_token_id, 0, token_ids - 1)
        return tf.ragged.boolean_mask(pieces, is_text)

    def _is_added(self, token_ids: tf.Tensor) -> tf.Tensor:
        return (token_ids > self.mask_token_id) & (token_ids < self.num_tokens)


def checked_size(path: str | os.PathLike[str], num_tokens: int, vocabulary_size: int) -> int:
    """Returns the number of rows of a model's matrices; ValueError if there are more tokens."""
    if vocabulary_size < num_tokens:
        raise ValueError(
            f"{path} has {num_tokens} tokens, but the model only {vocabulary_size}: use the "
            "vocabulary that belongs to the weights"
        )
    return vocabulary_size
