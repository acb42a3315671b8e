"""Publishing what cannot be published: refused in one line, before anything is written."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from checks import says

from keras_transformers import files
from keras_transformers.cli.main import main
from keras_transformers.saved_model import versions
from keras_transformers.saved_model.models_config import ModelsConfig
from keras_transformers.saved_model.publishing import prune, publish, rollback
from keras_transformers.serving.server.settings import read_model_config

pytest.importorskip(
    "tensorflow_serving.config.model_server_config_pb2",
    reason="needs tensorflow-serving-api: pip install -e .[serving]",
)


def make_export(folder: Path) -> Path:
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_text("graph")
    (folder / "variables" / "variables.index").write_text("index")
    return folder


@pytest.fixture
def export(tmp_path):
    return make_export(tmp_path / "exports" / "1")


@pytest.fixture
def base(tmp_path):
    return tmp_path / "models" / "sentiment"


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def refused(capsys, folder: Path, *arguments) -> str:
    """Runs a command that must change nothing in `folder`; returns its only line."""
    before = tree(folder)
    assert main([str(argument) for argument in arguments]) == 2
    assert tree(folder) == before
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


@pytest.mark.parametrize("label", ["a/b", "a:b", "", "caf\udce9"])
def test_a_label_that_a_server_refuses_is_not_published(capsys, export, base, tmp_path, label):
    line = refused(capsys, tmp_path, "publish", export, base, "--label", label)
    assert f"the label {label!r} must" in line


def test_a_server_takes_every_label_that_is_published(export, base):
    labels = ["é", "a b", "%2f", '"', "\\", "#", "\n", "stable"]
    for label in labels:
        publish(export, base, label=label)
    (model,) = read_model_config(base.parent / "models.config")
    assert model.version_labels == {label: i for i, label in enumerate(labels, start=1)}


def test_a_model_whose_name_a_server_refuses_gets_no_label(capsys, export, tmp_path):
    base = tmp_path / "models" / "de:en"
    line = refused(capsys, tmp_path, "publish", export, base, "--label", "stable")
    assert "the name 'de:en' must not be empty or contain a slash or a colon" in line
    publish(export, base)  # serve takes it as NAME=BASE_PATH
    arguments = ("serving-config", tmp_path, base)
    assert "the name 'de:en' must not" in refused(capsys, tmp_path, *arguments)


def test_a_config_that_a_server_refuses_is_named_before_anything_changes(capsys, export, base):
    publish(export, base)
    config = base.parent / "models.config"
    config.write_text(
        'model_config_list { config { name: "other" version_labels { key: "a/b" value: 1 } } }'
    )
    for command in (("publish", export, base), ("rollback", base)):
        line = refused(capsys, base.parent, *command)
        assert f"{config}: model 'other': the label 'a/b' must not" in line


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--keep", 0), "--keep 0: must be 1 or more"),
        (("--warm-up", 0), "--warm-up 0: must be 1 or more"),
        (("--label", "a", "--config", "/nowhere/models.config"), "/nowhere: no such folder for"),
        (("--label", "a", "--config", "."), "is not a file: name TF Serving's model config file"),
        (("--label", "a", "--server-path", "caf\udce9"), "the server's path 'caf\\udce9' must be"),
    ],
)
def test_options_are_checked_before_anything_is_written(
    capsys, export, base, tmp_path, monkeypatch, options, text
):
    monkeypatch.chdir(tmp_path)
    assert text in refused(capsys, tmp_path, "publish", export, base, *options)


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, "9" * 200, "9" * 5000, "0" * 5000])
def test_versions_that_no_server_serves_are_refused(capsys, export, base, tmp_path, number):
    line = refused(capsys, tmp_path, "publish", export, base / str(number))
    assert "a version is at most 9223372036854775806" in line or "write it as 0" in line


def test_the_last_version_has_none_after_it(capsys, export, base, tmp_path):
    assert publish(export, base / str(2**63 - 2)).name == str(2**63 - 2)
    line = refused(capsys, tmp_path, "publish", export, base)
    assert f"no version is left after {2**63 - 2}: use a smaller number, {base}/<number>" in line
    assert publish(export, base / "7") == base / "7"


def test_numbers_that_no_server_serves_do_not_count(export, base):
    (base / str(2**64)).mkdir(parents=True)
    (base / "5").write_text("a file takes its number")
    assert publish(export, base) == base / "6"
    assert publish(export, base) == base / "7"
    assert versions.versions(base) == [6, 7]
    assert prune(base, keep=1) == [base / "6"]  # not 7, which is served
    publish(export, base)
    assert rollback(base) == (base / "8", base / "7")


def test_versions_with_leading_zeros_are_rolled_back_and_pruned(export, base):
    for name in ("00000001", "00000002", "00000003"):
        shutil.copytree(export, base / name)
    assert rollback(base) == (base / "00000003", base / "00000002")
    assert prune(base, keep=1) == [base / "00000001"]
    assert sorted(os.listdir(base)) == [".withdrawn-3", "00000002"]


def test_the_number_of_a_withdrawn_version_is_not_given_again(capsys, export, base):
    publish(export, base)
    publish(export, base)
    rollback(base)
    line = refused(capsys, base, "publish", export, base / "2")
    assert f"version 2 of {base} was withdrawn, and its number is never used again" in line


def test_a_rollback_beside_a_foreign_folder_of_its_name(capsys, export, base):
    publish(export, base / "8")
    publish(export, base / "9")
    (base / ".withdrawn-9").mkdir()
    (base / ".withdrawn-9" / "file").write_text("somebody's")
    line = refused(capsys, base, "rollback", base)
    assert f"{base}/.withdrawn-9 exists, and version 9 would get that name" in line


def test_a_rollback_and_a_pruning_where_there_is_nothing(capsys, export, base, tmp_path):
    publish(export, base)
    publish(export, base)
    missing = tmp_path / "mistyped.config"
    line = refused(capsys, base, "rollback", base, "--config", missing)
    assert f"{missing}: no such config file" in line
    with pytest.raises(FileNotFoundError, match="nobody: no such folder"):
        prune(base.parent / "nobody", keep=1)
    with pytest.raises(FileNotFoundError, match="no such folder; pass"):
        prune(tmp_path / "no" / "body", keep=1)


def test_pruning_a_link_removes_the_link_alone(export, base, tmp_path):
    base.mkdir(parents=True)
    (base / "1").symlink_to(export)
    publish(export, base)
    assert prune(base, keep=1) == [base / "1"]
    assert os.listdir(base) == ["2"]
    assert tree(export) == ["saved_model.pb", "variables", "variables/variables.index"]


@pytest.mark.parametrize("place", ["models", "variables/deep/models"])
def test_an_export_is_not_published_into_itself(capsys, export, place, tmp_path):
    line = refused(capsys, tmp_path, "publish", export, export / place)
    assert f"is inside the export {export}: publish to another folder" in line
    link = tmp_path / "link"
    link.symlink_to(export)
    assert "is inside the export" in refused(capsys, tmp_path, "publish", export, link / place)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def make_link_to_a_folder(path: Path) -> None:
    path.symlink_to("variables")


def make_link_to_a_file(path: Path) -> None:
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    "make", [make_loop, make_dangling, make_link_to_a_folder, make_link_to_a_file]
)
def test_links_in_an_export_are_refused(capsys, export, base, tmp_path, make):
    make(export / "extra")
    line = refused(capsys, tmp_path, "publish", export, base)
    assert f"{export}/extra is a link to " in line
    assert "put the file or folder itself there" in line


def test_a_link_to_an_export_is_followed(export, base, tmp_path):
    (tmp_path / "latest").symlink_to(export)
    assert tree(publish(tmp_path / "latest", base)) == tree(export)
    assert not (base / "1").is_symlink()


def test_a_pipe_in_an_export_is_refused(capsys, export, base, tmp_path):
    os.mkfifo(export / "variables" / "pipe")
    line = refused(capsys, tmp_path, "publish", export, base)
    assert f"{export}/variables/pipe is neither a file nor a folder: remove it" in line


@pytest.mark.parametrize("make", [make_loop, make_dangling])
def test_a_base_that_leads_nowhere(capsys, export, tmp_path, make):
    make(tmp_path / "base")
    line = refused(capsys, tmp_path, "publish", export, tmp_path / "base")
    assert says(line, f"{tmp_path}/base is a file, or a link")
    refused(capsys, tmp_path, "publish", export, tmp_path / "base" / "model")


def full(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ((shutil, "copy2"), "saved_model.pb: cannot be copied to "),
        ((os, "fsync"), "models/sentiment/saved_model.pb: "),
    ],
)
def test_a_full_disk_leaves_nothing(capsys, export, base, tmp_path, monkeypatch, place, text):
    monkeypatch.setattr(*place, full)
    line = refused(capsys, tmp_path, "publish", export, base)
    assert text in line
    assert "No space left on device" in line


def test_a_config_that_cannot_be_written_takes_the_version_back(
    capsys, export, base, tmp_path, monkeypatch
):
    publish(export, base)
    monkeypatch.setattr(ModelsConfig, "text", full)
    line = refused(capsys, tmp_path, "publish", export, base, "--label", "canary")
    assert "No space left on device" in line


def test_a_config_that_was_written_keeps_its_version(export, base, monkeypatch):
    write = ModelsConfig.write

    def write_and_fail(models):
        write(models)
        full()

    monkeypatch.setattr(ModelsConfig, "write", write_and_fail)
    with pytest.raises(OSError, match="No space left"):
        publish(export, base, label="stable")
    assert ModelsConfig(base.parent / "models.config").labels(base) == {"stable": 1}
    assert versions.versions(base) == [1]


def test_what_is_in_a_folder_is_reported_without_following_links(tmp_path):
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "deep" / "file").write_text("")
    (tmp_path / "up").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert list(files.entries(tmp_path)) == [
        (tmp_path / "folder", "folder"),
        (tmp_path / "pipe", "other"),
        (tmp_path / "up", "link"),
        (tmp_path / "folder" / "deep", "folder"),
        (tmp_path / "folder" / "deep" / "file", "file"),
    ]
