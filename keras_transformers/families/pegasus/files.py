"""Describes PEGASUS in Hugging Face's files."""

import functools
from typing import TYPE_CHECKING

import keras

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.family import Family, Writer, search_fields
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.convert.tensors import Form
from keras_transformers.families.bart import files as bart
from keras_transformers.families.marian import files as marian
from keras_transformers.families.pegasus.model import MODELS, pegasus

if TYPE_CHECKING:
    from keras_transformers.tokenizers import PegasusTokenizer

__all__ = ["FAMILY"]

_NAMES = NameMap(
    "PEGASUS",
    layers={
        **marian.LAYERS,
        "encoder_norm": "model.encoder.layer_norm",
        "decoder_norm": "model.decoder.layer_norm",
    },
    blocks=Blocks("model.encoder.layers.{}", marian.ENCODER_BLOCK),
    decoder_blocks=Blocks("model.decoder.layers.{}", marian.DECODER_BLOCK),
    stored={"logits/bias": (marian.BIAS, Form(ones=1))},
    rewritten=(prefixed("model", "shared", "encoder", "decoder"),),
    tied=marian.TIED,
    required=("token_embedding", "target_position_embedding", "encoder_norm", "logits"),
    traits={
        "target_position_embedding.interleaved": False,
        "target_position_embedding.first_position": 0,
        "block.norm_position": "pre",
    },
)
_CONFIG = ConfigMap(
    "pegasus",
    required=marian.REQUIRED,
    optional=marian.OPTIONAL,
    activation=("activation_function", "gelu"),
    fixed={
        "tie_word_embeddings": True,
        "static_position_embeddings": True,
        "normalize_before": True,
        "normalize_embedding": False,
        "add_bias_logits": False,
        "add_final_layer_norm": True,
        "is_encoder_decoder": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    },
    written={"architectures": ["PegasusForConditionalGeneration"]},
    after_read=bart.check_fields,
    before_write=bart.decoder_fields,
)


def _adapt(model: keras.Model, arrays: Arrays) -> Arrays:
    return bart.with_bias(model, marian.for_positions(model, arrays))


def _tokenizer(folder: Folder, lowercase: bool) -> "PegasusTokenizer":
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers import PegasusTokenizer

    return PegasusTokenizer(folder / PegasusTokenizer.model_file)


FAMILY: Family = Family(
    "pegasus",
    MODELS,
    _NAMES,
    _CONFIG,
    pegasus,
    _tokenizer,
    Writer(
        {"translation": "PegasusForConditionalGeneration"},
        tokenizer="PegasusTokenizer",
        tokenizer_class="PegasusTokenizer",
        # Given the mask token, transformers 5 would leave out "<mask_1>" and shift all ids.
        special_tokens=("eos_token", "unk_token", "pad_token"),
        generation_fields=search_fields,
    ),
    task="translation",
    generates=True,
    trained={"ForConditionalGeneration": ("translation",)},
    tokenizer_classes=("PegasusTokenizer",),
    settle=functools.partial(marian.with_positions, _NAMES),
    adapt=_adapt,
)
