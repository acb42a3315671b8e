"""A tiny SentencePiece model with DeBERTa's first pieces, learned from a few lines."""

from pathlib import Path

import sentencepiece
from xlm_roberta_toy import LINES

from keras_transformers.tokenizers import DebertaTokenizer


def tokenizer(folder: Path, *, normalization: str = "nmt_nfkc") -> DebertaTokenizer:
    """Learned anew, the same each time, into `folder`. Like Microsoft's, it has bytes."""
    with (folder / "spm.model").open("wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*LINES, *(line.lower() for line in LINES)]),
            model_writer=writer,
            model_type="unigram",
            vocab_size=380,
            hard_vocab_limit=False,
            byte_fallback=True,
            normalization_rule_name=normalization,
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
            pad_piece="[PAD]",
            bos_piece="[CLS]",
            eos_piece="[SEP]",
            unk_piece="[UNK]",
            minloglevel=2,
        )
    return DebertaTokenizer(folder)
