"""Trains a pipeline in one call: strings in, compile and `model.fit` inside."""

import contextlib
import dataclasses
import hashlib
import inspect
import json
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.data.bad_rows import OnBadRows
from keras_transformers.data.faults import faults
from keras_transformers.data.weighting import ClassWeight
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.fitting.confidence import described, set_confidence
from keras_transformers.fitting.option_names import ADVICE
from keras_transformers.fitting.user_metrics import Metrics, all_metrics
from keras_transformers.fitting.user_optimizer import UserOptimizer
from keras_transformers.options import unknown_option
from keras_transformers.ranges import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
    check_ranges,
)
from keras_transformers.runs import Run, Validation, is_chief
from keras_transformers.runs.monitors import monitors_of
from keras_transformers.runs.resume.folder_lock import LOCK
from keras_transformers.runs.resume.run_folder import CONFIG
from keras_transformers.runs.user_callbacks import as_callbacks, restores_weights
from keras_transformers.tasks import lora
from keras_transformers.tasks.labels import LabelsAre
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.task import all_tasks, trainer_of
from keras_transformers.tasks.training import FitOptions, Trainer
from keras_transformers.tasks.windows import limit_windows
from keras_transformers.training.averaging import SwapAverageWeights

__all__ = ["fit"]

# Options that `fit` sets itself: the run's folder, and what happens to a trained pipeline.
_SET_BY_FIT = {
    "data",
    "export",
    "mlflow",
    "name",
    "optimizer_config",
    "precision",
    "resume",
    "runs_dir",
    "save",
    "weights_dtype",
    "dropout",
}
# Arguments that only some tasks have as options.
_NOT_FOR_ALL = {"batch_size", "class_weight", "calibrate", "abstain_below"}
# What decides the updates of the optimizer that `fit` makes.
_OF_OPTIMIZER = ("learning_rate", "warmup_fraction", "weight_decay", "clip_norm")


