"""Files by path: found, read, and written whole or not at all. test_urls.py has those by URL."""

import contextlib

import pytest

from keras_transformers.jobs import places


def test_files_are_found_by_pattern_and_by_folder(tmp_path):
    for name in ("b.txt", "a.txt", "c.csv", "more/a.txt"):
        places.write(f"{tmp_path}/{name}", {"name": name})
    assert places.find(f"{tmp_path}/*.txt") == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    assert places.find(f"{tmp_path}/**/a.txt") == [f"{tmp_path}/a.txt", f"{tmp_path}/more/a.txt"]
    assert places.find(f"{tmp_path}/*e") == []  # a folder
    assert sorted(places.names(str(tmp_path))) == ["a.txt", "b.txt", "c.csv", "more/a.txt"]
    assert places.names(f"{tmp_path}/none") == []
    assert places.read(f"{tmp_path}/more/a.txt") == {"name": "more/a.txt"}
    places.remove(f"{tmp_path}/more")
    places.remove(f"{tmp_path}/none")
    places.remove_file(f"{tmp_path}/c.csv")
    assert places.names(str(tmp_path)) == ["a.txt", "b.txt"]


def test_a_file_is_stored_whole_or_not_at_all(tmp_path):
    place = f"{tmp_path}/deep/er/file"
    scratch = tmp_path / "scratch"
    with (
        contextlib.suppress(RuntimeError),
        places.stored(place, scratch_folder=str(scratch)) as path,
    ):
        path.write_text("half")
        assert path.parent == scratch
        raise RuntimeError
    assert places.names(str(tmp_path)) == []
    with places.stored(place) as path:
        path.write_text("whole")
    with places.fetched(place) as path:
        assert (str(path), path.read_text()) == (place, "whole")


def test_what_is_not_there(tmp_path):
    for read in (places.fetched, places.fetched_folder):
        with pytest.raises(FileNotFoundError, match="none: no such"), read(f"{tmp_path}/none"):
            pass
