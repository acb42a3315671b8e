"""Two processes never write to one run's folder, or to one folder of checkpoints."""

import contextlib
import dataclasses
import fcntl
import os
import signal
import subprocess
import sys

import keras
import pytest
from checks import says

from keras_transformers import runs
from keras_transformers.runs import grid
from keras_transformers.runs.resume import folder_lock
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.runs.resume.folder_lock import FolderInUseError, lock_folder

# Locks a folder and stays until it is killed or its standard input ends.
HOLD = """
import runpy, sys
lock = runpy.run_path(sys.argv[2])["lock_folder"](sys.argv[1])  # without importing TensorFlow
print("locked", flush=True)
sys.stdin.read()
"""
# Locks a folder, and ends, but leaves a forked process behind.
FORK = """
import os, runpy, sys
lock = runpy.run_path(sys.argv[2])["lock_folder"](sys.argv[1])
if not os.fork():
    print(os.getpid(), flush=True)
    sys.stdin.read()
os._exit(0)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(runs.Training):
    name: str = "task"
    grid: bool = False


@contextlib.contextmanager
def other_process(folder, code=HOLD):
    """Yields a process that has locked a folder, and the line that it printed."""
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), folder_lock.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.stdin.close()


def test_another_process_is_refused_and_named(tmp_path):
    with other_process(tmp_path) as (process, _):
        with pytest.raises(FolderInUseError) as refused:
            lock_folder(tmp_path)
        message = str(refused.value)
        assert f"{tmp_path}: in use by process {process.pid} on " in message
        assert says(message, "wait ... another folder")
        assert len(message.splitlines()) == 1
    assert lock_folder(tmp_path)


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    with other_process(tmp_path) as (process, _):
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert str(process.pid) in (tmp_path / ".lock").read_text()
        lock = lock_folder(tmp_path)
        assert f"process {os.getpid()} on " in (tmp_path / ".lock").read_text()
        assert lock_folder(tmp_path / "." / ".." / tmp_path.name) is lock


def test_a_lock_ends_with_the_last_that_needs_it(tmp_path):
    locks = [lock_folder(tmp_path), lock_folder(tmp_path)]
    for is_held in (True, True, False):
        with other_process(tmp_path) as (_, said):
            assert said == ("" if is_held else "locked")
        locks = locks[1:]


def test_a_forked_process_does_not_keep_the_lock(tmp_path):
    with other_process(tmp_path, FORK) as (process, child):
        process.wait()
        os.kill(int(child), 0)  # it lives
        assert lock_folder(tmp_path)


def test_a_file_system_without_locks_is_reported(tmp_path, monkeypatch, caplog):
    def flock(descriptor, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    assert folder_lock.lock_folder(tmp_path)
    assert "run only one process there" in caplog.text


def test_a_run_under_way_is_neither_resumed_nor_begun_again(tmp_path, capsys):
    config = Task(runs_dir=tmp_path)
    before = runs.Run(config)  # it saw no folder
    with other_process(tmp_path / "task"):
        with pytest.raises(FolderInUseError, match="task: in use by process"):
            before.make_folder()
        (tmp_path / "task/config.json").write_text("{}")
        with pytest.raises(SystemExit) as stopped:
            runs.execute(lambda config, run: {}, dataclasses.replace(config, grid=True))
        assert stopped.value.code == 2
        assert "task: in use by process" in capsys.readouterr().err
    with pytest.raises(FileExistsError, match="task exists: choose another --name"):
        before.make_folder()  # the other one has come to its end meanwhile


def test_a_resumed_run_waits_for_the_one_it_resumes(tmp_path):
    config = Task(runs_dir=tmp_path)
    runs.Run(config).make_folder()
    resumed = dataclasses.replace(config, resume=True)
    with (
        other_process(tmp_path / "task"),
        pytest.raises(FolderInUseError, match="in use by process"),
    ):
        runs.Run(resumed)
    assert runs.Run(resumed).make_folder()


def test_a_folder_of_checkpoints_has_one_writer(tmp_path):
    """A second one would remove the file that the first is writing, and blame the disk."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    resume = Resume(tmp_path)
    with other_process(tmp_path), pytest.raises(FolderInUseError, match="in use by process"):
        resume.restore(model, [resume])
    assert resume.restore(model, [resume]).step == 0


def test_a_grid_is_run_once(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "LEARNING_RATES", ())
    runs.execute(lambda config, run: {}, Task(runs_dir=tmp_path, grid=True))
    runs.execute(lambda config, run: {}, Task(runs_dir=tmp_path, grid=True))
    assert (tmp_path / "task" / "grid.json").is_file()
