"""A tiny mBART and a tiny mBART-50, with a SentencePiece model learned from a few lines."""

import json
from pathlib import Path
from typing import Any

import tiny
from m2m_100_toy import MODEL_FILE, SIZES, pieces

import keras_transformers as kt
from keras_transformers.families.mbart.model import mbart
from keras_transformers.tokenizers import MBart50Tokenizer, MBartTokenizer

CLASSES = {"mbart": MBartTokenizer, "mbart_50": MBart50Tokenizer}
SOURCE, TARGET = "de_DE", "en_XX"


def vocabulary_folder(kind: str, folder: Path) -> Path:
    """Writes a tokenizer's files to a folder and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL_FILE).write_bytes(pieces("unigram", 50))
    config = {"tokenizer_class": CLASSES[kind].__name__}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def tokenizer(kind: str, folder: Path, **options: Any) -> MBartTokenizer | MBart50Tokenizer:
    """A tokenizer from German to English, with its files in a folder."""
    languages = {"source_language": SOURCE, "target_language": TARGET}
    return CLASSES[kind](vocabulary_folder(kind, folder), **(languages | options))


def translator(kind: str, folder: Path, **options: Any) -> kt.pipelines.Translator:
    """A pipeline from German to English with random weights, whose texts end early."""
    made = tokenizer(kind, folder)
    model = tiny.lively(mbart(vocabulary_size=made.vocabulary_size, **SIZES), seed=5)
    bias = model.get_layer("logits").bias
    bias.assign([2.5 if token == made.end_token_id else x for token, x in enumerate(bias.numpy())])
    search = {"rules": "transformers", "num_beams": 2, "extra_length": None, "max_length": 8}
    return kt.pipelines.Translator(model, made, **(search | options))
