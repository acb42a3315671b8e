"""Text classification with a GPT, which keeps training as a language model as well.

Paper:   Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training",
         sections 3.2 and 4.1: the last token's vector, with the language model's loss as auxiliary
Data:    any TSV, CSV, JSON Lines or Parquet file, plain or compressed, including GLUE's files
Command: python recipes/gpt_classification.py --train-file sst2/train.tsv.gz
             --dev-file sst2/dev.tsv.gz --weights runs/language_model/weights --learning-rate 3e-4
             --epochs 4
         where the weights come from recipes/language_model.py on NLTK's movie reviews (1,833,728
         parameters); a GPT-2's folder works too
Cost:    4 minutes on one thread of a busy machine
Score:   SST-2, accuracy on dev, which also chose the epoch, seed 0 (b6663d9): 0.7982; with
         --language-model-weight 0 0.8062; a bag of words 0.801. GPT and BERT on equal text:
         docs/results/pretraining.md
"""

import dataclasses
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.language_models import NextTokenTextBatches
from keras_transformers.data.text import LabelledFiles, majority_share
from keras_transformers.evaluation import Perplexity
from keras_transformers.fitting import reports_on, set_confidence
from keras_transformers.ranges import NonNegativeFloat, PositiveFloat, Share
from keras_transformers.runs import LabelTraining, ModelSource, Run, Tuning, command_line
from keras_transformers.training import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(LabelledFiles, LabelTraining, ModelSource, Tuning):
    """Fine-tunes a GPT to classify texts or pairs of texts."""

    weights: Path | None = None  # anything that keras_transformers.load reads, such as GPT-2's
    model: str | None = None  # instead: one of `keras-transformers list 'gpt*'`, random weights
    vocabulary: Path | None = None  # folder with vocab.json and merges.txt; --weights has its own

    learning_rate: PositiveFloat = 6.25e-5  # peak; this and the next are the paper's values
    warmup_fraction: Share = 0.002
    # weight of the language model's loss, relative to the classifier's; 0 omits it
    language_model_weight: NonNegativeFloat = 0.5

    name: str = "gpt_classification"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    train, dev, test, labels = config.read()
    with run.scope():
        language_model, tokenizer = kt.convert.load_language_model(
            **config.pick("weights", "model", "vocabulary", "dropout")
        )
        model = kt.heads.causal_classifier(language_model, len(labels), dropout=config.dropout)
        classify = kt.pipelines.TextClassifier(
            model,
            tokenizer,
            labels,
            max_sequence_length=config.max_sequence_length,
            pair=train.texts_b is not None,
        )
        batches = NextTokenTextBatches(train, classify, **config.batching())
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
            loss={
                "logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                "token_logits": TokenCrossentropy(),
            },
            loss_weights={"logits": 1.0, "token_logits": config.language_model_weight},
            weighted_metrics={
                "logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
                "token_logits": [Perplexity()],
            },
            jit_compile=config.jit_compile,
        )
    fit = run.prepare(model, batches, validation=batches.of(dev), monitor="val_logits_accuracy")
    model.fit(**fit)

    best = run.load_best()
    reached = run.best_figures["val_logits_accuracy"]
    figures = {
        "dev_accuracy": reached,
        "dev_majority": majority_share(dev),
        **best,
    }
    if test is not None:
        scores = model.evaluate(batches.of(test).dataset(), return_dict=True, verbose=0)
        figures |= {
            "test_accuracy": scores["logits_accuracy"],
            "test_majority": majority_share(test),
        }
    figures |= set_confidence(classify, batches.of(dev), dev, config)
    reports = reports_on(classify, batches, dev=dev, test=test)
    return run.finish(classify, {**figures, "labels": labels}, reports=reports)


if __name__ == "__main__":
    command_line(main, Config)
