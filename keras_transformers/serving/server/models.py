"""Finds, loads, swaps and unloads the versions of the served models.

A new version is loaded and warmed up while the current one keeps answering. Then it takes over, and
the old one is unloaded after its last request. If a version cannot be loaded, nothing changes.
"""

import contextlib
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from keras_transformers.saved_model.versions import version_folders
from keras_transformers.serving.protocol.errors import Code, RequestError, as_request_error, invalid
from keras_transformers.serving.server.saved_models import SavedModel, return_freed_memory
from keras_transformers.serving.server.settings import ModelSettings
from keras_transformers.serving.server.warm_up import warm_up

# The states of a version, numbered as in ModelVersionStatus.State.
LOADING, AVAILABLE, UNLOADING, END = 20, 30, 40, 50

_MAX_ATTEMPTS = 6  # as in TF Serving: one attempt and five retries
_FIRST_RETRY_S = 1.0
_ENDED_KEPT = 8  # ended versions kept for status requests; keeping all would leak memory
_RETURN_MEMORY_S = 10.0  # seconds between returning freed memory, which takes tens of milliseconds

_logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Version:
    """One version of a model, from loading to its end.

    Attributes:
        number: the name of the version's folder.
        path: the version's folder.
        state: LOADING, AVAILABLE, UNLOADING or END.
        error: why loading failed, or None.
        saved_model: the loaded model while the state is AVAILABLE or UNLOADING, else None.
        max_runs: how many runs of it may be in progress.
        attempts: how often loading has failed.
        retry_at: when loading may be tried again, by time.monotonic.
    """

    number: int
    path: Path
    state: int = LOADING
    error: RequestError | None = None
    saved_model: SavedModel | None = None
    max_runs: int = 2
    attempts: int = 0
    retry_at: float = 0.0
    _in_use: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self) -> None:
        """Loads and warms up the model, or sets `error`."""
        self.state, self.error = LOADING, None
        start, saved_model = time.monotonic(), None
        try:
            saved_model = SavedModel(self.path, max_runs=self.max_runs)
            records = warm_up(saved_model)
        except Exception as error:  # after any error, the current version must stay
            if saved_model is not None:
                saved_model.close()
            self.attempts += 1
            self.retry_at = time.monotonic() + _FIRST_RETRY_S * 2**self.attempts
            self.state, self.error = END, as_request_error(error)
            _logger.error("%s cannot be served: %s", self.path, self.error)
            return
        self.saved_model, self.state = saved_model, AVAILABLE
        _logger.info(
            "serving %s: loaded in %.1f s, answered %d warm-up requests%s",
            self.path,
            time.monotonic() - start,
            records,
            "" if records else "; the first answer of each signature will take longer",
        )

    def acquire(self) -> SavedModel | None:
        """Returns the model and keeps it loaded until `release`; None unless AVAILABLE."""
        with self._lock:
            if self.state != AVAILABLE:
                return None
            self._in_use += 1
            return self.saved_model

    def acquire_again(self) -> None:
        """Holds an acquired model again, until another `release`."""
        with self._lock:
            self._in_use += 1

    def release(self) -> None:
        """Undoes one `acquire`."""
        with self._lock:
            self._in_use -= 1
            last = self.state == UNLOADING and self._in_use == 0
        if last:
            self._close()

    def unload(self) -> None:
        """Takes no new requests; closes the model once those in progress have ended."""
        with self._lock:
            if self.state != AVAILABLE:
                return
            self.state = UNLOADING
            idle = self._in_use == 0
        if idle:
            self._close()

    def _close(self) -> None:
        saved_model, self.saved_model = self.saved_model, None
        self.state = END
        if saved_model is not None:
            saved_model.close()
        del saved_model
        gc.collect()  # graphs contain reference cycles
        return_freed_memory()
        _logger.info("unloaded %s", self.path)

    def may_load(self) -> bool:
        """Returns whether loading has failed and it is time to try again."""
        failed = self.state == END and self.error is not None
        return failed and self.attempts < _MAX_ATTEMPTS and time.monotonic() >= self.retry_at


