"""The manifest of exports, and the exports in the repository."""

import pytest

from keras_transformers.cli.main import main
from keras_transformers.saved_model.manifest import Provenance, read, record, verify

FROM = Provenance(
    command="python recipes/translation.py",
    commit="0" * 40,
    scores={"test BLEU": 41.5},
    training_data="a toy",
    data_licence="none",
)


@pytest.fixture
def version(tmp_path):
    version = tmp_path / "saved" / "toy" / "1"
    (version / "variables").mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"graph")
    (version / "variables" / "variables.index").write_bytes(b"index")
    return version


def test_an_entry_names_every_file_with_its_hash(version):
    path = record(version, FROM)
    assert path == version.parents[1] / "manifest.json"
    entry = read(path)["toy/1"]
    assert entry["scores"] == {"test BLEU": 41.5}
    assert set(entry["files"]) == {"saved_model.pb", "variables/variables.index"}
    # sha256sum of "graph"
    assert entry["files"]["saved_model.pb"].startswith("eef93e1d")
    assert verify(path.parent) == {"toy/1": []}
    record(version, FROM)
    assert list(read(path)) == ["toy/1"]


def test_what_was_changed_added_or_taken_away_is_named(version, capsys):
    folder = record(version, FROM).parent
    assert main(["verify", str(folder)]) == 0
    assert "toy/1: 2 files as published" in capsys.readouterr().out
    (version / "saved_model.pb").write_bytes(b"grapf")
    (version / "extra").write_bytes(b"")
    (version / "variables" / "variables.index").unlink()
    (problems,) = verify(folder).values()
    assert len(problems) == 3
    assert problems[0].endswith("variables.index is missing")
    assert problems[1].endswith("extra is not listed")
    assert "saved_model.pb has SHA-256" in problems[2]
    assert main(["verify", str(folder)]) == 1
    assert "extra is not listed" in capsys.readouterr().out


def test_damaged_or_absent_manifests(version, capsys):
    folder = version.parents[1]
    assert main(["verify", str(folder)]) == 2
    assert "no manifest" in capsys.readouterr().err
    for text, message in (("{", "not JSON"), ('{"toy/1": []}', "not a manifest")):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            record(version, FROM)
        assert (folder / "manifest.json").read_text() == text
    with pytest.raises(FileNotFoundError, match=r"no saved_model\.pb"):
        record(folder, FROM)
