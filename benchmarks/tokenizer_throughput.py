"""Compares the speed of our tokenizers with that of the libraries that define the ids.

    python benchmarks/tokenizer_throughput.py VOCABULARY TEXT [TEXT ...]

With a vocab.txt, BERT's tokenizer is compared with tensorflow_text's FastBertTokenizer; with a
SentencePiece model, tensorflow_text's ops with ours; with a language model's tokenizer.json, ours
with the `tokenizers` library reading the same file. "core" is TensorFlow's own ops alone. They take
turns over the lines of each text file (plain or .gz) in batches of 256; the best of seven passes
counts, in CPU time on one thread. The ratios matter; the MB/s depend on the machine.
"""

import os

os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_text
import tokenizers

from keras_transformers.files import read_lines
from keras_transformers.tokenizers import DescribedTokenizer, WordPieceTokenizer
from keras_transformers.tokenizers.text_ops import Ops, using_ops
from keras_transformers.tokenizers.text_ops.forms import sentence_pieces


def in_ops(ops: Ops, tokenize: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the function of texts in a graph with these ops."""
    function = tf.function(lambda text: tokenize(text).flat_values, autograph=False)

    def run(text: Any) -> Any:
        with using_ops(ops):
            return function(text)

    return run


def bert(vocabulary: Path) -> dict[str, Callable[[Any], Any]]:
    """Returns the tokenizers of a vocab.txt; the first is what others are compared with."""
    ours = WordPieceTokenizer(vocabulary)
    stock = tensorflow_text.FastBertTokenizer(
        ours.vocabulary, token_out_type=tf.int32, lower_case_nfd_strip_accents=True
    )
    return {
        "FastBertTokenizer": tf.function(lambda text: stock.tokenize(text).flat_values),
        "WordPieceTokenizer": in_ops("tensorflow-text", ours.tokenize),
        "core": in_ops("core", ours.tokenize),
        "packed to 128": tf.function(lambda text: ours(text, max_sequence_length=128)["token_ids"]),
    }


def sentence_piece(file: Path) -> dict[str, Callable[[Any], Any]]:
    """Returns the two forms of a SentencePiece model."""
    forms = sentence_pieces(file.read_bytes())
    return {
        "SentencepieceTokenizer": in_ops("tensorflow-text", lambda text: forms().tokenize(text)),
        "core": in_ops("core", lambda text: forms().tokenize(text)),
    }


def language_model(file: Path) -> dict[str, Callable[[Any], Any]]:
    """Returns the tokenizers of a tokenizer.json."""
    ours, theirs = DescribedTokenizer.load(file.parent), tokenizers.Tokenizer.from_file(str(file))

    def encode(text: Any) -> Any:
        lines = [line.decode() for line in text.numpy()]
        return [each.ids for each in theirs.encode_batch(lines, add_special_tokens=False)]

    run = tf.function(lambda text: ours.tokenize(text).flat_values, autograph=False)
    return {"tokenizers": encode, "DescribedTokenizer": run}


def main() -> None:
    """Prints one row per text file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parsed = parser.parse_args()
    makers = {".json": language_model, ".model": sentence_piece, ".spm": sentence_piece}
    candidates = makers.get(parsed.vocabulary.suffix, bert)(parsed.vocabulary)
    for path in parsed.texts:
        lines = [line for line in read_lines(path) if line.strip()]
        batches = [tf.constant(lines[i : i + 256]) for i in range(0, len(lines) - 255, 256)]
        if not batches:
            raise SystemExit(f"{path}: {len(lines)} lines; a batch takes 256")
        megabytes = sum(len(s) for batch in batches for s in batch.numpy()) / 1e6
        best = dict.fromkeys(candidates, float("inf"))
        for _ in range(7):
            for name, function in candidates.items():
                started = time.process_time()
                for batch in batches:
                    function(batch)
                best[name] = min(best[name], time.process_time() - started)
        base = next(iter(best.values()))
        cells = (f"{n} {megabytes / s:.1f} MB/s ({base / s:.2f})" for n, s in best.items())
        print(f"{path.name}: {', '.join(cells)}")


if __name__ == "__main__":
    main()
