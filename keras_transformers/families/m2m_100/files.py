"""Describes M2M-100 and NLLB in Hugging Face's files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family, Writer, search_fields
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.tokenizer_json import decoder_of
from keras_transformers.convert.name_map import Blocks, NameMap
from keras_transformers.families.m2m_100.model import MODELS, m2m_100
from keras_transformers.families.marian import files as marian

__all__ = ["FAMILY"]

_END = 2  # it also starts targets
_SPECIAL_TOKENS = ("eos_token", "unk_token", "pad_token")
_NAMES = NameMap(
    "M2M-100",
    layers={
        "token_embedding": "model.shared",
        "encoder_norm": "model.encoder.layer_norm",
        "decoder_norm": "model.decoder.layer_norm",
    },
    blocks=Blocks("model.encoder.layers.{}", marian.ENCODER_BLOCK),
    decoder_blocks=Blocks("model.decoder.layers.{}", marian.DECODER_BLOCK),
    tied=marian.TIED,
    # Sinusoids, which older files have.
    buffers=("model.encoder.embed_positions.weights", "model.decoder.embed_positions.weights"),
    required=("token_embedding", "target_position_embedding", "encoder_norm"),
    traits={
        "target_position_embedding.interleaved": False,
        "target_position_embedding.first_position": 2,
        "block.norm_position": "pre",
    },
)


def _after_read(file: Path, config: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    marian.check_same(file, config, marian.SAME)
    return arguments


def _before_write(
    model: keras.Model, arguments: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    written = {theirs: ours for ours, theirs in _CONFIG.required.items()}
    return arguments, {other: arguments[written[theirs]] for theirs, other in marian.SAME.items()}


_CONFIG = ConfigMap(
    "m2m_100",
    required=marian.REQUIRED,
    optional={
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1),
        "feed_forward_dropout": ("activation_dropout", 0.0),
    },
    activation=("activation_function", "relu"),
    fixed={
        "scale_embedding": True,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "eos_token_id": _END,
        "decoder_start_token_id": _END,
    },
    written={"architectures": ["M2M100ForConditionalGeneration"]},
    after_read=_after_read,
    before_write=_before_write,
)


def _tokenizer(folder: Folder, lowercase: bool) -> Any:
    # Imported here because they need TensorFlow, which the weights do not.
    from keras_transformers.tokenizers import M2M100Tokenizer, NllbTokenizer
    from keras_transformers.tokenizers.sentence_pieces.m2m_100 import WMT21_LANGUAGES

    arguments, name = _CONFIG.read(folder), "tokenizer_config.json"
    config = folder.json(name, missing_ok=True)
    options: dict[str, Any] = {
        "source_language": config.get("src_lang"),
        "target_language": config.get("tgt_lang"),
        "vocabulary_size": arguments["vocabulary_size"],
    }
    if config.get("legacy_behaviour"):
        raise ValueError(
            f"{folder / name}: legacy_behaviour=True puts languages after texts; only false is "
            "supported"
        )
    codes = config.get("language_codes", "m2m100")
    if codes not in ("m2m100", "wmt21"):
        raise ValueError(
            f"{folder / name}: language_codes={codes!r:.100}; expected 'm2m100' or 'wmt21'"
        )
    if codes == "wmt21":
        options["languages"] = WMT21_LANGUAGES
    kind = M2M100Tokenizer if (folder / "vocab.json").is_file() else NllbTokenizer
    try:
        tokenizer: Any = kind(folder.path, **options)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    if tokenizer.pad_token_id != arguments["pad_token_id"]:
        raise ValueError(
            f"{folder / 'config.json'}: pad_token_id={arguments['pad_token_id']}, but the "
            f"tokenizer pads with {tokenizer.pad_token_id}: use the files that belong together"
        )
    return tokenizer


def _tokenizer_fields(tokenizers: Mapping[str, Any]) -> dict[str, Any]:
    tokenizer = tokenizers["tokenizer"]
    fields = {"src_lang": tokenizer.source_language, "tgt_lang": tokenizer.target_language}
    if not hasattr(tokenizer, "own_tokens"):
        return fields
    # NLLB's languages have these ids; transformers would otherwise put <mask> before them.
    return {**fields, "added_tokens_decoder": decoder_of(tokenizer)}


_WRITER = Writer(
    {"translation": "M2M100ForConditionalGeneration"},
    tokenizer="M2M100Tokenizer",
    tokenizer_class="M2M100Tokenizer",
    special_tokens=_SPECIAL_TOKENS,
    tokenizer_fields=_tokenizer_fields,
    generation_fields=search_fields,
)

FAMILY: Family = Family(
    "m2m_100",
    MODELS,
    _NAMES,
    _CONFIG,
    m2m_100,
    _tokenizer,
    _WRITER,
    other_tokenizers=(
        Writer(
            {},
            tokenizer="NllbTokenizer",
            tokenizer_class="NllbTokenizer",
            special_tokens=_SPECIAL_TOKENS,
            tokenizer_fields=_tokenizer_fields,
        ),
    ),
    task="translation",
    generates=True,
    trained={"ForConditionalGeneration": ("translation",)},
    tokenizer_classes=("M2M100Tokenizer", "NllbTokenizer"),
)
