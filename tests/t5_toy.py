"""A tiny T5 vocabulary, learned from a few lines, and the shape of a tiny T5."""

import functools
import io
import tempfile
from pathlib import Path

import sentencepiece

from keras_transformers.tokenizers import T5Tokenizer

LINES = ["a small dog runs", "two dogs are near the shore", "ein kleiner Hund läuft"] * 3
TEXTS = (
    "a small dog",
    "The <extra_id_0> dog runs <extra_id_1> the shore",
    "<extra_id_9>",
    "  two   dogs ",
    "a b<extra_id_3>c <extra_id_3> <extra_id_4><extra_id_5>",
    "Zürich: 東京",
    "",
)
NUM_PIECES = 33
SIZES = {
    "vocabulary_size": NUM_PIECES + 10,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 12,
    "head_dim": 4,
}


@functools.cache
def model() -> bytes:
    """A unigram model with T5's special tokens."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=file,
        model_type="unigram",
        vocab_size=NUM_PIECES,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    return file.getvalue()


def tokenizer(*, num_extra_ids: int = 10, padded_to: int | None = None) -> T5Tokenizer:
    """The tokenizer of this model."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "spiece.model").write_bytes(model())
        return T5Tokenizer(folder, num_extra_ids=num_extra_ids, vocabulary_size=padded_to)
