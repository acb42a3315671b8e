"""A tiny SentencePiece model with XLM-RoBERTa's first pieces, learned from a few lines."""

from pathlib import Path

import sentencepiece

from keras_transformers.tokenizers import XlmRobertaTokenizer

LINES = [
    "a good film, a very good film!",
    "two dogs run near the shore.",
    "Ada Lovelace was born in London.",
    "zwei Hunde laufen am Ufer, ein Café in Zürich",
    "東京 と 京都",
] * 4
PIECES = 120


def tokenizer(folder: Path) -> XlmRobertaTokenizer:
    """Learned anew, the same each time, into `folder`."""
    with (folder / XlmRobertaTokenizer.model_file).open("wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES),
            model_writer=writer,
            model_type="unigram",
            vocab_size=PIECES,
            hard_vocab_limit=False,
            minloglevel=2,
        )
    return XlmRobertaTokenizer(folder)
