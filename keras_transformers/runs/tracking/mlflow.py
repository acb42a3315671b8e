"""Logs runs to MLflow: their options, figures, reports and models."""

import contextlib
import csv
import logging
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_transformers import files
from keras_transformers.dependencies.extras import optional
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.runs.telemetry import curves
from keras_transformers.runs.tracking.tracker import Results, TrackedRun, Tracker
from keras_transformers.saved_model.exporting import export
from keras_transformers.saved_model.pyfunc import pyfunc_arguments
from keras_transformers.tasks.pipeline import Pipeline

__all__ = ["MLflow"]

logger = logging.getLogger(__name__)

STATE = "mlflow.json"  # in the run's folder: the run's id there, and what is complete
_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
_MOST_PARAMETERS = 100  # of one request
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")  # of figures


class MLflow(Tracker):
    """Logs a training to MLflow: options, the figures of each epoch, the report and the model.

    Pass it to `fit`. MLflow's own settings say where it logs: `MLFLOW_TRACKING_URI`,
    `MLFLOW_EXPERIMENT_NAME`, `mlflow.set_tracking_uri` and so on. If a run of MLflow is active, it
    is used and stays active; otherwise there is a new one while `fit` trains. With a `folder`, a
    training that was stopped continues its run.

    The report on the validation data becomes figures, such as `validation/macro_f1`, and artifacts:
    text, JSON, a CSV file per table, pictures as SVG. The model is an export of the pipeline, which
    `mlflow.pyfunc.load_model` reads; see `saved_model.pyfunc_arguments`.

    A server or a disk that fails does not stop the training. One warning names the reason; when
    training has ended, everything that is missing is logged if that works again.

    Args:
        experiment: the experiment's name, created if there is none; by default, MLflow's current.
        run_name: the name of a new run; MLflow makes one up by default.
        tags: more tags of the run.
        log_model: whether to export and log the model.
        registered_model_name: also registers the model as a new version of this name.

    Attributes:
        run_id: the id of the run in MLflow; None before the training.

    Raises:
        MissingExtraError: MLflow is not installed.
        ValueError: a model is to be registered, but not logged.

    Example:
        kt.fit(classify, data, validation=0.1, callbacks=kt.callbacks.MLflow(experiment="tickets"))
    """

    def __init__(
        self,
        *,
        experiment: str | None = None,
        run_name: str | None = None,
        tags: Mapping[str, str] | None = None,
        log_model: bool = True,
        registered_model_name: str | None = None,
    ) -> None:
        super().__init__()
        if registered_model_name is not None and not log_model:
            raise ValueError(
                f"registered_model_name={registered_model_name!r} needs log_model=True: pass it, "
                "or leave the name out"
            )
        self._mlflow: Any = optional("mlflow", extra="tracking")
        self._experiment = experiment
        self._run_name = run_name
        self._tags = dict(tags or {})
        self._log_model = log_model
        self._registered_model_name = registered_model_name
        self.run_id: str | None = None
        self._run: TrackedRun | None = None

    def start(self, run: TrackedRun) -> None:
        """Begins a run in MLflow, or continues that of the run's folder."""
        self.run_id, self._run = None, run
        self._is_ours = False
        self._last_epoch = 0  # that MLflow has
        self._is_off = self._has_warned = False
        self._attempt(self._open)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Logs the epoch's figures, and those of earlier epochs that MLflow does not have."""
        if self._run is not None:
            epochs = [*self._run.epochs(), {"epoch": epoch + 1, **(logs or {})}]
            self._attempt(lambda: self._log_epochs(epochs))

    def finish(self, results: Results) -> None:
        """Logs the reports and the model, once, and what an earlier failure left out."""
        run, self._is_off = self._run, False
        if run is None:
            return
        if self.run_id is None:
            self._attempt(self._open)
        self._attempt(lambda: self._log_epochs(run.epochs()))
        if self._is_off:
            return
        state, place = {"run_id": self.run_id, "epochs": len(run.epochs())}, run.folder / STATE
        if place.is_file() and files.read_json(place) == state:
            return
        self._has_warned = False  # it works again, so another failure is another matter
        self._attempt(lambda: self._log_results(results, run))
        if self._log_model:
            self._attempt(lambda: self._log_pipeline(results.pipeline, results.figures))
        self._attempt(lambda: files.write_json(place, state))

    def close(self, error: BaseException | None) -> None:
        """Ends the run in MLflow: FINISHED, KILLED by a signal, or FAILED."""
        run, self._run = self._run, None
        if run is None or not self._is_ours:
            return
        was_off, self._is_off = self._is_off, False
        is_stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        status = "FINISHED" if error is None else "KILLED" if is_stopped else "FAILED"
        if error is not None and not was_off:
            reason = f"{type(error).__name__}: {error}"
            self._attempt(lambda: self._client.set_tag(self.run_id, "error", reason))
        self._is_off = False  # whatever happens, it must not stay active in this process
        self._attempt(lambda: self._mlflow.end_run(status))

    def _attempt(self, function: Callable[[], object]) -> None:
        """Calls a function, unless an earlier one has failed; warns if it fails itself."""
        if self._is_off:
            return
        try:
            with _without_retries() if self._has_warned else contextlib.nullcontext():
                function()
        except Exception as error:  # of a server, a network, a disk or a database
            self._is_off = True
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "MLflow cannot log this run (%s: %s): the training goes on without it. Check "
                    "MLFLOW_TRACKING_URI, the server and its disk. If MLflow works again when the "
                    "training ends, everything is logged then; later, call this again with the "
                    "same folder and options",
                    type(error).__name__,
                    " ".join(str(error).split()) or "no message",
                )

    @property
    def _client(self) -> Any:
        return self._mlflow.MlflowClient()

    def _open(self) -> None:
        mlflow, run = self._mlflow, self._run
        assert run is not None
        state = run.folder / STATE
        before = files.read_json(state)["run_id"] if state.is_file() else None
        active = mlflow.active_run()
        if active is None:
            if before is not None and self._exists(before):
                active = mlflow.start_run(run_id=before)
            else:
                active = mlflow.start_run(
                    experiment_id=self._experiment_id(), run_name=self._run_name, tags=self._tags
                )
            self._is_ours = True
        self.run_id = active.info.run_id
        there = self._client.get_run(self.run_id).data
        if self.run_id == before:
            self._last_epoch = int(there.metrics.get("epoch", 0))
        else:
            files.write_json(state, {"run_id": self.run_id})
        facts = {"parameters": run.origin["parameters"], **run.options}
        options = {name: str(value) for name, value in facts.items()}
        new = [(name, value) for name, value in options.items() if name not in there.params]
        for start in range(0, len(new), _MOST_PARAMETERS):
            part = dict(new[start : start + _MOST_PARAMETERS])
            mlflow.log_params(part, run_id=self.run_id)
        # Parameters cannot change there, but a resumed run may have more epochs.
        for name, value in options.items():
            if there.params.get(name, value) != value:
                self._client.set_tag(self.run_id, f"changed {name}", value)

    def _exists(self, run_id: str) -> bool:
        """Returns whether a run is on the server that is used now."""
        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "active")
        except self._mlflow.MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def _experiment_id(self) -> str | None:
        if self._experiment is None:
            return None
        there = self._client.get_experiment_by_name(self._experiment)
        if there is not None:
            return str(there.experiment_id)
        return str(self._client.create_experiment(self._experiment))

    def _log_epochs(self, epochs: Sequence[Mapping[str, Any]]) -> None:
        for logs in epochs:
            number = int(logs["epoch"])
            if number > self._last_epoch:
                self._log_figures(logs, step=number)
                self._last_epoch = number

    def _log_figures(self, figures: Mapping[str, Any], *, step: int) -> None:
        now = round(1000 * time.time())
        self._client.log_batch(
            self.run_id,
            metrics=[
                self._mlflow.entities.Metric(_NOT_IN_NAMES.sub("", name), value, now, step)
                for name, value in curves(figures).items()
                if math.isfinite(value)
            ],
        )

    def _log_results(self, results: Results, run: TrackedRun) -> None:
        figures = _numbers(results.figures)
        for part, report in results.reports.items():
            figures |= {f"{part}/{name}": value for name, value in report.figures.items()}
        self._log_figures(figures, step=len(run.epochs()))
        self._mlflow.log_dict(dict(run.origin), "origin.json", run_id=self.run_id)
        with tempfile.TemporaryDirectory(prefix="keras_transformers_") as scratch:
            for part, report in results.reports.items():
                _write_report(report, Path(scratch, part))
            if results.reports:
                self._mlflow.log_artifacts(scratch, "reports", run_id=self.run_id)

    def _log_pipeline(self, pipeline: Pipeline, figures: Mapping[str, Any]) -> None:
        with tempfile.TemporaryDirectory(prefix="keras_transformers_") as scratch:
            folder = export(pipeline, Path(scratch, "export"), scores=_numbers(figures))
            self._mlflow.pyfunc.log_model(
                name="model",
                registered_model_name=self._registered_model_name,
                **pyfunc_arguments(folder),
            )


def _numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    """Returns the figures that are finite numbers."""
    return {
        name: value
        for name, value in figures.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _write_report(report: Report, folder: Path) -> None:
    report.save(folder)
    for name, table in report.tables.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([table.columns, *table.rows])


@contextlib.contextmanager
def _without_retries() -> Iterator[None]:
    """Makes MLflow try once, and not for minutes: it has been waited for already."""
    before = os.environ.get(_RETRIES)
    os.environ[_RETRIES] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_RETRIES]
        else:
            os.environ[_RETRIES] = before
