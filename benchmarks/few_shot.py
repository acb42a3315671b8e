"""Trains on 8, 16 and 64 texts per label with `kt.fit(few_shot=True)` and with SetFit.

    python benchmarks/few_shot.py MINILM DATA --setfit-python VENV/bin/python
        > benchmarks/results/few_shot.txt

MINILM is all-MiniLM-L6-v2's folder, VENV has setfit. Both train on the same texts from the same
weights with SetFit's defaults: all pairs, one epoch, batches of 16, 2e-5, logistic regression.

- sst2: whole sentences of SST-2 with n of each label; accuracy on dev.
- entities: sentences of CoNLL-2003 with n that have each type of entity (LOC, MISC, ORG, PER), of
  which they may have several; micro and macro F1 on 500 sentences of testa, at thresholds of 0.5.

Trainings have one thread. Seconds are of the CPU, for the training alone: data and
weights are read before. `--rows` keeps each row as it comes, and the same command goes on from
there.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

SYSTEMS = ("setfit", "ours")
FIGURES = {"sst2": ("accuracy",), "entities": ("micro_f1", "macro_f1")}
TEST_SENTENCES = 500
ROW = "ROW "  # what lines with results begin with
Result = tuple[float, list[Any]]
THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def read(task: str, data: Path) -> dict[str, Any]:
    """Returns texts with their label, or labels, to draw from, others to test on, and labels."""
    import keras_transformers as kt

    if task == "sst2":
        train, test = (kt.data.text.load(data / f"sst2/{x}.tsv.gz") for x in ("train", "dev"))
        labels = ["0", "1"]
    else:
        train, test = (
            kt.data.text.entity_types(kt.data.text.load_conll(data / f"conll2003/eng.{x}.gz"))
            for x in ("train", "testa")
        )
        labels = ["LOC", "MISC", "ORG", "PER"]
        test = test.select(np.linspace(0, len(test) - 1, TEST_SENTENCES).astype(int).tolist())
    return {"train": train, "test": (list(test.texts), list(test.labels)), "labels": labels}


def drawn(found: dict[str, Any], size: int, seed: int) -> dict[str, Any]:
    """Returns the same with as many texts of each label."""
    from keras_transformers.data.text import few_of_each

    few = few_of_each(found["train"], found["labels"], size, seed=seed)
    return {**found, "train": (list(few.texts), list(few.labels))}


def with_setfit(weights: str, task: str, split: dict[str, Any], seed: int) -> Result:
    """Trains SetFit; returns its CPU seconds and its predictions on the test texts."""
    import datasets
    import torch
    from setfit import SetFitModel, Trainer, TrainingArguments

    torch.set_num_threads(1)
    (texts, labels), names = split["train"], split["labels"]
    if task == "sst2":
        options, targets = {}, [names.index(label) for label in labels]
    else:
        options = {"multi_target_strategy": "one-vs-rest"}
        targets = [[int(name in row) for name in names] for row in labels]
    model = SetFitModel.from_pretrained(weights, **options)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            seed=seed,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            logging_first_step=False,
            show_progress_bar=False,
        )
        data = datasets.Dataset.from_dict({"text": texts, "label": targets})
        trainer = Trainer(model=model, args=arguments, train_dataset=data)
        start = time.process_time()
        trainer.train()
        seconds = time.process_time() - start
    found = np.asarray(model.predict(split["test"][0], as_numpy=True))
    if task == "sst2":
        return seconds, [names[i] for i in found]
    return seconds, [[names[i] for i in np.flatnonzero(row)] for row in found]


def with_ours(weights: str, task: str, split: dict[str, Any], seed: int) -> Result:
    """Trains with `kt.fit`; returns the same."""
    import keras_transformers.quiet  # before Keras, which loads TensorFlow

    import keras

    import keras_transformers as kt

    keras.utils.set_random_seed(seed)
    name = "classification" if task == "sst2" else "multi_label_classification"
    # As in SetFit, where MiniLM's vectors have length 1.
    classify = kt.load(weights, pipeline=name, labels=split["labels"], pooling="normalized_mean")
    start = time.process_time()
    kt.fit(classify, tuple(split["train"]), few_shot=True, seed=seed, quiet=True)
    seconds = time.process_time() - start
    answers = classify(split["test"][0])
    found = [answer.label if task == "sst2" else list(answer.labels) for answer in answers]
    return seconds, found


def scores(task: str, split: dict[str, Any], found: list[Any]) -> dict[str, float]:
    """Returns the task's figures."""
    expected = split["test"][1]
    if task == "sst2":
        return {"accuracy": float(np.mean([a == b for a, b in zip(found, expected, strict=True)]))}
    right, gone, wrong = np.array(
        [
            (
                sum(name in a and name in b for a, b in zip(found, expected, strict=True)),
                sum(name not in a and name in b for a, b in zip(found, expected, strict=True)),
                sum(name in a and name not in b for a, b in zip(found, expected, strict=True)),
            )
            for name in split["labels"]
        ]
    ).T
    f1 = 2 * right / np.maximum(2 * right + gone + wrong, 1)
    micro = 2 * right.sum() / (2 * right.sum() + gone.sum() + wrong.sum())
    return {"micro_f1": float(micro), "macro_f1": float(f1.mean())}


