"""How fast texts become BERT's token ids: our tokenizer against tensorflow_text's.

    python benchmarks/tokenizer_throughput.py VOCAB.txt TEXT [TEXT ...]

Both our tokenizer and FastBertTokenizer pass over the lines of each text file (plain or .gz) in
batches of 256, in turns; the best of seven passes counts, in CPU time on one thread. The ratios
matter; the MB/s depend on the machine.
"""

import os

os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import time
from pathlib import Path

import tensorflow as tf
import tensorflow_text

from keras_transformers.files import read_lines
from keras_transformers.tokenizers import WordPieceTokenizer


def main() -> None:
    """Prints one row per text file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parsed = parser.parse_args()
    ours = WordPieceTokenizer(parsed.vocabulary)
    stock = tensorflow_text.FastBertTokenizer(
        ours.vocabulary, token_out_type=tf.int32, lower_case_nfd_strip_accents=True
    )
    candidates = {
        "FastBertTokenizer": tf.function(lambda text: stock.tokenize(text).flat_values),
        "WordPieceTokenizer": tf.function(lambda text: ours.tokenize(text).flat_values),
        "packed to 128": tf.function(lambda text: ours(text, max_sequence_length=128)["token_ids"]),
    }
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
        base = best["FastBertTokenizer"]
        cells = (f"{n} {megabytes / s:.1f} MB/s ({base / s:.2f})" for n, s in best.items())
        print(f"{path.name}: {', '.join(cells)}")


if __name__ == "__main__":
    main()
