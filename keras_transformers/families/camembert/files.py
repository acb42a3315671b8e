"""Describes CamemBERT in Hugging Face's files: RoBERTa with another tokenizer."""

import dataclasses
from typing import Any

from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.families.camembert.model import MODELS
from keras_transformers.families.roberta import files as roberta
from keras_transformers.families.roberta.model import roberta as build

__all__ = ["FAMILY"]


def _tokenizer(folder: Folder, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.sentence_pieces.camembert import CamembertTokenizer

    return CamembertTokenizer(folder)


FAMILY: Family = Family(
    "camembert",
    MODELS,
    roberta.NAMES,
    dataclasses.replace(
        roberta.CONFIG,
        model_type="camembert",
        written={"bos_token_id": 5, "eos_token_id": 6},
    ),
    build,
    _tokenizer,
    Writer(
        "Camembert",
        tokenizer="CamembertTokenizer",
        tokenizer_class="CamembertTokenizer",
        special_tokens=roberta.SPECIAL_TOKENS,
        tokenizer_fields=roberta.tokenizer_fields,
    ),
    parts=roberta.PARTS,
    masked_lm_activation="gelu",  # regardless of the encoder's
    pieces_file="sentencepiece.bpe.model",
    first_pieces=(
        *("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
        *("<s>", "</s>"),  # the model's own
    ),
    fairseq_pieces=True,
    obeys_prefix=True,
)
