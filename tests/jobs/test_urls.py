"""Both jobs with URLs, of fsspec's file system in memory, on this machine and on Apache Beam."""

import logging
import shutil
import sys

import pytest
from engine_toys import OPTIONS, VOCABULARY, contents

from keras_transformers.data.pretraining import make_pretraining_data
from keras_transformers.dependencies.extras import MissingExtraError
from keras_transformers.jobs import Beam, Local, places
from keras_transformers.saved_model import predict_files
from keras_transformers.tokenizers import WordPieceTokenizer

fsspec = pytest.importorskip("fsspec", reason="needs fsspec: pip install -e .[urls]")
memory = pytest.importorskip("fsspec.implementations.memory")


@pytest.fixture(params=["local", pytest.param("beam", marks=pytest.mark.slow)])
def engine(request):
    if request.param == "local":
        return Local()
    pytest.importorskip("apache_beam", reason="needs Apache Beam: pip install -e .[beam]")
    logging.getLogger("apache_beam").setLevel(logging.ERROR)  # a line for whatever it does
    return Beam(("runner=DirectRunner",))


@pytest.fixture
def bucket(texts, lengths, monkeypatch):
    """A bucket with the texts and the export, where renaming fails to overwrite."""
    move = memory.MemoryFileSystem.mv

    def move_to_new(system, source, target, **options):
        if system.exists(target):
            raise FileExistsError(target)
        move(system, source, target, **options)

    monkeypatch.setattr(memory.MemoryFileSystem, "mv", move_to_new)
    url = "memory://bucket"
    for name, folder in (("texts", texts), ("lengths", lengths)):
        for file in places.names(str(folder)):
            with places.stored(f"{url}/{name}/{file}") as path:
                shutil.copyfile(folder / file, path)
    yield url
    places.remove(url)


def test_files_are_found_by_pattern_and_by_folder(bucket):
    for name in ("b.txt", "a.txt", "c.csv", "more/a.txt"):
        places.write(f"{bucket}/new/{name}", {"name": name})
    new = f"{bucket}/new"
    assert places.find(f"{new}/*.txt") == [f"{new}/a.txt", f"{new}/b.txt"]
    assert places.find(f"{new}/*e") == []  # a folder
    assert places.names(new) == ["a.txt", "b.txt", "c.csv", "more/a.txt"]
    assert places.names(f"{new}/none") == []
    places.write(f"{new}/more/a.txt", {"name": "again"})
    assert places.read(f"{new}/more/a.txt") == {"name": "again"}
    places.remove(f"{new}/more")
    places.remove(f"{new}/none")
    places.remove_file(f"{new}/c.csv")
    assert places.names(new) == ["a.txt", "b.txt"]


def test_what_is_not_there(bucket):
    for read in (places.fetched, places.fetched_folder):
        with pytest.raises(FileNotFoundError, match=f"{bucket}/none: no such"):
            read(f"{bucket}/none").__enter__()
    with pytest.raises(ValueError, match=r"nothing://b/c: .*check the URL"):
        places.find("nothing://b/c")


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(MissingExtraError, match=r"gs://bucket/\*\.txt: .*gcsfs"):
        places.find("gs://bucket/*.txt")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"fsspec.*keras-transformers\[urls\]"):
        places.find("gs://bucket/*.txt")


def test_shards(bucket, shards, engine):
    output, tokenizer = f"{bucket}/data", WordPieceTokenizer(VOCABULARY)

    def make(**options):
        return make_pretraining_data(
            f"{bucket}/texts", output, tokenizer, OPTIONS, engine=engine, **options
        )

    with pytest.raises(ValueError, match=rf"^{bucket}/texts/0.txt:\d+: not UTF-8"):
        make()
    assert contents(output) == {}
    report = make(skip_unreadable=True)
    expected, found = contents(shards), contents(output)
    for name in expected:
        if name != "unreadable.jsonl":  # it has the URLs
            assert found.pop(name) == expected[name], name
    assert list(found) == ["unreadable.jsonl"]
    assert make(skip_unreadable=True) == report


def test_shards_that_are_there_are_kept(bucket, shards, engine, monkeypatch):
    """What a stopped run leaves: the joined corpus, a shard with its counts, a partial file."""
    output, tokenizer = f"{bucket}/again", WordPieceTokenizer(VOCABULARY)
    arguments = (f"{bucket}/texts", output, tokenizer, OPTIONS)
    with monkeypatch.context() as patched:
        patched.setattr(places, "remove", lambda folder: None)
        make_pretraining_data(*arguments, skip_unreadable=True, engine=engine)
    manifest = places.read(f"{output}/manifest.json")
    places.write(f"{output}/manifest.json", manifest | {"shards": None, "report": None})
    places.remove_file(f"{output}/pretraining-00001-of-00003.tfrecord")
    with places.stored(f"{output}/work/123-pretraining-00001-of-00003.tfrecord") as path:
        path.write_bytes(b"half")
    ran = []

    def noting(stages, notes):
        ran.extend((stage.name, list(stage.tasks)) for stage in stages)
        engine(stages, notes)

    make_pretraining_data(*arguments, skip_unreadable=True, engine=noting)
    assert ran == [("write shards", [1])]
    found, expected = contents(output), contents(shards)
    assert found.keys() == expected.keys()
    shards_of = [name for name in expected if "tfrecord" in name]
    assert [found[name] for name in shards_of] == [expected[name] for name in shards_of]


def test_answers(bucket, texts, lengths, engine, tmp_path):
    predict_files(lengths, [f"{texts}/*"], tmp_path)
    answers = f"{bucket}/answers"
    arguments = (f"{bucket}/lengths", [f"{bucket}/texts/*.txt"], answers)
    assert predict_files(*arguments, engine=engine).num_kept_files == 0
    found = contents(answers)
    for name in ("0.jsonl", "1.jsonl", "2.jsonl"):
        assert found[name] == (tmp_path / name).read_bytes()
    assert places.read(f"{answers}/_run/export.json")["export"] == f"{bucket}/lengths/3"
    assert predict_files(*arguments, engine=engine).num_kept_files == 3
    with pytest.raises(FileNotFoundError, match=f"{bucket}/none: no such folder"):
        predict_files(f"{bucket}/none", [f"{bucket}/texts/*.txt"], answers)