def fit(
    pipeline: Pipeline,
    data: Any,
    *,
    validation: Any = None,
    columns: Mapping[str, str] | None = None,
    labels_are: LabelsAre | None = None,
    on_bad_rows: OnBadRows = "error",
    epochs: PositiveInt | None = None,
    batch_size: PositiveInt | None = None,
    learning_rate: PositiveFloat | None = None,
    class_weight: ClassWeight | None = None,
    monitor: str | None = None,
    patience: NonNegativeInt | None = None,
    metrics: Metrics = None,
    calibrate: bool = False,
    abstain_below: Share | None = None,
    few_shot: bool = False,
    optimizer: keras.optimizers.Optimizer
    | str
    | Callable[[], keras.optimizers.Optimizer]
    | None = None,
    folder: str | os.PathLike[str] | None = None,
    callbacks: keras.callbacks.Callback | Sequence[keras.callbacks.Callback] | None = (),
    **options: Any,
) -> keras.callbacks.History:
    """Trains a pipeline on labelled data and keeps the weights of the best epoch.

    For every task it uses AdamW with a warm-up and a decay, clips gradients, and takes batches,
    metrics, checkpoints and defaults as the task's recipe does, with `model.fit` inside: with the
    same weights and data, both train to the same weights, bit for bit. Dropout is the pipeline's.
    For translation, the recipe trains new models, with another optimizer and schedule.

    Each task reads these columns, in this order if the data is a tuple:

    - classification: text, label; for pairs, text, text_b, label
    - multi_label_classification: text (text_b), labels: a list of labels, or a 0 or 1 per label
    - regression: text (text_b), score
    - tagging: words, labels: lists with one label per word
    - question_answering: question, context, answers as in SQuAD
    - multiple_choice: text, choices, label
    - embedding: text, text_b (a matching text) and optionally negative (one text or a list of
      texts that do not match); or text, text_b, score from 0 to 1
    - sparse_embedding, late_interaction: text (the query), text_b (a document that answers it) and
      optionally negative, as for embedding, and score: a list with a teacher's score of text_b and
      of each negative, to learn these
    - reranking: text (the query), text_b (a document), score: 1 if the document answers the
      query, else 0; with `distill=True`, a teacher's score. If all are 1, BM25 finds 7 others for
      each query, which count as 0
    - next_sentence: text, text_b, label: 0 if text_b follows
    - image_classification: image (pixels of the model's size from 0 to 255, or a file's path),
      label
    - translation: text, target
    - generation: text; or messages, lists of {"role": ..., "content": ...}, of which it learns what
      the assistant writes

    Labels are names, or indices from 0 into the pipeline's labels. The whole column is read one
    way, and that of the validation data the same way.

    Args:
        pipeline: a pipeline from `load`; its model is trained in place.
        data: columns as a tuple, a mapping, a pandas or polars DataFrame, an Arrow table, a split
            of the `datasets` library, a list of rows, a `tf.data.Dataset` of rows, such as one from
            TensorFlow Datasets, or the path of a file that the task's recipe reads.
        validation: data in any of these forms, or the share of `data` to hold out, such as 0.1. It
            selects the best epoch, with `calibrate` the temperature and, for multi-label
            classification, the thresholds. None keeps the weights of the last epoch.
        columns: the task's column name -> the data's, where they differ.
        labels_are: "names" or "indices", for numbers that can be either: with labels named "1" to
            "5", 2 is the label "2" or the third. Lists of several labels may also be "indicators",
            a 0 or 1 for each of the pipeline's labels. None takes the only way that fits, and
            raises an error if several fit and differ.
        on_bad_rows: what to do with rows without a value, or whose text is no Unicode, as with half
            of a surrogate pair: "error" names all of them, "drop" trains without them and says
            which they are.
        epochs: passes over the data: 3 by default, 10 for generation, 60 for images.
        batch_size: examples per update, 16 or 32 by default, or rows of text for generation;
            translation uses `batch_tokens`.
        learning_rate: the peak, after which it falls to 0. By default, by the model's
            size: see `rate_for` of the task's options, such as `tasks.ClassificationOptions`.
        class_weight: "balanced", which weighs each label by n / (k * count) as scikit-learn does;
            or label -> weight, 1 for the others. For several labels per text, these are the weights
            of having a label; "balanced" makes having it weigh as much as not having it, in total.
            A column `weight` of the data (also last in a tuple, or `columns={"weight": ...}` for a
            file of texts) weighs each example; the two multiply. The loss of a batch is
            sum(weight * loss) / sum(weight), so only the proportions of weights count. Validation
            counts all examples the same.
        monitor: the figure that decides which epoch's weights are kept: "val_loss", another one
            that the progress shows, or one of `metrics`; by default the task's own, such as
            "val_accuracy". The lowest loss, error or perplexity is best, and the highest of others.
        patience: epochs without a better one by `monitor` before training stops.
        metrics: more Keras metrics, or a list of them per output of the model, to measure in
            training and on the validation data. They get the targets as the loss does: ids of
            labels, for images and several labels a row with a number per label.
        calibrate: whether to fit the pipeline's `temperature` to the validation data after the
            training (Guo et al. 2017), so that its probabilities are as sure as they are right. The
            most likely answers stay the same. Otherwise an earlier temperature becomes 1: it was
            for other weights. For tasks with probabilities of labels or choices.
        abstain_below: the pipeline's `abstain_below` from now on: answers with a lower probability
            are marked as abstained. None leaves it as it is.
        few_shot: whether to learn from a few texts per label, such as 8, as SetFit does (Tunstall
            et al. 2022): one epoch on pairs of texts brings the vectors of texts with the same
            label together; then the last layer is solved for, as a logistic regression on them. For
            classification and multi_label_classification, best on an encoder that was trained to
            embed sentences. Its options and defaults are those of `tasks.FewShotOptions`: pairs
            (per epoch; by default all) and head_strength; 1 epoch, batches of 16 pairs and a
            learning rate of 2e-5.
        optimizer: one to use instead, with its own learning rate, weight decay and clipping: an
            optimizer that has not trained yet, its name as in `compile` for Keras' defaults, or a
            function that makes one, which a strategy needs. With `use_ema`, the average of the
            weights is scored and kept. `keras_transformers.training.adamw(2e-5)` is the optimizer
            of `fit` at a constant rate; Keras' own ones also decay biases and norms.
        folder: where to keep checkpoints, weights and TensorBoard logs. If a run with the same data
            and options was stopped there, this one resumes it bit for bit. None keeps nothing.
        callbacks: more callbacks for `model.fit`, or one, called after the figures of an epoch are
            measured; `best_epoch` is one. `callbacks.MLflow` logs the training to
            MLflow. One that sets the learning rate, such as ReduceLROnPlateau, needs an
            `optimizer` whose rate is a number. EarlyStopping, ModelCheckpoint and ReduceLROnPlateau
            may follow any figure that exists. EarlyStopping may restore the best weights only by
            the figure that selects the best epoch here; without `validation`, by any.
        **options: other options of recipes: warmup_fraction, weight_decay, clip_norm, seed; lora
            (the rank of low-rank updates, trained in place of the model's own matrices) with
            lora_alpha and lora_targets; accumulate, static_shapes, recompute, r_drop, strategy,
            checkpoint_every, checkpoint_minutes, quiet, log_json. Embeddings also take temperature,
            symmetric, dims (Matryoshka) and chunk (GradCache); sparse ones temperature, symmetric,
            query_regularizer and document_regularizer; late interaction takes temperature;
            rerankers take distill and list_size (documents of a query that are compared at once).
            To train in another precision, call `keras.config.set_dtype_policy` before loading the
            pipeline.

    Returns:
        Keras' History: `history` has the metrics of each epoch, including epochs before a restart.

    Raises:
        FileExistsError: the folder has something else in it.
        FileNotFoundError: a file does not exist.
        TypeError: the pipeline cannot be trained in one call, an option is unknown, the data has an
            unknown type, or something else is passed as a callback, a metric or an optimizer.
        ValueError: a label is unknown or can be read in two ways, a column is missing, columns
            differ in length, a number is out of range, `class_weight` has an unknown label, a
            weight is negative or none is above 0, a figure to follow does not exist, two options or
            a callback and the training contradict each other, or the folder holds a run with other
            data or options. All of these are raised before the first step.

    Example:
        classify = kt.load("bert-base-uncased/", pipeline="classification", labels=["bad", "good"])
        kt.fit(classify, (texts, labels), validation=0.1, epochs=3)
    """
    trainer = trainer_of(pipeline)
    if few_shot:
        trainer = _few_shot(trainer, pipeline, metrics)
    named = {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "class_weight": dict(class_weight) if isinstance(class_weight, Mapping) else class_weight,
        "monitor": monitor,
        "patience": patience,
        "calibrate": calibrate or None,
        "abstain_below": abstain_below,
    }
    chosen = {name: value for name, value in named.items() if value is not None} | options
    if class_weight is not None and trainer.labels is None:
        raise TypeError(f"class_weight: {pipeline.task} has no labels to weigh: leave it out")
    for name in ("calibrate", "abstain_below"):
        if name in chosen and not trainer.calibrates:
            raise TypeError(
                f"{name}={chosen[name]!r}: {pipeline.task} has no probabilities of labels: leave "
                "it out"
            )
    _check_options(trainer, chosen, usual=trainer_of(pipeline))
    for name in ("patience", "monitor", "calibrate"):
        if validation is None and name in chosen:
            raise ValueError(
                f"{name}={chosen[name]!r} needs validation data: pass validation=, which is data "
                "or a share of the training data such as 0.1"
            )
    if not isinstance(calibrate, bool):
        raise TypeError(f"calibrate={calibrate!r}: pass True or False")
    if not isinstance(monitor, str | None):
        raise TypeError(f"monitor={monitor!r}: pass the name of a figure, such as 'val_loss'")
    callbacks = as_callbacks(callbacks)
    user_optimizer = None
    if optimizer is not None:
        if twice := [name for name in _OF_OPTIMIZER if name in chosen]:
            raise ValueError(
                f"{twice[0]}={chosen[twice[0]]!r} is for the optimizer that fit makes, not for "
                "optimizer=: leave out one of the two"
            )
        user_optimizer = UserOptimizer(optimizer, strategy=chosen.get("strategy", "default"))
        chosen["optimizer_config"] = user_optimizer.config
    columns = columns or {}
    held_out = None
    reading: dict[str, Any] = {"weighted": True, "on_bad_rows": on_bad_rows}
    if isinstance(validation, float):
        if not 0 < validation < 1:
            raise ValueError(f"validation={validation}: pass a share between 0 and 1, or data")
        (train,) = trainer.read(pipeline, {"data": data}, columns, labels_are, **reading)
        train, held_out = trainer.split(train, validation)
    else:
        sets = {"data": data} | ({} if validation is None else {"validation": validation})
        train, *others = trainer.read(pipeline, sets, columns, labels_are, **reading)
        held_out = others[0] if others else None
    if not chosen.get("quiet"):
        parts = {"data": train} | ({} if held_out is None else {"validation": held_out})
        if line := faults(*((name, trainer.contents(part)) for name, part in parts.items())):
            print(line, flush=True)
    with _folder(folder) as place, _signals_restored():
        config = _config(
            trainer, chosen, place, digest=_digest([train, held_out]), kept=folder is not None
        )
        if user_optimizer is None and config.learning_rate is None:
            rate = config.rate_for(pipeline.model)
            config = dataclasses.replace(config, learning_rate=rate)
        run = Run(config)
        with run.tracked():
            return _trained(
                run, trainer, pipeline, train, held_out, callbacks, user_optimizer, metrics
            )


