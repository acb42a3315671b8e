"""Sentence order: fine-tunes an encoder to tell whether two sentences are in their order."""

import dataclasses
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from acme.sentence_order.head import orderer
from acme.sentence_order.pipeline import SentenceOrderer
from acme.sentence_order.training import SentenceOrderBatches, SentenceOrderOptions, loss
from keras_transformers.data.text import LabelledFiles
from keras_transformers.runs import EncoderTuning, Run, command_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(LabelledFiles, SentenceOrderOptions, EncoderTuning):
    """Fine-tunes an encoder on pairs of sentences, labelled 1 if they are in their order."""

    name: str = "sentence_order"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of metrics.json."""
    train, dev, _, _ = config.read()
    with run.scope():
        encoder, tokenizer = kt.convert.load_encoder(**config.encoder_source())
        in_order = SentenceOrderer(
            orderer(encoder), tokenizer, max_sequence_length=config.max_sequence_length
        )
        batches = SentenceOrderBatches(train, in_order, **config.batching())
        in_order.model.compile(
            optimizer=config.optimizer(in_order.model, len(batches)),
            loss={"order_logits": loss(config)},
            weighted_metrics={
                "order_logits": [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]
            },
        )
    in_order.model.fit(
        **run.prepare(in_order.model, batches, validation=batches.of(dev), monitor="val_accuracy")
    )
    return run.finish(in_order, run.load_best())


if __name__ == "__main__":
    command_line(main, Config)
