"""Files and folders appear complete or not at all, whatever happens to their writer."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformers.files import new_folder, read_json, replaced, write_json


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def full_disk(*arguments):
    raise OSError("no space left")


def test_a_file_is_replaced_when_the_block_ends(tmp_path):
    file = tmp_path / "a.tar.gz"
    file.write_text("old")
    with replaced(file) as scratch:
        scratch.write_text("new")
        assert file.read_text() == "old"
        assert scratch.suffixes == file.suffixes, "some writers choose the format by the suffix"
    assert file.read_text() == "new"
    assert names(tmp_path) == ["a.tar.gz"]


@pytest.mark.parametrize("failing", ["os.replace", "os.fsync", None])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failing):
    write_json(tmp_path / "a.json", {"a": 1})
    if failing:
        monkeypatch.setattr(failing, full_disk)

    def write():
        with replaced(tmp_path / "a.json") as scratch:
            scratch.write_text("half of")
            if not failing:
                full_disk()

    with pytest.raises(OSError, match="no space left"):
        write()
    assert read_json(tmp_path / "a.json") == {"a": 1}
    assert names(tmp_path) == ["a.json"]


def test_the_file_reaches_the_disk_before_its_name_does(tmp_path, monkeypatch):
    steps, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append("flush"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("rename"), replace(*paths)))
    write_json(tmp_path / "a.json", {})
    assert steps == ["flush", "rename", "flush"], "the file, its name, the folder"


KILLED = """
import os, signal, sys
from keras_transformers import files
with getattr(files, sys.argv[1])(sys.argv[2]) as scratch:
    (scratch if sys.argv[1] == "replaced" else scratch / "a").write_text("half of")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_within(function, path):
    run = subprocess.run([sys.executable, "-c", KILLED, function, str(path)], check=False)
    assert run.returncode == -signal.SIGKILL


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("old")
    kill_within("replaced", file)
    assert file.read_text() == "old"
    assert [path.name[0] for path in tmp_path.iterdir() if path != file] == ["."], "a hidden rest"


def test_a_killed_writer_leaves_no_folder(tmp_path):
    kill_within("new_folder", tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    with new_folder(tmp_path / "folder"):
        pass
    assert (tmp_path / "folder").is_dir(), "its rest is in nobody's way"


def test_a_folder_appears_whole(tmp_path):
    target = tmp_path / "below" / "folder"
    with new_folder(target) as scratch:
        (scratch / "part").mkdir()
        (scratch / "part" / "a").write_text("a")
        assert not target.exists()
    assert (target / "part" / "a").read_text() == "a"
    assert names(target.parent) == ["folder"]
    ordinary = tmp_path / "ordinary"
    ordinary.mkdir()
    assert target.stat().st_mode == ordinary.stat().st_mode, "others can read it as usual"


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    def fill():
        with new_folder(tmp_path / "folder") as scratch:
            (scratch / "a").write_text("half of")
            full_disk()

    with pytest.raises(OSError, match="no space left"):
        fill()
    assert not names(tmp_path)


def test_a_folder_is_never_overwritten(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for taken in (tmp_path, tmp_path / "link"):
        with pytest.raises(FileExistsError, match="exists: choose another folder"):
            new_folder(taken).__enter__()


def test_json_is_written_for_people(tmp_path):
    write_json(tmp_path / "a.json", {"name": "Zürich", "path": Path("a") / "b"})
    text = (tmp_path / "a.json").read_text("utf-8")
    assert text == '{\n  "name": "Zürich",\n  "path": "a/b"\n}\n'
    assert json.loads(text) == read_json(tmp_path / "a.json")


def test_a_byte_order_mark_is_no_json(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}', "utf-8-sig")
    assert read_json(tmp_path / "a.json") == {"a": 1}


@pytest.mark.parametrize(
    ("content", "message"), [("{", "a.json: not JSON"), ("[1]", "a.json: a JSON list")]
)
def test_what_is_no_json_object_is_named(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_json(tmp_path / "a.json")
    with pytest.raises(FileNotFoundError, match=r"b\.json: no such file"):
        read_json(tmp_path / "b.json")