class Model:
    """A model's versions.

    Args:
        settings: name, folder, policy and labels; may be replaced while the model is served.
        max_runs: how many runs of a version may be in progress.
    """

    def __init__(self, settings: ModelSettings, *, max_runs: int = 2) -> None:
        self.settings = settings
        self._max_runs = max_runs
        self._versions: dict[int, Version] = {}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Loads the folder's new versions, then unloads those that are no longer wanted.

        Only one thread may call it at a time.
        """
        folders = version_folders(self.settings.base_path)
        wanted = self.settings.version_policy.choose(list(folders))
        for number in wanted:
            version = self._versions.get(number)
            ended = version is not None and version.state == END and version.error is None
            if version is None or ended:  # an ended version may return, for example by a rollback
                version = Version(number, folders[number], max_runs=self._max_runs)
                self._set(version)
                version.load()
            elif version.may_load():
                version.path = folders[number]
                version.load()
        self._unload_others(wanted, folders)

    def _unload_others(self, wanted: list[int], folders: dict[int, Path]) -> None:
        versions = self.versions()
        if not any(v.state == AVAILABLE and v.number in wanted for v in versions):
            return  # an old version is better than none
        for version in versions:
            if version.number not in wanted:
                version.unload()
        with self._lock:
            # Forget a failed version whose folder is gone, because it may come back repaired.
            gone = [v for v in versions if v.error is not None and v.number not in folders]
            ended = [v for v in versions if v.state == END and v.error is None]
            for version in gone + ended[: max(0, len(ended) - _ENDED_KEPT)]:
                self._versions.pop(version.number, None)

    def _set(self, version: Version) -> None:
        with self._lock:
            self._versions[version.number] = version

    def versions(self) -> list[Version]:
        """Returns the known versions, ascending, including ended and failed ones."""
        with self._lock:
            return [self._versions[number] for number in sorted(self._versions)]

    def is_ready(self) -> bool:
        """Returns whether a version can answer requests."""
        return any(version.state == AVAILABLE for version in self.versions())

    @contextlib.contextmanager
    def lease(self, version: int | None, label: str | None) -> Iterator[tuple[Version, SavedModel]]:
        """Finds a version and keeps it loaded inside the block.

        Args:
            version: its number; None for the label's or, without a label, the highest available.
            label: one of the settings' labels.

        Raises:
            RequestError: there is no such version, or it is not available yet.
        """
        number = self.number_of(version, label)
        # A swap may happen between listing the versions and holding one of them.
        held = self._acquire(number) or self._acquire(number)
        if held is None:
            if any(v.state == LOADING for v in self.versions() if number in (None, v.number)):
                raise RequestError(
                    Code.UNAVAILABLE, f"Servable {self._text(number)} is being loaded"
                )
            raise RequestError(
                Code.NOT_FOUND, f"Servable not found for request: {self._text(number)}"
            )
        try:
            yield held
        finally:
            held[0].release()

    def _acquire(self, number: int | None) -> tuple[Version, SavedModel] | None:
        for version in reversed(self.versions()):
            if number in (None, version.number) and (saved_model := version.acquire()):
                return version, saved_model
        return None

    def number_of(self, version: int | None, label: str | None) -> int | None:
        """Returns the number of the version that a request names; None for the latest."""
        if version is None and label:
            if label not in self.settings.version_labels:
                raise invalid(f"Unrecognized servable version label: {label}")
            return self.settings.version_labels[label]
        return version

    def _text(self, number: int | None) -> str:
        """Returns the version that a request names, in TF Serving's words."""
        name = self.settings.name
        return f"Latest({name})" if number is None else f"Specific({name}, {number})"

    def close(self) -> None:
        """Unloads every version once its requests have ended."""
        for version in self.versions():
            version.unload()


