"""Both jobs as Apache Beam pipelines: the same bytes as without Beam, errors in one line, URLs.

The direct runner runs them, with two worker processes where the files are on disk.
"""

import json
import logging
from pathlib import Path

import engine_toys
import numpy as np
import pytest
import test_engines

from keras_transformers import places
from keras_transformers.cli import main as cli
from keras_transformers.data.pretraining import PretrainingOptions, make_pretraining_data
from keras_transformers.engines import Beam, Stage
from keras_transformers.saved_model import predict_files
from keras_transformers.tokenizers import WordPieceTokenizer
from keras_transformers.tokenizers.vocabulary import SPECIAL_TOKENS

pytest.importorskip("apache_beam", reason="needs Apache Beam: pip install -e .[beam]")

IN_PROCESS = Beam(("runner=DirectRunner",))
TWO_PROCESSES = ("runner=DirectRunner", "direct_running_mode=multi_processing")
TWO_PROCESSES += ("direct_num_workers=2",)
VOCABULARY = [*SPECIAL_TOKENS, *"abcdefghij"]
OPTIONS = PretrainingOptions(
    max_sequence_length=32, max_predictions=6, dupe_factor=2, num_shards=3, seed=7
)


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """Beam logs a line for whatever it does."""
    logging.getLogger("apache_beam").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """Three files of documents, a line of each unreadable."""
    folder, random = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    for number in range(3):
        sentences = (" ".join(random.choice(list("abcdefghijx"), 6)) for _ in range(60))
        lines = [line + "\n" * (random.random() < 0.2) for line in sentences]
        folder.joinpath(f"{number}.txt").write_bytes("\n".join(lines).encode() + b"\n\xff\na\n")
    return folder


@pytest.fixture(scope="module")
def store(texts, lengths) -> dict[str, bytes]:
    """The object store toy://bucket, with the texts and the export."""
    objects = engine_toys.object_store()
    for url, folder in (("toy://bucket/texts", texts), ("toy://bucket/lengths", lengths)):
        for name in places.names(str(folder)):
            objects[f"{url}/{name}"] = (folder / name).read_bytes()
    return objects


@pytest.fixture(scope="module")
def shards(texts, tmp_path_factory) -> Path:
    """What is made without Beam."""
    folder = tmp_path_factory.mktemp("made") / "data"
    tokenizer = WordPieceTokenizer(VOCABULARY)
    make_pretraining_data(texts, folder, tokenizer, OPTIONS, skip_unreadable=True)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in places.names(str(folder))}


def stored(objects: dict[str, bytes], url: str) -> dict[str, bytes]:
    return {name: objects[f"{url}/{name}"] for name in places.names(url)}