def _trained(
    run: Run,
    trainer: Trainer[Any, Any],
    pipeline: Any,
    train: Any,
    held_out: Any,
    callbacks: Sequence[keras.callbacks.Callback],
    user_optimizer: UserOptimizer | None,
    metrics: Metrics,
) -> keras.callbacks.History:
    config: Any = run.config
    with run.scope():
        alone = config.strategy == "default" and config.lora is None
        trained = pipeline if alone else _copy(pipeline)
        if config.lora is not None:
            lora.enable(
                trained.model,
                rank=config.lora,
                alpha=config.lora_alpha,
                targets=config.lora_targets,
            )
        batches = trainer.batches(trainer.encoded(trained, train), trained, **config.batching())
        model = trainer.trained_model(trained, train)
        limit_windows(model, at_once=config.batch_size)
        losses = trainer.losses(trained, train, config)
        model.compile(
            optimizer=(
                user_optimizer.make() if user_optimizer else config.optimizer(model, len(batches))
            ),
            weighted_metrics=all_metrics(trainer.metrics(trained), metrics, list(losses["loss"])),
            jit_compile=config.jit_compile and trainer.may_compile,
            **losses,
        )
    arguments: dict[str, Any] = {}
    on_held_out: Any = None
    # Averages come first, since they are scored and kept; a user's other callbacks hear the scores.
    first = [x for x in callbacks if isinstance(x, keras.callbacks.SwapEMAWeights)]
    last = [x for x in callbacks if x not in first]
    averages = user_optimizer is not None and user_optimizer.averages
    if averages and not first:
        first = [SwapAverageWeights()]
    if held_out is not None:
        first += trainer.callbacks()
        on_held_out = trainer.held_out(trained, batches, held_out)
        monitor = arguments["monitor"] = trainer.monitor(held_out)
        followed = {config.monitor, *monitors_of(callbacks)} - {None, monitor}
        if trainer.metrics(trained) is not None:
            arguments["validation"] = on_held_out
        elif metrics or followed:
            arguments["validation"] = trainer.with_targets(trained, on_held_out, held_out)
        # A figure that only the report has is measured if something follows it.
        reports = bool(trainer.report_figures) and bool(followed - {"val_loss", "loss"})
        if trainer.report_figures.get((config.monitor or "").removeprefix("val_")) is False:
            arguments["mode"] = "min"
        if trainer.has_scores or reports:

            def scores() -> dict[str, float]:
                trainer.finish(trained, train, config)
                answers = trainer.answered(trained, on_held_out, held_out)
                report = trainer.report(trained, answers, held_out) if reports else None
                figures = {} if report is None else report.figures
                return {**figures, **trainer.answer_scores(trained, answers, held_out)}

            first.append(Validation(scores, monitor=monitor))
    prepared = run.prepare(model, batches, callbacks=first, user_callbacks=last, **arguments)
    trainer.adapt_step(model, config)
    if trainer.calibrates:  # it was for other weights
        trained.temperature = pipeline.temperature = 1.0
    history = model.fit(**prepared)
    if held_out is not None:
        run.load_best()
    elif averages and not any(map(restores_weights, last)):
        run.load_last()  # if training stopped early, Keras has put back those it trained
    pipeline.adapter = None  # the base of an earlier adapter is gone
    if config.lora is not None:
        lora.copy_base(trained.model, pipeline.model)
        pipeline.adapter = lora.taken(trained.model, config.lora, config.lora_alpha)
        lora.merge(pipeline.adapter, pipeline.model)
    elif trained is not pipeline:
        pipeline.model.set_weights(trained.model.get_weights())
    trainer.finish(pipeline, train, config)
    if trainer.calibrates:
        figures = set_confidence(pipeline, on_held_out, held_out, config)
        if figures and not config.quiet and is_chief():
            print(described(figures), flush=True)
    if held_out is not None:
        trainer.choose(pipeline, on_held_out, held_out)

    def report() -> Report | None:
        return None if held_out is None else trainer.reported(pipeline, on_held_out, held_out)

    run.track(pipeline, reports=lambda: {"validation": report()})
    return _with_all_epochs(history, run.epochs)


