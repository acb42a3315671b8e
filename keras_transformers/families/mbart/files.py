"""Describes mBART and mBART-50 in Hugging Face's files."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family, Writer, search_fields
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.convert.tensors import Form
from keras_transformers.families.bart import files as bart
from keras_transformers.families.bart.model import FIRST_POSITION
from keras_transformers.families.marian import files as marian
from keras_transformers.families.mbart.model import MODELS, mbart
from keras_transformers.models.as_encoder import as_end_pooled_encoder

__all__ = ["FAMILY"]

_END = 2
# The ids of a target's first tokens: in mBART its language, in mBART-50 </s> and its language.
_FIRST, _SECOND = "decoder_start_token_id", "forced_bos_token_id"
_SPECIAL_TOKENS = ("eos_token", "unk_token", "pad_token")
_LAYERS = {
    **bart.LAYERS,
    "encoder_norm": "model.encoder.layer_norm",
    "decoder_norm": "model.decoder.layer_norm",
}
_NAMES = NameMap(
    "mBART",
    layers=_LAYERS,
    blocks=Blocks("model.encoder.layers.{}", marian.ENCODER_BLOCK),
    decoder_blocks=Blocks("model.decoder.layers.{}", marian.DECODER_BLOCK),
    sequence_head=bart.SEQUENCE_HEAD,
    stored={"logits/bias": (marian.BIAS, Form(ones=1))},
    rewritten=(prefixed("model", "shared", "encoder", "decoder"),),
    tied=marian.TIED,
    required=tuple(_LAYERS),
    traits={
        "source_position_embedding.first_position": FIRST_POSITION,
        "block.norm_position": "pre",
    },
)
_CONFIG = ConfigMap(
    "mbart",
    required=marian.REQUIRED,
    optional=marian.OPTIONAL,
    activation=("activation_function", "gelu"),
    fixed={
        "tie_word_embeddings": True,
        "static_position_embeddings": False,
        "normalize_before": True,
        "normalize_embedding": True,
        "add_bias_logits": False,
        "add_final_layer_norm": True,
        "is_encoder_decoder": True,
        "eos_token_id": _END,
    },
    after_read=bart.check_fields,
    before_write=bart.decoder_fields,
)


def _tokenizer_fields(tokenizers: Mapping[str, Any]) -> dict[str, Any]:
    tokenizer = tokenizers["tokenizer"]
    return {"src_lang": tokenizer.source_language, "tgt_lang": tokenizer.target_language}


def _config_fields(tokenizers: Mapping[str, Any]) -> dict[str, Any]:
    tokenizer = tokenizers["tokenizer"]
    if tokenizer.target_language is None:  # as that of a classifier
        return {}
    return {_FIRST: tokenizer.target_start()[0]}


_MBART, _MBART_50 = (
    Writer(
        {
            "translation": "MBartForConditionalGeneration",
            **dict.fromkeys(bart.CLASSIFIES, "MBartForSequenceClassification"),
        },
        tokenizer=name,
        tokenizer_class=name,
        special_tokens=_SPECIAL_TOKENS,
        tokenizer_fields=_tokenizer_fields,
        config_fields=_config_fields,
        generation_fields=search_fields,
    )
    for name in ("MBartTokenizer", "MBart50Tokenizer")
)


def _tokenizer(folder: Folder, lowercase: bool) -> Any:
    # Imported here because they need TensorFlow, which the weights do not.
    from keras_transformers.tokenizers import MBart50Tokenizer, MBartTokenizer

    arguments, told = _CONFIG.read(folder), folder.json("tokenizer_config.json", missing_ok=True)
    named = told.get("tokenizer_class") or folder.json("config.json").get("tokenizer_class")
    kind = MBart50Tokenizer if _MBART_50.has_tokenizer_class(named) else MBartTokenizer
    try:
        tokenizer: Any = kind(
            folder.path,
            source_language=told.get("src_lang"),
            target_language=told.get("tgt_lang"),
            vocabulary_size=arguments["vocabulary_size"],
        )
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    if tokenizer.pad_token_id != arguments["pad_token_id"]:
        raise ValueError(
            f"{folder / 'config.json'}: pad_token_id={arguments['pad_token_id']}, but the "
            f"tokenizer pads with {tokenizer.pad_token_id}: use the files that belong together"
        )
    return _for_target(folder, tokenizer)


def _for_target(folder: Folder, tokenizer: Any) -> Any:
    """Returns the tokenizer for the target language that the options of the search name, if any.

    Raises:
        ValueError: by these options, targets would start with other tokens than the tokenizer's.
    """
    target, languages = tokenizer.target_language, tokenizer.languages
    codes = {languages[code]: code for code in ([target] if target else languages)}
    expected = {_FIRST: codes}
    if len(tokenizer.target_start(_END)) == 2:
        expected = {_FIRST: {_END: "</s>"}, _SECOND: codes}
    for field, tokens in expected.items():
        file, token_id = _option(folder, field)
        if token_id not in (None, *tokens):
            few = ", ".join(f"{wanted} ({token})" for wanted, token in [*tokens.items()][:3])
            raise ValueError(
                f"{file}: {field}={token_id!r:.100}; with {type(tokenizer).__name__} expected "
                f"{few}{' or another language' * (len(tokens) > 3)}: correct tokenizer_class or "
                "tgt_lang in tokenizer_config.json"
            )
        if tokens is codes:
            target = codes.get(token_id)
    return tokenizer.between(None, target)


def _option(folder: Folder, field: str) -> tuple[Path, Any]:
    """Returns an option of the search, None if there is none, and the file that has it."""
    for name in ("generation_config.json", "config.json"):
        if (value := folder.json(name, missing_ok=True).get(field)) is not None:
            return folder / name, value
    return folder / "config.json", None


FAMILY: Family = Family(
    "mbart",
    MODELS,
    _NAMES,
    _CONFIG,
    mbart,
    _tokenizer,
    _MBART,
    other_tokenizers=(_MBART_50,),
    parts=bart.PARTS,
    projection=bart.PROJECTION,
    task="translation",
    generates=True,
    # Its decoder reads the text's last token first, which is the language of mBART's sources.
    as_encoder=functools.partial(as_end_pooled_encoder, end_token_id=_END),
    trained={"ForConditionalGeneration": ("translation",)},
    tokenizer_classes=("MBartTokenizer", "MBart50Tokenizer"),
    adapt=bart.with_bias,
)
