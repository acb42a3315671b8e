"""Both jobs as Apache Beam pipelines: the same bytes as without Beam, errors in one line.

The direct runner runs them, with two worker processes. test_urls.py has URLs.
"""

import json
import logging
from pathlib import Path

import pytest
import test_engines
from engine_toys import OPTIONS, VOCABULARY, contents

from keras_transformers.cli import main as cli
from keras_transformers.jobs import places
from keras_transformers.jobs.engines import Beam, Stage
from keras_transformers.saved_model import predict_files

pytest.importorskip("apache_beam", reason="needs Apache Beam: pip install -e .[beam]")

IN_PROCESS = Beam(("runner=DirectRunner",))
TWO_PROCESSES = ("runner=DirectRunner", "direct_running_mode=multi_processing")
TWO_PROCESSES += ("direct_num_workers=2",)


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """Beam logs a line for whatever it does."""
    logging.getLogger("apache_beam").setLevel(logging.ERROR)


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
def test_the_first_error_is_reported_and_later_stages_do_not_start(tmp_path):
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