def _few_shot(trainer: Trainer[Any, Any], pipeline: Any, metrics: Metrics) -> Trainer[Any, Any]:
    """Returns what trains the pipeline on a few examples."""
    few = trainer.few_shot()
    if few is None:
        able = [
            name for name, task in all_tasks().items() if (x := task.trainer()) and x.few_shot()
        ]
        raise TypeError(
            f"few_shot=True: {pipeline.task} has no labels of texts to pair them by: leave it out, "
            f"or use a pipeline for {' or '.join(able)}"
        )
    few.check(pipeline)
    if metrics:
        raise TypeError(
            "metrics: few-shot training learns from pairs of texts, which have no labels to "
            "measure: leave it out; with validation=, monitor= takes any figure of the report"
        )
    return few


def option_names(trainer: Trainer[Any, Any]) -> set[str]:
    """Returns the names of the options of `fit` for a task."""
    fields = dataclasses.fields(trainer.fit_options())
    return {field.name for field in fields} - _SET_BY_FIT - trainer.unused


def _check_options(
    trainer: Trainer[Any, Any], chosen: Mapping[str, Any], *, usual: Trainer[Any, Any]
) -> None:
    """Checks names and ranges of options; `usual` is the trainer without `few_shot`."""
    names = option_names(trainer)
    for name in chosen:
        if name not in names:
            if name in option_names(usual):
                raise TypeError(
                    f"{name}={chosen[name]!r:.80}: few-shot training does not read it: leave it out"
                )
            arguments = set(inspect.signature(fit).parameters) - {"pipeline", "options"}
            raise unknown_option("fit", name, names | arguments - _NOT_FOR_ALL, ADVICE)
    check_ranges(trainer.fit_options(), chosen)


