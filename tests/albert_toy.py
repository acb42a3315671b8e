"""A tiny SentencePiece model with ALBERT's first pieces, learned from a few lines."""

from pathlib import Path

import sentencepiece
from xlm_roberta_toy import LINES

from keras_transformers.tokenizers import AlbertTokenizer


def tokenizer(folder: Path) -> AlbertTokenizer:
    """Learned anew, the same each time, into `folder`."""
    with (folder / "spiece.model").open("wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line.lower() for line in LINES]),
            model_writer=writer,
            model_type="unigram",
            vocab_size=110,
            hard_vocab_limit=False,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=["[CLS]", "[SEP]", "[MASK]"],
            minloglevel=2,
        )
    return AlbertTokenizer(folder)
