"""Multiple choice: fine-tunes an encoder to choose the right ending, answer, cause or effect.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 4.4; data: Zellers et al.
         2018 (SWAG), https://arxiv.org/abs/1808.05326
Data:    SWAG's train.csv and val.csv, COPA's train.jsonl and val.jsonl (SuperGLUE), or JSON Lines
         {"text": "...", "choices": ["...", "..."], "label": 0}, plain or compressed
Command: python recipes/multiple_choice.py --train-file swag/train.csv --dev-file swag/val.csv
             --weights BERT --epochs 3 --batch-size 16 --learning-rate 2e-5
         where BERT is a folder in Hugging Face's layout; these are the paper's settings
Score:   not measured, because SWAG's files were not available. The paper's table 4 has 0.816 on
         SWAG's dev set for BERT-Base and 0.866 for BERT-Large; chance is 0.25. For a smaller trial,
         benchmarks/training/following_sentences.py makes questions from Brown's documents
"""

import dataclasses
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data import RowOptions, log_faults
from keras_transformers.data.text import ChoiceBatches, ChoiceExamples, load_choices
from keras_transformers.fitting import reports_on, set_confidence
from keras_transformers.runs import EncoderTuning, Run, command_line
from keras_transformers.tasks import MultipleChoiceOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RowOptions, MultipleChoiceOptions, EncoderTuning):
    """Fine-tunes an encoder to choose one of several texts."""

    train_file: Path  # SWAG's .csv, COPA's .jsonl, or .jsonl with text, choices and label
    dev_file: Path  # to choose the best epoch
    test_file: Path | None = None  # evaluated once, at the end

    name: str = "multiple_choice"  # the run's folder in runs_dir

    def read(self) -> tuple[ChoiceExamples, ChoiceExamples, ChoiceExamples | None]:
        """Returns training, dev and test examples."""
        with self.bad_rows():
            train, dev = (labelled(path) for path in (self.train_file, self.dev_file))
            test = labelled(self.test_file) if self.test_file else None
        log_faults(train, dev, test)
        return train, dev, test


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    train, dev, test = config.read()
    with run.scope():
        encoder, tokenizer = kt.convert.load_encoder(**config.encoder_source())
        model = kt.heads.multiple_choice(encoder, dropout=config.dropout)
        choose = kt.pipelines.MultipleChoice(
            model, tokenizer, max_sequence_length=config.max_sequence_length
        )
        batches = ChoiceBatches(train, choose, **config.batching())
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
            loss={"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
            metrics={"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]},
            jit_compile=False,
        )
    model.fit(**run.prepare(model, batches, validation=batches.of(dev), monitor="val_accuracy"))
    best = run.load_best()
    reached = run.best_figures["val_accuracy"]
    figures = {"dev_accuracy": reached, "dev_chance": chance(dev), **best}
    if test is not None:
        scores = model.evaluate(batches.of(test).dataset(), return_dict=True, verbose=0)
        figures |= {"test_accuracy": scores["accuracy"], "test_chance": chance(test)}
    figures |= set_confidence(choose, batches.of(dev), dev, config)
    return run.finish(choose, figures, reports=reports_on(choose, batches, dev=dev, test=test))


def labelled(path: Path) -> ChoiceExamples:
    """Reads a file; raises ValueError if it has no labels, such as SWAG's test.csv."""
    examples = load_choices(path)
    if examples.labels is None:
        raise ValueError(f"{path}: no labels: give files for training, dev and test with labels")
    return examples


def chance(examples: ChoiceExamples) -> float:
    """Returns the accuracy of choosing at random."""
    return sum(1 / len(choices) for choices in examples.choices) / len(examples)


if __name__ == "__main__":
    command_line(main, Config)
