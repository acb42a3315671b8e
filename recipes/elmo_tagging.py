"""Tagging of words by ELMo's features: a BiLSTM reads the layers of a frozen encoder.

Paper:   Peters et al. 2018, https://arxiv.org/abs/1802.05365, sections 3.3 and 4
Data:    CoNLL-2003's eng.train and eng.testa, or any file with a word and a label a line
Command: python recipes/elmo_tagging.py --train-file eng.train.gz --dev-file eng.testa.gz
             --weights runs/pretrain_elmo/weights [--random-weights]
Score:   entity F1 on testa, which also chose the epoch, seeds 0, 1, 2 (88e91e4), with the weights
         of pretrain_elmo's command: 0.7110, 0.6962, 0.6972, mean 0.7015; with random weights:
         0.3881, 0.3863, 0.3577, mean 0.3774. Share of the layers, characters first, seed 0:
         0.31, 0.49, 0.20
Cost:    3 to 5 minutes on one thread beside other work
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.data.language_models.character_inputs import labels_of_words, word_batches
from keras_transformers.data.text import conll
from keras_transformers.evaluation.entities import EntityScores, entity_scores
from keras_transformers.evaluation.perplexity import TokenAccuracy
from keras_transformers.inspection import update_cost
from keras_transformers.models.elmo import elmo
from keras_transformers.models.features import feature_reader
from keras_transformers.runs import run as runs
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.optimizers import adamw
from keras_transformers.training.schedules import WarmupLinearDecay


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(runs.Run):
    """Trains a BiLSTM to tag words by the layers of a frozen ELMo."""

    weights: Path  # folder of options.json and weights.hdf5, as recipes/pretrain_elmo.py writes it
    train_file: Path  # a word a line with its label, a blank line between sentences; IOB1 or IOB2
    dev_file: Path  # chooses the best epoch
    test_file: Path | None = None  # measured once, at the end
    word_column: int = 0  # index from 0
    label_column: int = -1  # -1: the last
    random_weights: bool = False  # an encoder of that shape that was never trained, to compare

    units: int = 64  # of the BiLSTM, each direction
    dropout: float = 0.5  # on the mixed layers and in the head
    epochs: int = 10
    batch_size: int = 32
    learning_rate: float = 3e-3  # the highest, after the warm-up
    warmup_fraction: float = 0.1  # of all updates
    weight_decay: float = 0.01

    name: str = "elmo_tagging"  # the run's folder in runs_dir


def main(config: Config) -> dict[str, Any]:
    """Trains and measures; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        folder = config.begin()
        train = read(config, config.train_file)
        labels = conll.label_set(train)
        dev = read(config, config.dev_file, labels)
        test = read(config, config.test_file, labels) if config.test_file else None
        encoder = elmo(**kt.convert.read_elmo_options(config.weights / "options.json"), dropout=0.0)
        if not config.random_weights:
            kt.convert.load_elmo(encoder, config.weights / "weights.hdf5")
        train_batches = batches(
            config, encoder, train, labels, parts=config.accumulate, shuffle=True
        )
        dev_batches = batches(config, encoder, dev, labels)
        *_, num_layers, width = encoder.output["layer_outputs"].shape
        with config.scope():  # what is frozen belongs to the data, and stays outside
            reader = feature_reader(
                num_layers,
                width,
                combine="weighted_sum",
                units=config.units,
                num_recurrent_layers=1,
                dropout=config.dropout,
            )
            model = kt.heads.tagger(reader, len(labels), dropout=config.dropout)
        rows = len(train) / len(train_batches)
        length = sum(map(len, train.words)) / len(train)
        cost = update_cost(model, rows=rows, length=length)  # of what is trained
        num_updates = config.epochs * len(train_batches)
        schedule = WarmupLinearDecay(
            config.learning_rate,
            warmup_steps=round(config.warmup_fraction * num_updates),
            total_steps=num_updates,
        )
        with config.scope():
            model.compile(
                optimizer=adamw(schedule, weight_decay=config.weight_decay),
                loss={"logits": TokenCrossentropy()},
                weighted_metrics={"logits": [TokenAccuracy("accuracy")]},
                jit_compile=False,
            )
        config.prepare(model)

    def scores(found: tf.data.Dataset, sentences: conll.Sentences) -> EntityScores:
        outputs = (model.predict_on_batch(inputs) for inputs, *_ in found)
        return entity_scores(labels_of_words(sentences, outputs, labels), sentences.labels)

    def log_entity_f1(epoch: int, logs: dict[str, Any]) -> None:
        logs["val_entity_f1"] = scores(dev_batches, dev).overall.f1

    with runs.user_errors():
        resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
        callbacks = [
            keras.callbacks.LambdaCallback(on_epoch_end=log_entity_f1),
            *runs.callbacks(folder, monitor="val_entity_f1", log=config, **cost._asdict()),
            resume,
        ]
        runs.start(folder, config)
        position = resume.restore(model, callbacks)
    shuffled = train_batches.shuffle(len(train_batches), seed=config.seed)  # whole batches
    model.fit(
        shuffled.repeat().skip(position.step),
        steps_per_epoch=len(train_batches),
        validation_data=dev_batches,
        initial_epoch=position.epoch,
        epochs=config.epochs,
        shuffle=False,
        callbacks=callbacks,
        verbose=runs.verbosity(),
    )
    best = runs.load_best(model, folder, resume.epochs, "val_entity_f1")

    found = {"dev": scores(dev_batches, dev)}
    if test is not None:
        found["test"] = scores(batches(config, encoder, test, labels), test)
    shares = keras.ops.softmax(model.get_layer("scalar_mix").weights_before_softmax.value)
    metrics: dict[str, Any] = {
        "trained_parameters": model.count_params(),
        **best,
        **{f"share_of_layer_{i}": float(share) for i, share in enumerate(shares)},
        "epochs": resume.epochs,
        "labels": labels,
        "seconds": round(time.time() - started),  # since the start, or since it was resumed
    }
    for name, result in found.items():
        print(f"{name}:\n{result}")
        metrics[f"{name}_entity_f1"] = result.overall.f1
    runs.report(folder, metrics)
    return metrics


def read(config: Config, path: Path, labels: list[str] | None = None) -> conll.Sentences:
    """The sentences of a file, labelled in IOB2."""
    return conll.load(
        path, word_column=config.word_column, label_column=config.label_column, labels=labels
    )


def batches(
    config: Config,
    encoder: keras.Model,
    sentences: conll.Sentences,
    labels: list[str],
    *,
    parts: int = 1,
    shuffle: bool = False,
) -> tf.data.Dataset:
    """The encoder's layers for each word; it runs once, and what it says stays in memory."""
    words = word_batches(
        sentences,
        labels,
        batch_size=config.batch_size * parts,
        max_characters=encoder.input["character_ids"].shape[-1],
        shuffle=shuffle,
        seed=config.seed,
    )

    def features(inputs: dict[str, Any], *targets: Any) -> Any:
        # Without the markers: word i is real if place i + 2 is.
        is_real = tf.reduce_any(inputs["character_ids"] > 0, axis=-1)[:, 2:]
        vectors = encoder(inputs, training=False)["layer_outputs"][:, 1:-1]
        return ({"features": vectors, "padding_mask": is_real}, *targets)

    return words.map(features).cache()


if __name__ == "__main__":
    runs.command_line(main, Config)
