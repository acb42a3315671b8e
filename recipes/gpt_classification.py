"""Classification by a GPT that goes on modelling language meanwhile: texts, or pairs, label out.

Paper:   Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training",
         sections 3.2 and 4.1: the last token's vector, the language model's loss as an auxiliary
Data:    any TSV, CSV or JSON Lines file, plain or .gz; GLUE's files among them
Command: python recipes/gpt_classification.py --train-file sst2/train.tsv.gz
             --dev-file sst2/dev.tsv.gz --weights runs/language_model/weights
         where the weights are those of recipes/language_model.py, or a GPT-2's folder
Cost:    4 minutes on one thread beside other work
Score:   SST-2, accuracy on dev, which also chose the epoch, seed 0 (b6663d9): 0.7982, and 0.8062
         with --language-model-weight 0; a bag of words 0.801. The weights are of
         recipes/language_model.py on NLTK's movie reviews (1,833,728 parameters), and the options
         --learning-rate 3e-4 --epochs 4
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.convert.encoders import load_language_model
from keras_transformers.data.language_models.causal import TextPacker, classification_batches
from keras_transformers.data.text.classification import statistics
from keras_transformers.data.text.examples import Examples, majority_share
from keras_transformers.data.text.labelled_files import LabelledFiles
from keras_transformers.evaluation.perplexity import Perplexity
from keras_transformers.inspection import update_cost
from keras_transformers.models import gpt
from keras_transformers.pipelines.token_inputs import ONE_TEXT_INPUTS, check_model, checked_length
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.fine_tuning import Tuning, with_grid
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.training.losses import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(LabelledFiles, Tuning):
    """Fine-tunes a GPT to classify texts or pairs of texts."""

    weights: Path | None = None  # like GPT-2's: config.json, model.safetensors and `vocabulary`'s
    model: str | None = None  # instead: a name of `keras-transformers list 'gpt*'`, random weights
    vocabulary: Path | None = None  # folder of vocab.json, merges.txt; --weights brings its own

    learning_rate: float = 6.25e-5  # the highest, after the warm-up; this and the next as the paper
    warmup_fraction: float = 0.002
    language_model_weight: float = 0.5  # of its loss beside the classifier's 1; 0 leaves it out

    name: str = "gpt_classification"  # the run's folder in runs_dir


def main(config: Config) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        if config.language_model_weight < 0:
            raise ValueError(f"--language-model-weight {config.language_model_weight}: 0 or more")
        folder = config.begin()
        train, dev, test, labels = config.read()
        with config.scope():
            language_model, tokenizer = load_language_model(
                weights=config.weights,
                model=config.model,
                vocabulary=config.vocabulary,
                dropout=config.dropout,
            )
            model = gpt.classifier(language_model, len(labels), dropout=config.dropout)
        packer = TextPacker(tokenizer)
        check_model(model, packer, "logits", inputs=ONE_TEXT_INPUTS)
        checked_length(model, config.max_sequence_length, pair=train.texts_b is not None)

        def batches(
            examples: Examples, *, parts: int = 1, shuffle: bool = False
        ) -> tf.data.Dataset:
            return classification_batches(
                examples,
                tokenizer,
                labels,
                batch_size=config.batch_size * parts,
                max_sequence_length=config.max_sequence_length,
                shuffle=shuffle,
                seed=config.seed,
            )

        train_batches = batches(train, parts=config.accumulate, shuffle=True)
        dev_batches = batches(dev)
        counts = statistics(
            train,
            packer,
            batch_size=config.batch_size,
            max_sequence_length=config.max_sequence_length,
        )
        rows = len(train) / len(train_batches)
        cost = update_cost(model, rows=rows, length=counts.num_tokens / len(train))
        with config.scope():
            model.compile(
                optimizer=config.optimizer(len(train_batches)),
                loss={
                    "logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                    "token_logits": TokenCrossentropy(),
                },
                loss_weights={"logits": 1.0, "token_logits": config.language_model_weight},
                weighted_metrics={
                    "logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
                    "token_logits": [Perplexity()],
                },
                jit_compile=False,
            )
        config.prepare(model)
        resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
        usual = runs.callbacks(folder, monitor="val_logits_accuracy", log=config, **cost._asdict())
        callbacks = [*usual, resume]
        runs.start(folder, config)
        position = resume.restore(model, callbacks)

    model.fit(
        train_batches.repeat().skip(position.step),
        steps_per_epoch=len(train_batches),
        validation_data=dev_batches,
        initial_epoch=position.epoch,
        epochs=config.epochs,
        shuffle=False,  # the batches are shuffled already
        callbacks=callbacks,
        verbose=runs.verbosity(),
    )
    best = runs.load_best(model, folder, resume.epochs, "val_logits_accuracy")

    metrics = {
        "dev_accuracy": best["best"],
        "dev_majority": majority_share(dev),
        **best,
        "epochs": resume.epochs,
        "labels": labels,
        "seconds": round(time.time() - started),  # since the start, or since it was resumed
    }
    if test is not None:
        scores = model.evaluate(batches(test), return_dict=True, verbose=0)
        metrics |= {
            "test_accuracy": scores["logits_accuracy"],
            "test_majority": majority_share(test),
        }
    runs.report(folder, metrics)
    if config.export and strategies.is_chief():
        exported = kt.export.classifier(
            model,
            packer,
            labels,
            config.export,
            max_sequence_length=config.max_sequence_length,
            pair=train.texts_b is not None,
            scores=runs.scores(metrics),
        )
        print(f"exported: {exported}")
    return metrics


if __name__ == "__main__":
    runs.command_line(with_grid(main), Config)
