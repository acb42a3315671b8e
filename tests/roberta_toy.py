"""A tiny RoBERTa vocabulary, learned from a few lines."""

import json
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


def fairseq_tokenizer(folder: Path) -> RobertaTokenizer:
    """The same with fairseq's ids: <s> <pad> </s> <unk> come first, <mask> last."""
    learned = tokenizer(folder).vocabulary
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [token for token in learned if token not in (*first, "<mask>")]
    tokens = [*first, *pieces, "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    return RobertaTokenizer(folder)
