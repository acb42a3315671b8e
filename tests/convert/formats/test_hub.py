"""`hf://` addresses, with a hub that is a folder of this machine."""

import fnmatch
import hashlib
import subprocess
import sys

import huggingface_hub
import pytest
from logged import warnings_in

from keras_transformers.convert import fetch
from keras_transformers.dependencies.extras import MissingExtraError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights" * 9,
    "pytorch_model.bin": b"code",
    "tf_model.h5": b"more weights",
}


@pytest.fixture
def files():
    """The files on the hub, which a test may change."""
    return FILES | {"onnx/config.json": b"[]"}


@pytest.fixture
def hub(tmp_path, monkeypatch, files):
    """A hub with the files above at COMMIT, which lays out its cache as huggingface_hub does."""
    asked = []

    def snapshot_download(name, *, revision, allow_patterns, ignore_patterns):
        asked.append((name, revision))
        if name != "org/name":
            raise huggingface_hub.errors.LocalEntryNotFoundError("no such model\nlook elsewhere")
        folder, blobs = tmp_path / "snapshots" / COMMIT, tmp_path / "blobs"
        for place in (folder / "onnx", blobs):
            place.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            if not any(fnmatch.fnmatch(file, pattern) for pattern in allow_patterns):
                continue
            if any(fnmatch.fnmatch(file, pattern) for pattern in ignore_patterns):
                continue
            large = hashlib.sha256(content).hexdigest()
            small = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            blob = blobs / (large if file.endswith("safetensors") else small)
            if not blob.exists():
                blob.write_bytes(content)
                (folder / file).symlink_to(blob)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def test_only_weights_and_texts_are_fetched(hub, caplog):
    folder = fetch(f"hf://org/name@{COMMIT}")
    assert {file.name for file in folder.iterdir()} - {"onnx"} == {
        "config.json",
        "model.safetensors",
    }
    assert not list((folder / "onnx").iterdir())
    assert hub == [("org/name", COMMIT)]
    assert not warnings_in(caplog)


@pytest.mark.parametrize(
    ("missing", "fetched"),
    [
        (["model.safetensors"], "pytorch_model.bin"),
        (["model.safetensors", "pytorch_model.bin"], "tf_model.h5"),
    ],
)
def test_other_weights_are_fetched_where_there_are_no_safetensors(hub, files, missing, fetched):
    for name in missing:
        del files[name]
    folder = fetch("hf://org/name@main")
    found = {file.name for file in folder.iterdir() if file.is_file()}
    assert found == {"config.json", fetched}
    assert hub == [("org/name", "main")] + [("org/name", COMMIT)] * len(missing)


@pytest.mark.parametrize("revision", [None, "main", "v1.0"])
def test_a_branch_or_tag_is_resolved_and_its_commit_named(hub, revision, caplog):
    fetch("hf://org/name" + (f"@{revision}" if revision else ""))
    assert hub == [("org/name", revision)]
    assert f"use hf://org/name@{COMMIT} to pin these files" in caplog.text


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_damaged_file_is_refused(hub, file):
    folder = fetch(f"hf://org/name@{COMMIT}")
    (folder / file).resolve().write_bytes(b"other")
    with pytest.raises(ValueError, match=rf"{file} is damaged: remove .*blobs/[0-9a-f]+ and load"):
        fetch(f"hf://org/name@{COMMIT}")


def test_what_the_hub_lacks_is_one_line(hub):
    with pytest.raises(FileNotFoundError, match=r"hf://org/other is not in the cache and could not "
                       r"be fetched \(no such model look elsewhere\): connect"):  # fmt: skip
        fetch("hf://org/other")


@pytest.mark.parametrize(
    "address", ["hf://name", "hf://org/name@", "hf://a/b/c", "hf://../x@y z", "hf://org/na me"]
)
def test_a_malformed_address_is_refused(hub, address):
    with pytest.raises(ValueError, match="expected hf://organization/name"):
        fetch(address)
    assert not hub


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"keras-transformers\[hub\]"):
        fetch("hf://org/name")


def test_offline_the_cache_or_one_clear_line(tmp_path):
    cache = tmp_path / "hub/models--org--cached"
    snapshot = cache / "snapshots" / COMMIT
    for folder in (snapshot, cache / "blobs"):
        folder.mkdir(parents=True)
    blob = cache / "blobs" / hashlib.sha1(b"blob 2\0{}").hexdigest()
    blob.write_bytes(b"{}")
    (snapshot / "config.json").symlink_to(blob)
    code = (
        "from keras_transformers.convert.formats.hub import fetch\n"
        f"print(fetch('hf://org/cached@{COMMIT}'))\n"
        f"try: fetch('hf://org/name@{COMMIT}')\n"
        "except FileNotFoundError as error: print(error)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, line = found.stdout.splitlines()
    assert folder == str(snapshot)
    assert line.startswith(f"hf://org/name@{COMMIT} is not in the cache and could not be fetched")
