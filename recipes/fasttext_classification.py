"""Text classification with fastText: a bag of words and n-grams, the baseline to beat.

Paper:   Joulin et al. 2016, https://arxiv.org/abs/1607.01759
Data:    any TSV, CSV, JSON Lines or Parquet file, plain or compressed, including GLUE's files.
         Texts are used as they are: lower-case them and separate punctuation yourself if needed
Command: python recipes/fasttext_classification.py --train-file sst2/train.tsv.gz
             --dev-file sst2/dev.tsv.gz --seed 0
Cost:    under a minute on two busy CPU cores
Score:   SST-2 (6,911 whole sentences, without GLUE's phrases), accuracy on dev, which also chose
         the epoch: 0.7913 with seed 0; majority 0.5092 (1bef5d7)
"""

import collections
import dataclasses
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data import ClassWeighting
from keras_transformers.data.text import (
    Examples,
    LabelledFiles,
    LabelWeights,
    TextBatches,
    majority_share,
)
from keras_transformers.fitting import reports_on, set_confidence
from keras_transformers.ranges import NonNegativeInt, PositiveFloat, PositiveInt, Rate, Share
from keras_transformers.runs import Confidence, Options, Run, command_line
from keras_transformers.tokenizers import NgramTokenizer
from keras_transformers.training import TokenCrossentropy, WarmupLinearDecay


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(LabelledFiles, ClassWeighting, Confidence, LabelWeights, Options):
    """Trains fastText to classify texts."""

    epochs: PositiveInt = 10
    batch_size: PositiveInt = 16
    # peak: fastText's rate for single texts, times batch_size
    learning_rate: PositiveFloat = 8.0
    warmup_fraction: Share = 0.0  # of all updates
    label_smoothing: Rate = 0.0  # share of the target spread evenly over the labels
    # words and n-grams per text; more are trimmed and counted
    max_sequence_length: PositiveInt = 100_000

    embedding_dim: PositiveInt = 10
    word_ngrams: PositiveInt = 2  # longest n-gram of words
    min_characters: NonNegativeInt = 0  # shortest n-gram of characters in a word
    max_characters: NonNegativeInt = 0  # longest; 0 for none
    num_buckets: PositiveInt = 200_000  # buckets that n-grams are hashed into
    hierarchical: bool = False  # softmax over a Huffman tree of the labels

    name: str = "fasttext_classification"  # the run's folder in runs_dir

    def check(self) -> None:
        """Checks the options before any data is read."""
        if self.text_b_column is not None:
            raise ValueError("--text-b-column: fastText reads one text at a time; leave it out")
        super().check()


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    train, dev, test, labels = config.read()
    tokenizer = NgramTokenizer.train(train.texts, **config.pick(*NGRAMS))
    weights = config.weights_of(train, labels)
    with run.scope():
        model = build(config, tokenizer, train, labels)
        classify = kt.pipelines.TextClassifier(
            model, tokenizer, labels, max_sequence_length=config.max_sequence_length
        )
        batches = TextBatches(train, classify, label_weights=weights, **config.pick(*BATCHING))
        model.compile(
            # SGD has no moments, so only the rows of the batch's words change.
            optimizer=keras.optimizers.SGD(schedule(config, len(batches))),
            loss={"logits": TokenCrossentropy(label_smoothing=config.label_smoothing)},
            weighted_metrics={"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]},
            jit_compile=config.jit_compile,
        )
    model.fit(**run.prepare(model, batches, validation=batches.of(dev), monitor="val_accuracy"))
    best = run.load_best()
    reached = run.best_figures["val_accuracy"]
    figures = {
        "dev_accuracy": reached,
        "dev_majority": majority_share(dev),
        **best,
    }
    if test is not None:
        scores = model.evaluate(batches.of(test).dataset(), return_dict=True, verbose=0)
        figures |= {"test_accuracy": scores["accuracy"], "test_majority": majority_share(test)}
    figures |= set_confidence(classify, batches.of(dev), dev, config)
    reports = reports_on(classify, batches, dev=dev, test=test)
    return run.finish(classify, {**figures, "labels": labels}, reports=reports)


BATCHING = ("class_weight", "batch_size", "accumulate", "seed", "static_shapes")
NGRAMS = ("num_buckets", "word_ngrams", "min_characters", "max_characters")


def build(
    config: Config, tokenizer: NgramTokenizer, train: Examples, labels: list[str]
) -> keras.Model:
    """Returns a linear or hierarchical classifier on the mean of a bag of vectors."""
    encoder = kt.families.fasttext.fasttext(
        vocabulary_size=tokenizer.vocabulary_size, embedding_dim=config.embedding_dim
    )
    if config.hierarchical:
        counts = collections.Counter(train.labels)
        return kt.families.fasttext.hierarchical_classifier(encoder, [counts[x] for x in labels])
    return kt.heads.classifier(encoder, len(labels), dropout=0.0)


def schedule(config: Config, steps_per_epoch: int) -> WarmupLinearDecay:
    """Returns fastText's schedule: warm-up, then linear decay to 0 after the last update."""
    num_updates = config.epochs * steps_per_epoch
    return WarmupLinearDecay(
        config.learning_rate,
        warmup_steps=round(config.warmup_fraction * num_updates),
        total_steps=num_updates,
    )


if __name__ == "__main__":
    command_line(main, Config)
