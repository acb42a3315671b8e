"""Describes XLM-RoBERTa in Hugging Face's files: RoBERTa with another tokenizer."""

import dataclasses
from typing import Any

from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.families.roberta import files as roberta
from keras_transformers.families.roberta.model import roberta as build
from keras_transformers.families.xlm_roberta.model import MODELS

__all__ = ["FAMILY"]


def _tokenizer(folder: Folder, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.sentence_pieces.xlm_roberta import XlmRobertaTokenizer

    return XlmRobertaTokenizer(folder)


FAMILY: Family = Family(
    "xlm-roberta",
    MODELS,
    roberta.NAMES,
    dataclasses.replace(roberta.CONFIG, model_type="xlm-roberta"),
    build,
    _tokenizer,
    Writer(
        "XLMRoberta",
        tokenizer="XlmRobertaTokenizer",
        tokenizer_class="XLMRobertaTokenizer",
        special_tokens=roberta.SPECIAL_TOKENS,
        tokenizer_fields=roberta.tokenizer_fields,
    ),
    parts=roberta.PARTS,
    masked_lm_activation="gelu",  # regardless of the encoder's
    pieces_file="sentencepiece.bpe.model",
    first_pieces=("<s>", "<pad>", "</s>", "<unk>"),
    fairseq_pieces=True,
    obeys_prefix=True,
    vocabulary_file="sentencepiece.bpe.model",
    keras_nlp=dataclasses.replace(roberta.BACKBONE, name="XLMRobertaBackbone"),
)