class Models:
    """All served models, by name. A thread watches their folders.

    Args:
        read_settings: returns the models to serve; called at every poll.
        poll_interval_s: seconds between polls of the folders.
        max_runs: how many runs of a version may be in progress.
    """

    def __init__(
        self,
        read_settings: Callable[[], list[ModelSettings]],
        *,
        poll_interval_s: float = 1.0,
        max_runs: int = 2,
    ) -> None:
        self._read_settings = read_settings
        self._poll_interval_s = poll_interval_s
        self._max_runs = max_runs
        self._models = {s.name: Model(s, max_runs=max_runs) for s in read_settings()}
        self._problems: dict[str, str | None] = {}  # what was tried -> why it failed last time
        self._moved: dict[str, Model] = {}  # to other folders, where no version can answer yet
        self._looked = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="serving-models", daemon=True)

    def start(self) -> None:
        """Starts loading and watching."""
        self._thread.start()

    def close(self) -> None:
        """Stops watching and unloads everything."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for model in self._models.values():
            model.close()

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return sorted(self._models)

    def __getitem__(self, name: str) -> Model:
        """Returns the model of that name.

        Raises:
            RequestError: there is no such model.
        """
        model = self._models.get(name)
        if model is None:
            raise RequestError(
                Code.NOT_FOUND, f"Servable not found for request: Latest({name[:200]})"
            )
        return model

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def is_ready(self) -> bool:
        """Returns whether every model has a version that can answer."""
        return all(model.is_ready() for model in list(self._models.values()))

    def wait_for_first_look(self, timeout_s: float | None = None) -> bool:
        """Waits until each version found at the start has loaded or failed."""
        return self._looked.wait(timeout_s)

    def refresh(self) -> None:
        """Polls the settings and the folders once; the thread does so repeatedly."""
        settings = {name: model.settings for name, model in self._models.items()}
        with self._noting("keeping the current models"):
            settings = {s.name: s for s in self._read_settings()}
        models = {name: self._settled(new) for name, new in settings.items()}
        replaced = [m for name, m in self._models.items() if models.get(name) is not m]
        self._models = models  # in one step, because requests look up names meanwhile
        for model in replaced:
            model.close()
        for model in models.values():
            if self._stop.is_set():
                return
            with self._noting(f"keeping the current versions of {model.settings.name}"):
                model.refresh()

    def _settled(self, settings: ModelSettings) -> Model:
        """Returns the known model with these settings, or a new one if the folder has changed.

        The known model answers from the old folder until the new one can answer.
        """
        model = self._models.get(settings.name)
        moved = self._moved.pop(settings.name, None)
        if model is not None and model.settings.base_path == settings.base_path:
            model.settings = settings
            return model
        if moved is None or moved.settings.base_path != settings.base_path:
            moved = Model(settings, max_runs=self._max_runs)
        moved.settings = settings
        if model is not None:
            with self._noting(f"keeping {settings.name} as it was"):
                moved.refresh()
            if model.is_ready() and not moved.is_ready():
                self._moved[settings.name] = moved
                return model
        return moved

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """Logs why the block failed, but not at every poll while the reason stays the same."""
        problem = None
        try:
            yield
        except Exception as error:  # a brief failure of the disk must not end the thread
            problem = f"{type(error).__name__}: {error}"
            if problem != self._problems.get(what):
                unforeseen = None if isinstance(error, OSError | ValueError) else error
                _logger.error("%s: %s", what, error, exc_info=unforeseen)
        self._problems[what] = problem

    def _watch(self) -> None:
        returned_at = time.monotonic()
        while not self._stop.is_set():
            with self._noting("keeping the current models and versions"):
                self.refresh()
            self._looked.set()
            if time.monotonic() >= returned_at + _RETURN_MEMORY_S:
                return_freed_memory()
                returned_at = time.monotonic()
            self._stop.wait(self._poll_interval_s)