def _config(
    trainer: Trainer[Any, Any], chosen: Mapping[str, Any], place: Path, *, digest: str, kept: bool
) -> FitOptions:
    defaults = {} if kept else {"tensorboard_samples": 0}
    options: FitOptions = trainer.fit_options()(
        **defaults | dict(chosen),
        data=digest,
        name=place.name,
        runs_dir=place.parent,
        resume=(place / CONFIG).is_file(),
        precision=keras.config.dtype_policy().name,
    )
    return options


@contextlib.contextmanager
def _folder(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Yields the run's folder, or a temporary one that is removed afterwards."""
    if folder is not None:
        place = Path(folder).absolute()
        if place.is_file() or (place.is_dir() and any(place.iterdir()) and not _is_run(place)):
            raise FileExistsError(
                f"{place} exists and is not a run's folder: choose another folder, or remove it"
            )
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="keras_transformers_") as scratch:
        yield Path(scratch, "run")


def _is_run(place: Path) -> bool:
    return (place / CONFIG).is_file() or [path.name for path in place.iterdir()] == [LOCK]


@contextlib.contextmanager
def _signals_restored() -> Iterator[None]:
    """Restores the handler of SIGTERM, which a run replaces to exit with its own status."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _copy(pipeline: Any) -> Any:
    """Returns the pipeline with a copy of its model whose variables are created in this scope."""
    model = pipeline.model
    twin = type(model).from_config(model.get_config())
    twin.set_weights(model.get_weights())
    return type(pipeline).restore(twin, pipeline.tokenizers, **pipeline.config())


def _digest(examples: Any) -> str:
    """Returns a digest of the data, the same in every process."""
    return hashlib.sha256(
        json.dumps(_plain(examples), ensure_ascii=True, sort_keys=True).encode()
    ).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: _plain(x) for name, x in fields.items() if name not in ("source", "decoder")}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        if value.dtype == object:  # such as paths, whose bytes are memory addresses
            return _plain(value.tolist())
        return [value.shape, hashlib.sha256(value.tobytes()).hexdigest()]
    return value if isinstance(value, str | int | float | None) else str(value)


def _with_all_epochs(
    history: keras.callbacks.History, epochs: Sequence[Mapping[str, float]]
) -> keras.callbacks.History:
    """Adds the metrics of the epochs before a restart."""
    names = dict.fromkeys(name for logs in epochs for name in logs if name != "epoch")
    history.epoch = [int(logs["epoch"]) - 1 for logs in epochs]
    history.history = {name: [logs[name] for logs in epochs if name in logs] for name in names}
    return history
