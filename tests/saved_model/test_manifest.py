"""The manifest of exports, and the exports in the repository."""

import json
import os
import shutil

import pytest
from checks import says

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


def problems_of(folder, capsys):
    """Returns what `verify` names; it must fail."""
    assert main(["verify", str(folder)]) == 1
    wrong = {name: problems for name, problems in verify(folder).items() if problems}
    assert "\n".join(line for problems in wrong.values() for line in problems) in (
        capsys.readouterr().out
    )
    return wrong


def test_versions_models_and_files_that_are_not_listed_are_named(version, capsys):
    folder = record(version, FROM).parent
    shutil.copytree(version, folder / "toy" / "2")  # what serve and predict would take
    shutil.copytree(version.parent, folder / "other")
    shutil.copy(version / "saved_model.pb", folder / "toy")  # what predict would take before it
    (folder / "models.config").write_text("")
    (folder / ".git").mkdir()
    (folder / "toy" / ".withdrawn-3").mkdir()
    assert problems_of(folder, capsys) == {
        name: [f"{folder / name} is not listed"]
        for name in ("models.config", "other", "toy/2", "toy/saved_model.pb")
    }
    assert verify(folder)["toy/1"] == []


def test_links_are_named_wherever_they_are(version, capsys, tmp_path):
    folder = record(version, FROM).parent
    for inside in ("folder", "variables/variables.index", "loop", "dangling"):
        (version / inside).unlink(missing_ok=True)
    (version / "folder").symlink_to("/etc")
    (version / "loop").symlink_to("loop")
    (version / "dangling").symlink_to("nowhere")
    (tmp_path / "index").write_bytes(b"index")  # of the right contents, today
    (version / "variables" / "variables.index").symlink_to(tmp_path / "index")
    os.mkfifo(version / "pipe")
    assert problems_of(folder, capsys)["toy/1"] == [
        *(
            f"{version}/{name} is a link, and its target may change"
            for name in ("dangling", "folder", "loop")
        ),
        f"{version}/pipe is not listed",
        f"{version}/variables/variables.index is a link, and its target may change",
    ]
    with pytest.raises(ValueError, match="dangling .*link"):
        record(version, FROM)


@pytest.mark.parametrize("name", ["toy", "toy/1"])
def test_a_model_or_a_version_that_is_a_link_is_named(version, capsys, tmp_path, name):
    folder = record(version, FROM).parent
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert problems_of(folder, capsys) == {
        "toy/1": [f"{folder / name} is a link, and its target may change"]
    }


@pytest.mark.parametrize("text", ["{}", '{"toy/1": {"files": {}}}', '{"toy/7": {"files": {}}}'])
def test_a_manifest_that_lists_nothing_verifies_nothing(version, capsys, text):
    folder = version.parents[1]
    (folder / "manifest.json").write_text(text)
    assert problems_of(folder, capsys)
    shutil.rmtree(version)
    version.mkdir()
    assert problems_of(folder, capsys)
    shutil.rmtree(version.parent)
    assert problems_of(folder, capsys)


@pytest.mark.parametrize(
    "name", ["../../..", "../1", "/etc/1", "toy/../1", "toy", "toy/1/", "./1", "toy/x", "a\0/1", ""]
)
def test_entries_that_leave_the_folder_are_refused_not_hashed(version, capsys, monkeypatch, name):
    folder = version.parents[1]
    (folder / "manifest.json").write_text(json.dumps({name: {"files": {"saved_model.pb": "0"}}}))
    monkeypatch.setattr("hashlib.file_digest", None)
    assert main(["verify", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"manifest.json: entry {name!r} is not NAME/<number>; fetch it again" in line


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"../../secret": "0"}, "'../../secret' ... toy/1; fetch it again"),
        ({"/etc/passwd": "0"}, "'/etc/passwd' ... toy/1; fetch it again"),
        ({"saved_model.pb": 0}, "entry 'toy/1': not a manifest"),
        (["saved_model.pb"], "entry 'toy/1': not a manifest"),
    ],
)
def test_files_that_cannot_be_an_exports_are_refused(version, capsys, files, text):
    folder = version.parents[1]
    (folder / "manifest.json").write_text(json.dumps({"toy/1": {"files": files}}))
    assert main(["verify", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says(line, text)


def test_only_numbered_folders_are_recorded(version):
    named = version.rename(version.parent / "latest")
    with pytest.raises(ValueError, match="latest: not FOLDER/NAME/<number>"):
        record(named, FROM)
