"""Tiny vocabularies of T5, Marian, BART and PEGASUS, and the shape of a tiny T5."""

import functools
import io
import json
import tempfile
from pathlib import Path

import roberta_toy
import sentencepiece

from keras_transformers.tokenizers import BartTokenizer, PegasusTokenizer, T5Tokenizer

T5_LINES = ["a small dog runs", "two dogs are near the shore", "ein kleiner Hund läuft"] * 3
T5_TEXTS = (
    "a small dog",
    "The <extra_id_0> dog runs <extra_id_1> the shore",
    "<extra_id_9>",
    "  two   dogs ",
    "a b<extra_id_3>c <extra_id_3> <extra_id_4><extra_id_5>",
    "Zürich: 東京",
    "",
)
MARIAN_LINES = {
    "source": ["a small dog runs", "two dogs run near the shore"] * 3,
    "target": ["ein kleiner Hund läuft", "zwei Hunde laufen am Ufer"] * 3,
}
NUM_PIECES = 33
T5_SIZES = {
    "vocabulary_size": NUM_PIECES + 10,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 12,
    "head_dim": 4,
}


@functools.cache
def t5_model() -> bytes:
    """A unigram model with T5's special tokens."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(T5_LINES),
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


def t5_tokenizer(
    *, num_extra_ids: int = 10, padded_to: int | None = None, kind: type[T5Tokenizer] = T5Tokenizer
) -> T5Tokenizer:
    """The tokenizer of this model."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "spiece.model").write_bytes(t5_model())
        return kind(folder, num_extra_ids=num_extra_ids, vocabulary_size=padded_to)


def marian_folder(path: Path) -> Path:
    """Writes vocab.json, source.spm and target.spm to a folder, and returns it."""
    pieces: set[str] = set()
    for side, lines in MARIAN_LINES.items():
        with (path / f"{side}.spm").open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=file,
                vocab_size=40,
                hard_vocab_limit=False,
                bos_id=-1,
                eos_id=1,
                unk_id=0,
                minloglevel=2,
            )
        model = sentencepiece.SentencePieceProcessor(model_file=str(path / f"{side}.spm"))
        pieces |= {model.id_to_piece(index) for index in range(2, model.vocab_size())}
    tokens = ["</s>", "<unk>", *sorted(pieces), ">>deu<<", ">>fra<<", "<pad>"]
    ids = {token: index for index, token in enumerate(tokens)}
    (path / "vocab.json").write_text(json.dumps(ids))
    config = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@functools.cache
def marian_files() -> dict[str, bytes]:
    """What `marian_folder` writes: name -> contents."""
    with tempfile.TemporaryDirectory() as folder:
        return {file.name: file.read_bytes() for file in marian_folder(Path(folder)).iterdir()}


def bart_tokenizer(folder: Path, **options: int) -> BartTokenizer:
    """Learned anew, the same each time, with fairseq's ids; `folder` is made."""
    roberta_toy.fairseq_tokenizer(folder)
    return BartTokenizer(folder, **options)


def pegasus_tokenizer(folder: Path) -> PegasusTokenizer:
    """PEGASUS's tokenizer of T5's model, which has the same first pieces; `folder` is made."""
    folder.mkdir(parents=True)
    (folder / "spiece.model").write_bytes(t5_model())
    return PegasusTokenizer(folder)
