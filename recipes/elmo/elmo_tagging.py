"""Tagging with ELMo's features: trains a BiLSTM on the layers of a frozen ELMo.

Paper:   Peters et al. 2018, https://arxiv.org/abs/1802.05365, sections 3.3 and 4
Data:    CoNLL-2003's eng.train and eng.testa, or any file with one word and its label per line
Command: python recipes/elmo/elmo_tagging.py --train-file eng.train.gz --dev-file eng.testa.gz
             --weights runs/pretrain_elmo/weights [--random-weights]
Cost:    3 to 5 minutes on one thread of a busy machine
Score:   entity F1 on testa, which also chose the epoch, mean of seeds 0, 1, 2: 0.7015 with the
         weights of pretrain_elmo's command, 0.3774 with random weights (88e91e4), 0.7610 with those
         of its larger model (56482c1)
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.data import CachedBatches
from keras_transformers.data.language_models import WordBatches
from keras_transformers.data.text import TaggedFiles
from keras_transformers.evaluation import Report, TokenAccuracy, tagging_report
from keras_transformers.ranges import PositiveFloat, PositiveInt, Rate
from keras_transformers.runs import Run, Training, command_line, outputs_of
from keras_transformers.training import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TaggedFiles, Training):
    """Trains a BiLSTM to tag words from the layers of a frozen ELMo."""

    weights: Path  # an ELMo's folder, such as one written by recipes/elmo/pretrain_elmo.py
    random_weights: bool = False  # for comparison: use the same encoder untrained

    units: PositiveInt = 64  # of the BiLSTM, in each direction
    dropout: Rate = 0.5  # on the mixed layers and in the head
    epochs: PositiveInt = 10
    learning_rate: PositiveFloat = 3e-3  # peak, after the warm-up

    name: str = "elmo_tagging"  # the run's folder in runs_dir

    def check(self) -> None:
        """Checks the options before any data is read."""
        for name in ("export", "save"):
            if getattr(self, name):
                raise ValueError(
                    f"--{name}: there is no pipeline for a tagger on ELMo; leave it out"
                )
        super().check()


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains and evaluates; returns the contents of runs/<name>/metrics.json."""
    train, dev, test, labels = config.read()
    # The frozen encoder is part of the data pipeline, so it stays outside the scope.
    encoder = load(config)
    *_, max_characters = encoder.input["character_ids"].shape
    words = WordBatches(train, labels, max_characters=max_characters, **config.batching())
    batches = CachedBatches(words, features_of(encoder))
    on_dev = batches.of(dev)
    with run.scope():
        model = build(config, encoder, len(labels))
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
            loss={"logits": TokenCrossentropy()},
            weighted_metrics={"logits": [TokenAccuracy("accuracy")]},
            jit_compile=config.jit_compile,
        )
    fit = run.prepare(
        model,
        batches,
        validation=on_dev,
        score=lambda: {"entity_f1": report_on(model, on_dev).figures["entity_f1"]},
        monitor="val_entity_f1",
    )
    model.fit(**fit)
    figures = {"trained_parameters": model.count_params(), **run.load_best(), "labels": labels}
    shares = kt.inspection.layer_weights(model).probabilities[0, 0, 0]
    figures |= {f"share_of_layer_{i}": float(share) for i, share in enumerate(shares)}
    parts = {"dev": on_dev, "test": batches.of(test)} if test else {"dev": on_dev}
    reports = {name: report_on(model, part) for name, part in parts.items()}
    figures |= {f"{name}_entity_f1": x.figures["entity_f1"] for name, x in reports.items()}
    return run.finish(None, figures, reports=reports)


def load(config: Config) -> keras.Model:
    """Returns the encoder."""
    if config.random_weights:
        options = kt.convert.read_elmo_options(config.weights / "options.json")
        return kt.families.elmo.elmo(**options, dropout=0.0)
    return kt.load(config.weights, pipeline="word_embedding").model


def build(config: Config, encoder: keras.Model, num_labels: int) -> keras.Model:
    """Returns the model to train: the mix of the layers, the BiLSTM and the tagger."""
    *_, num_layers, width = encoder.output["layer_outputs"].shape
    reader = kt.heads.features.feature_reader(
        num_layers,
        width,
        combine="weighted_sum",
        num_recurrent_layers=1,
        **config.pick("units", "dropout"),
    )
    return kt.heads.tagger(reader, num_labels, dropout=config.dropout)


def features_of(encoder: keras.Model) -> Callable[..., Any]:
    """Returns a function from character batches to the encoder's layers, without markers."""

    def features(inputs: dict[str, Any], *targets: Any) -> Any:
        # Word i is real if position i + 2 is: its successor, or the end marker.
        is_real = tf.reduce_any(inputs["character_ids"] > 0, axis=-1)[:, 2:]
        vectors = encoder(inputs, training=False)["layer_outputs"][:, 1:-1]
        return {"features": vectors, "padding_mask": is_real}, *targets

    return features


def report_on(model: keras.Model, batches: CachedBatches) -> Report:
    """Returns the report on the entities that the model finds."""
    found = batches.source.word_labels(outputs_of(model, batches))
    sentences = batches.source.sentences
    return tagging_report(found, sentences.labels, words=sentences.words)


if __name__ == "__main__":
    command_line(main, Config)
