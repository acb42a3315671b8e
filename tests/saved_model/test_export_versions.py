import concurrent.futures
import os
import threading
import time
from pathlib import Path

import pytest

from keras_transformers.saved_model.versions import (
    publish,
    resolve,
    split_target,
    staging_folder,
    version_folders,
    versions,
)


def make_version(base: Path, name: str) -> Path:
    folder = base / name
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"model")
    return folder


def export(base: Path, version: int | None = None) -> Path:
    with staging_folder(base) as folder:
        (folder / "variables").mkdir()
        (folder / "variables" / "data").write_bytes(b"weights")
        (folder / "saved_model.pb").write_bytes(b"model")
        return publish(folder, base, version)


def test_a_number_is_a_version_and_anything_else_a_base(tmp_path):
    assert split_target(tmp_path / "sentiment" / "12") == (tmp_path / "sentiment", 12)
    assert split_target(tmp_path / "sentiment") == (tmp_path / "sentiment", None)
    assert split_target(tmp_path / "v2") == (tmp_path / "v2", None)


def test_an_existing_version_is_refused_with_the_remedy(tmp_path):
    folder = make_version(tmp_path, "1")
    with pytest.raises(FileExistsError, match=rf"{folder} exists.*pass {tmp_path} for the next"):
        split_target(folder)
    (tmp_path / "2").mkdir()  # empty, but somebody made it
    with pytest.raises(FileExistsError, match="never overwritten"):
        split_target(tmp_path / "2")


def test_targets_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="is a file"):
        split_target(tmp_path / "file")
    with pytest.raises(FileExistsError, match="itself an export"):
        split_target(make_version(tmp_path, "sentiment"))
    with pytest.raises(ValueError, match=r"'01'.*write it as 1"):
        split_target(tmp_path / "01")


def test_the_next_version_follows_the_highest_number(tmp_path):
    assert export(tmp_path / "new") == tmp_path / "new" / "1"
    for name in ("2", "10", "notes"):
        make_version(tmp_path, name)
    assert export(tmp_path) == tmp_path / "11"
    assert versions(tmp_path) == [2, 10, 11]
    assert (tmp_path / "11" / "variables" / "data").read_bytes() == b"weights"


def test_what_a_server_sees_as_versions(tmp_path):
    for name in ("7", "00000123"):  # the second as in TF Serving's own test data
        make_version(tmp_path, name)
    for name in ("x", "1.5", "-1", "9" * 30, str(2**63), ".exporting-1", "٣"):
        (tmp_path / name).mkdir()
    (tmp_path / "8").write_text("a file")
    assert version_folders(tmp_path) == {7: tmp_path / "7", 123: tmp_path / "00000123"}
    assert resolve(tmp_path) == tmp_path / "00000123"
    assert version_folders(tmp_path / "nowhere") == {}


def test_resolve_takes_the_newest_whole_version(tmp_path):
    for name in ("2", "10"):
        make_version(tmp_path, name)
    (tmp_path / "11").mkdir()  # no saved_model.pb
    assert resolve(tmp_path) == tmp_path / "10"
    assert resolve(tmp_path / "2") == tmp_path / "2"


def test_resolve_says_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="no version folder"):
        resolve(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such path"):
        resolve(tmp_path / "nowhere")


def interrupted_export(base: Path, error: type[BaseException]) -> None:
    with staging_folder(base) as folder:
        (folder / "saved_model.pb").write_bytes(b"half")
        raise error


def test_a_failure_leaves_nothing(tmp_path):
    base = tmp_path / "models" / "sentiment"
    with pytest.raises(KeyboardInterrupt):
        interrupted_export(base, KeyboardInterrupt)
    assert not base.exists()
    make_version(base, "1")
    with pytest.raises(OSError):
        interrupted_export(base, OSError)
    assert os.listdir(base) == ["1"]


def test_exports_at_the_same_time_get_distinct_versions(tmp_path):
    count = 16
    barrier = threading.Barrier(count)

    def one(number):
        with staging_folder(tmp_path) as folder:
            (folder / "saved_model.pb").write_text(str(number))
            barrier.wait()
            return publish(folder, tmp_path, None)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        folders = list(pool.map(one, range(count)))
    assert sorted(int(folder.name) for folder in folders) == list(range(1, count + 1))
    assert [(folder / "saved_model.pb").read_text() for folder in folders] == [
        str(number) for number in range(count)
    ]
    assert sorted(os.listdir(tmp_path)) == sorted(str(i) for i in range(1, count + 1))


def test_a_version_taken_meanwhile_is_not_overwritten(tmp_path):
    with staging_folder(tmp_path) as folder:
        (folder / "saved_model.pb").write_bytes(b"mine")
        make_version(tmp_path, "3")
        with pytest.raises(FileExistsError, match="never overwritten"):
            publish(folder, tmp_path, 3)
    assert (tmp_path / "3" / "saved_model.pb").read_bytes() == b"model"
    assert os.listdir(tmp_path) == ["3"]


def test_what_a_killed_export_left_goes_after_a_day(tmp_path, caplog):
    old, running = tmp_path / ".exporting-old", tmp_path / ".exporting-running"
    for folder in (old, running):
        make_version(tmp_path, folder.name)
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    export(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".exporting-running", "1"]
    assert str(old) in caplog.text


def test_other_users_may_read_a_version(tmp_path):
    mask = os.umask(0o022)
    try:
        assert export(tmp_path).stat().st_mode & 0o777 == 0o755
    finally:
        os.umask(mask)


def test_everything_is_on_the_disk_before_the_version_appears(tmp_path, monkeypatch):
    events = []
    names = {}
    real_open, real_fsync, real_rename = os.open, os.fsync, os.rename

    def recording_open(path, *arguments, **keywords):
        descriptor = real_open(path, *arguments, **keywords)
        names[descriptor] = Path(path).name
        return descriptor

    def recording_fsync(descriptor):
        events.append(names[descriptor])
        real_fsync(descriptor)

    def recording_rename(old, new):
        events.append("rename")
        real_rename(old, new)

    monkeypatch.setattr(os, "open", recording_open)
    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "rename", recording_rename)
    export(tmp_path / "base")
    assert sorted(events[:3]) == ["data", "saved_model.pb", "variables"]
    assert events[3].startswith(".exporting-")
    assert events[4:] == ["rename", "base"]
