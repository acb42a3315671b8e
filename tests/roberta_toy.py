"""A tiny RoBERTa vocabulary, learned from a few lines."""

from pathlib import Path

from keras_transformers.tokenizers.byte_pairs.roberta import RobertaTokenizer

LINES = [
    "a good film, a very good film!",
    "two dogs run near the shore",
    "Ada Lovelace was born in London.",
    "naïve cafés in Zürich and 東京",
] * 4
VOCABULARY_SIZE = 290


def tokenizer(folder: Path) -> RobertaTokenizer:
    """Learned anew, the same each time; `folder` is made."""
    return RobertaTokenizer.train(LINES, folder, vocabulary_size=VOCABULARY_SIZE)