@pytest.mark.slow
def test_two_processes_make_the_same_shards(texts, shards, tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", "utf-8")
    output = tmp_path / "data"
    command = ["make-pretraining-data", str(output), str(texts), "--skip-unreadable"]
    for name in ("max_sequence_length", "max_predictions", "dupe_factor", "num_shards", "seed"):
        command += [f"--{name.replace('_', '-')}", str(getattr(OPTIONS, name))]
    command += ["--vocabulary", str(tmp_path / "vocab.txt")]
    command += ["--beam", *TWO_PROCESSES]
    assert cli.main(command) == 0
    assert capsys.readouterr().out.endswith("to predict; 3 unreadable lines\n")
    assert contents(output) == contents(shards)
    listed = [json.loads(line) for line in (output / "unreadable.jsonl").read_text().splitlines()]
    assert [Path(row["file"]).name for row in listed] == ["0.txt", "1.txt", "2.txt"]
    assert all(row["reason"].startswith("not UTF-8 (byte 0xff") for row in listed)


@pytest.mark.slow
def test_two_processes_predict_the_same_answers(texts, lengths, tmp_path, capsys):
    predict_files(lengths, [f"{texts}/*"], tmp_path / "local")
    arguments = ["predict", str(lengths), "--input", f"{texts}/*"]
    arguments += ["--output", str(tmp_path / "beam"), "--beam", *TWO_PROCESSES]
    assert cli.main(arguments) == 0
    local, beam = (
        {name: data for name, data in contents(tmp_path / where).items() if "files" not in name}
        for where in ("local", "beam")
    )
    assert beam == local
    assert "(0 finished before)" in capsys.readouterr().out
    assert cli.main(arguments[: arguments.index("--beam")]) == 0
    assert "(3 finished before)" in capsys.readouterr().out


@pytest.mark.slow
def test_the_first_error_is_told_and_later_stages_do_not_start(tmp_path):
    stages = [
        Stage("one", Squares(tmp_path), [2, -3, -4]),
        Stage("none", Squares(tmp_path), []),
        Stage("two", Squares(tmp_path), [5]),
    ]
    with pytest.raises(ValueError, match=r"^-3: give a positive number \(and 1 more errors\)$"):
        IN_PROCESS(stages, str(tmp_path / "notes"))
    assert places.names(str(tmp_path)) == ["2"]


class Squares:
    """Squares numbers into files."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, number):
        return test_engines.squares(self.folder, number)


@pytest.mark.slow
def test_shards_from_urls_to_urls(store, shards):
    output, tokenizer = "toy://bucket/data", WordPieceTokenizer(VOCABULARY)

    def make(**options):
        return make_pretraining_data(
            "toy://bucket/texts", output, tokenizer, OPTIONS, engine=IN_PROCESS, **options
        )

    with pytest.raises(ValueError, match=r"^toy://bucket/texts/0.txt:\d+: not UTF-8"):
        make()
    assert stored(store, output) == {}
    report = make(skip_unreadable=True)
    expected = contents(shards)
    found = stored(store, output)
    for name in expected:
        if name != "unreadable.jsonl":  # it has the URLs
            assert found.pop(name) == expected[name], name
    assert list(found) == ["unreadable.jsonl"]
    assert make(skip_unreadable=True) == report


@pytest.mark.slow
def test_shards_that_are_there_are_kept(store, shards, monkeypatch):
    """What a stopped run leaves: the joined corpus, a shard with its counts, a partial file."""
    output, tokenizer = "toy://bucket/again", WordPieceTokenizer(VOCABULARY)
    arguments = ("toy://bucket/texts", output, tokenizer, OPTIONS)
    with monkeypatch.context() as patched:
        patched.setattr(places, "remove", lambda folder: None)
        make_pretraining_data(*arguments, skip_unreadable=True, engine=IN_PROCESS)
    manifest = json.loads(store[f"{output}/manifest.json"])
    manifest |= {"shards": None, "report": None}
    store[f"{output}/manifest.json"] = json.dumps(manifest).encode()
    del store[f"{output}/pretraining-00001-of-00003.tfrecord"]
    store[f"{output}/work/123-pretraining-00001-of-00003.tfrecord"] = b"half"
    ran = []

    def engine(stages, notes):
        ran.extend((stage.name, list(stage.tasks)) for stage in stages)
        IN_PROCESS(stages, notes)

    make_pretraining_data(*arguments, skip_unreadable=True, engine=engine)
    assert ran == [("write shards", [1])]
    found = stored(store, output)
    assert found.keys() == contents(shards).keys()
    assert {name: found[name] for name in found if "tfrecord" in name} == {
        name: data for name, data in contents(shards).items() if "tfrecord" in name
    }


@pytest.mark.slow
def test_answers_from_urls_to_urls(store, texts, lengths, tmp_path):
    predict_files(lengths, [f"{texts}/*"], tmp_path)
    url = "toy://bucket/answers"
    arguments = ("toy://bucket/lengths", ["toy://bucket/texts/*.txt"], url)
    assert predict_files(*arguments, engine=IN_PROCESS).num_kept_files == 0
    for name in ("0.jsonl", "1.jsonl", "2.jsonl"):
        assert store[f"{url}/{name}"] == (tmp_path / name).read_bytes()
    assert json.loads(store[f"{url}/_run/export.json"])["export"] == "toy://bucket/lengths/3"
    assert predict_files(*arguments, engine=IN_PROCESS).num_kept_files == 3
    with pytest.raises(FileNotFoundError, match="toy://bucket/none: no such folder"):
        predict_files("toy://bucket/none", ["toy://bucket/texts/*.txt"], url)