def measured(
    options: argparse.Namespace, system: str, task: str, splits: dict[int, dict[str, Any]]
) -> Iterator[tuple[int, dict[str, float]]]:
    """Trains on each seed's texts in one process; yields (seed, figures)."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "splits.json")
        file.write_text(json.dumps(list(splits.items())), "utf-8")
        python = options.setfit_python if system == "setfit" else sys.executable
        with subprocess.Popen(
            [python, __file__, options.weights, system, task, file],
            env=os.environ | dict.fromkeys(THREADS, "1"),
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            for line in process.stdout or ():
                if line.startswith(ROW):
                    seed, seconds, found = json.loads(line.removeprefix(ROW))
                    yield seed, {"seconds": seconds, **scores(task, splits[seed], found)}
        if process.returncode:
            raise SystemExit(f"{system}, {task}: the training failed with {process.returncode}")


def table(rows: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    """Prints the mean and deviation of each figure over the seeds that both systems have."""
    print(
        "| task | texts per label | seeds | figure | SetFit | ours | CPU seconds, SetFit to ours |"
    )
    print("|---|--:|--:|---|--:|--:|--:|")
    for task, size in dict.fromkeys((row[1], row[2]) for row in rows):
        seeds = [
            row[3]
            for row in rows
            if row[:3] == ("ours", task, size) and ("setfit", *row[1:]) in rows
        ]
        if not seeds:
            continue

        def of(name: str, task: str = task, size: int = size, seeds: Any = seeds) -> list[Any]:
            return [[rows[x, task, size, seed][name] for seed in seeds] for x in SYSTEMS]

        times = of("seconds")
        ratio = sum(times[0]) / sum(times[1])
        cost = f"{np.mean(times[0]):.0f} to {np.mean(times[1]):.0f}, {ratio:.2f} times"
        for figure in FIGURES[task]:
            cells = [
                f"{np.mean(x):.4f} ± {statistics.stdev(x) if len(x) > 1 else 0:.4f}"
                for x in of(figure)
            ]
            print(f"| {task} | {size} | {len(seeds)} | {figure} | {' | '.join(cells)} | {cost} |")


def main() -> None:
    """Prints a line for each training, then the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights")
    parser.add_argument("data", type=Path)
    parser.add_argument("--setfit-python", default=sys.executable, help="one that has setfit")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--tasks", nargs="+", default=list(FIGURES), choices=list(FIGURES))
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 16, 64])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--rows", type=Path, help="a file that keeps the rows, as JSON lines")
    options = parser.parse_args()
    kept: list[str] = []
    if options.rows is not None and options.rows.exists():
        kept = options.rows.read_text("utf-8").splitlines()
    rows = {tuple(row): figures for row, figures in map(json.loads, kept)}
    data = {task: read(task, options.data) for task in options.tasks}
    for size in options.sizes:
        for task, system in itertools.product(options.tasks, options.systems):
            missing = [x for x in options.seeds if (system, task, size, x) not in rows]
            splits = {seed: drawn(data[task], size, seed) for seed in missing}
            for seed, figures in measured(options, system, task, splits) if splits else ():
                row = (system, task, size, seed)
                rows[row] = figures
                print(*row, {k: round(v, 4) for k, v in figures.items()}, flush=True)
                if options.rows is not None:
                    with options.rows.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([row, figures]) + "\n")
    table(rows)


def train_all(weights: str, system: str, task: str, file: str) -> None:
    """Trains on each of a file's splits, and prints the results for `measured`."""
    train = with_setfit if system == "setfit" else with_ours
    for seed, split in json.loads(Path(file).read_text("utf-8")):
        seconds, found = train(weights, task, split, seed)
        print(f"{ROW}{json.dumps([seed, seconds, found])}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[2] in SYSTEMS:
        train_all(*sys.argv[1:])
    else:
        main()
