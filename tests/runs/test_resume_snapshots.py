"""Checkpoint files are complete or absent."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from checks import says

from keras_transformers.runs.resume.snapshots import (
    CheckpointError,
    Snapshots,
    is_whole,
    reading,
    step_of,
)

ARRAYS = {
    "a": np.arange(6, dtype="float32").reshape(2, 3),
    "b": np.array(True),
    "text": np.array('{"epoch": 1}'),
    "empty": np.zeros((0, 4), "int64"),
}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_read(tmp_path):
    snapshots = Snapshots(tmp_path / "new" / "folder")
    assert snapshots.newest() is None
    path = snapshots.write(12, ARRAYS.items())
    assert snapshots.newest() == path
    assert step_of(path) == 12
    assert is_whole(path)
    with reading(path) as file:
        assert sorted(file) == sorted(ARRAYS)
        for name, array in ARRAYS.items():
            assert file[name].dtype == array.dtype
            np.testing.assert_array_equal(file[name], array)


def test_bfloat16_keeps_its_bits(tmp_path):
    array = np.array([1.5, -2.25, 3e20], ml_dtypes.bfloat16)
    path = Snapshots(tmp_path).write(0, [("a", array), ("scalar", array[0])])
    with reading(path) as file:
        assert file["a"].view(ml_dtypes.bfloat16).tolist() == array.tolist()
        assert file["scalar"].view(ml_dtypes.bfloat16) == array[0]


def test_equal_states_have_equal_files(tmp_path):
    first = Snapshots(tmp_path / "a").write(1, ARRAYS.items())
    second = Snapshots(tmp_path / "b").write(1, ARRAYS.items())
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_arrays_are_taken_one_at_a_time(tmp_path):
    taken = []

    def arrays():
        for index in range(3):
            [part] = tmp_path.glob(".part-*")
            taken.append(part.stat().st_size)
            yield f"array_{index}", np.zeros(1 << 20, "uint8")

    Snapshots(tmp_path).write(1, arrays())
    assert taken[0] < taken[1] < taken[2]


def test_the_last_few_stay(tmp_path):
    snapshots = Snapshots(tmp_path, keep=3)
    (tmp_path / ".part-of-a-process-that-was-killed").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("not ours")
    for step in (3, 6, 9, 12, 1_000_000_000):
        snapshots.write(step, ARRAYS.items())
    assert [step_of(path) for path in snapshots.paths()] == [1_000_000_000, 12, 9]
    assert names(tmp_path)[0] == "notes.txt"
    assert len(names(tmp_path)) == 4


@pytest.mark.parametrize("damage", ["a bit", "its end", "its name", "everything"])
def test_a_damaged_file_is_not_used(tmp_path, caplog, damage):
    snapshots = Snapshots(tmp_path)
    good, bad = snapshots.write(1, ARRAYS.items()), snapshots.write(2, ARRAYS.items())
    data = bad.read_bytes()
    if damage == "a bit":
        bad.write_bytes(data[:200] + bytes([data[200] ^ 4]) + data[201:])
    elif damage == "its end":
        bad.write_bytes(data[:-1])
    elif damage == "its name":
        bad = bad.rename(tmp_path / f"step-000000002-{'0' * 16}.npz")
    else:
        bad.write_bytes(b"")
    assert snapshots.newest() == good
    (message,) = caplog.messages
    assert says(message, f"{bad} ... skipped")
    # Training continues from step 1: later snapshots are removed, and step 2 is written again.
    again = snapshots.write(2, {"other": np.ones(3)}.items())
    assert [*snapshots.paths()] == [again, good]


def test_all_damaged_is_an_error(tmp_path):
    snapshots = Snapshots(tmp_path)
    for step in (1, 2):
        snapshots.write(step, ARRAYS.items()).write_bytes(b"")
    with pytest.raises(ValueError, match="2 checkpoints.*remove"):
        snapshots.newest()


def test_a_write_that_fails_leaves_nothing_behind(tmp_path):
    snapshots = Snapshots(tmp_path)
    good = snapshots.write(1, ARRAYS.items())

    def arrays():
        yield "a", np.zeros(3)
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="No space left on device") as error:
        snapshots.write(2, arrays())
    assert says(str(error.value), f"{good} ... Free some space")
    assert names(tmp_path) == [good.name]
    with pytest.raises(KeyboardInterrupt):
        snapshots.write(2, _interrupted())
    assert names(tmp_path) == [good.name]


def _interrupted():
    yield "a", np.zeros(3)
    raise KeyboardInterrupt


def test_a_file_that_may_not_grow_is_a_clear_error(tmp_path):
    """The operating system refuses the write, in the middle of an array."""
    good = Snapshots(tmp_path).write(1, ARRAYS.items())
    code = f"""
        import resource, numpy as np
        from keras_transformers.runs.resume.snapshots import CheckpointError, Snapshots
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            Snapshots({str(tmp_path)!r}).write(2, [("a", np.zeros(100_000))])
        except CheckpointError as error:
            print(error)
    """
    assert "no checkpoint could be written (File too large)" in python(code)
    assert names(tmp_path) == [good.name]
    assert is_whole(good)


@pytest.fixture
def folder():
    """Makes a folder that all users may read; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        Path(name).chmod(0o755)


def test_a_folder_that_is_read_only_is_seen_at_the_beginning(folder):
    good = Snapshots(folder).write(1, ARRAYS.items())
    folder.chmod(0o555)
    nobody = 65534
    code = f"""
        import os
        from keras_transformers.runs.resume.snapshots import CheckpointError, Snapshots
        if os.geteuid() == 0:  # whom no permission stops
            os.seteuid({nobody})
        for act in (Snapshots.check_writable, lambda snapshots: snapshots.write(2, [])):
            try:
                act(Snapshots({str(folder)!r}))
            except CheckpointError as error:
                print(error)
    """
    output = python(code)
    assert output.count(f"{folder}: no checkpoint could be written (Permission denied)") == 2
    assert output.count(f"the last checkpoint is {good}") == 2
    assert names(folder) == [good.name]


def test_a_file_in_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "checkpoints").write_text("not a folder")
    with pytest.raises(CheckpointError, match=r"checkpoints: no checkpoint .*no checkpoint was"):
        Snapshots(tmp_path / "checkpoints").check_writable()


def python(code: str) -> str:
    """Returns what a program prints."""
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout
