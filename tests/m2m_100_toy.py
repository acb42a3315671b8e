"""A tiny M2M-100 and a tiny NLLB, with SentencePiece models learned from a few lines."""

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
import tiny

import keras_transformers as kt
from keras_transformers.families.m2m_100.model import m2m_100
from keras_transformers.tokenizers import M2M100Tokenizer, NllbTokenizer

LINES = [
    "a small dog runs, a very small dog!",
    "two dogs run near the shore.",
    "zwei Hunde laufen am Ufer, ein Café in Zürich",
    "deux chiens courent sur la plage",
] * 4
TEXTS = ["a small dog", "zwei Hunde: 東京 Café", "", "  two   dogs  ", "<unk> __de__ deu_Latn"]
MODEL_FILE = "sentencepiece.bpe.model"
LANGUAGES = {"m2m_100": ("de", "en"), "nllb": ("deu_Latn", "eng_Latn")}
SIZES: dict[str, Any] = {
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 12,
    "max_sequence_length": 20,
}


def pieces(model_type: str = "bpe", vocab_size: int = 70) -> bytes:
    """A SentencePiece model with fairseq's first pieces."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=file,
        model_type=model_type,
        vocab_size=vocab_size,
        minloglevel=2,
    )
    return file.getvalue()


def vocabulary_folder(kind: str, folder: Path) -> Path:
    """Writes a tokenizer's files to a folder and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    model = pieces()
    (folder / MODEL_FILE).write_bytes(model)
    if kind == "m2m_100":
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        learned = [processor.id_to_piece(number) for number in range(3, processor.vocab_size())]
        tokens = ["<s>", "<pad>", "</s>", "<unk>", *reversed(learned)]
        ids = {token: number for number, token in enumerate(tokens)}
        (folder / "vocab.json").write_text(json.dumps(ids))
    kinds = {"m2m_100": "M2M100Tokenizer", "nllb": "NllbTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kinds[kind]}))
    return folder


def tokenizer(kind: str, folder: Path, **options: Any) -> M2M100Tokenizer | NllbTokenizer:
    """A tokenizer from German to English, with its files in a folder."""
    source, target = LANGUAGES[kind]
    made = {"m2m_100": M2M100Tokenizer, "nllb": NllbTokenizer}[kind]
    languages = {"source_language": source, "target_language": target}
    return made(vocabulary_folder(kind, folder), **(languages | options))


def translator(kind: str, folder: Path, **options: Any) -> kt.pipelines.Translator:
    """A pipeline from German to English with random weights, whose texts end early."""
    made = tokenizer(kind, folder)
    model = tiny.lively(m2m_100(vocabulary_size=made.vocabulary_size, **SIZES))
    embeddings = model.get_layer("token_embedding").weights[0]
    rows = embeddings.numpy()
    rows[made.end_token_id] *= 2
    embeddings.assign(rows)
    search = {"rules": "transformers", "num_beams": 2, "extra_length": None, "max_length": 8}
    return kt.pipelines.Translator(model, made, **(search | options))
