"""XLM-RoBERTa's tiny SentencePiece model, as CamemBERT reads it."""

from pathlib import Path

import xlm_roberta_toy

from keras_transformers.tokenizers import CamembertTokenizer


def tokenizer(folder: Path) -> CamembertTokenizer:
    """Learned anew, the same each time, into `folder`."""
    xlm_roberta_toy.tokenizer(folder)
    return CamembertTokenizer(folder)
