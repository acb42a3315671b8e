"""Tiny files of a Marian's tokenizers, learned from a few lines."""

import json
from pathlib import Path

import sentencepiece

LINES = {
    "source": ["a small dog runs", "two dogs run near the shore"] * 3,
    "target": ["ein kleiner Hund läuft", "zwei Hunde laufen am Ufer"] * 3,
}


def folder(path: Path) -> Path:
    """Writes vocab.json, source.spm and target.spm to a folder, and returns it."""
    pieces: set[str] = set()
    for side, lines in LINES.items():
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
