"""Whatever loads a folder reads each of its files once: JSON, and the header of the weights."""

import collections
import contextlib
import sys
from pathlib import Path

import pytest
import safetensors
import tiny

import keras_transformers as kt
from keras_transformers.convert.folder import Folder
from keras_transformers.tasks.pretraining.weights import load_pretrainer, pretrained_tokenizer

_counts: list[collections.Counter] = []  # an audit hook stays for the life of the process


def _count(event, arguments):
    if _counts and event == "open" and str(arguments[0]).endswith(".json"):
        _counts[-1][str(arguments[0])] += 1


sys.addaudithook(_count)


@contextlib.contextmanager
def counting(monkeypatch):
    """Counts how often JSON files are opened, and how often a header of safetensors is parsed."""
    counts = collections.Counter()
    safe_open = safetensors.safe_open

    def counted(file, **options):
        counts[str(file)] += 1
        return safe_open(file, **options)

    _counts.append(counts)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(safetensors, "safe_open", counted)
            yield counts
    finally:
        _counts.pop()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders in Hugging Face's layout, in sentence-transformers', and of a saved pipeline."""
    parent = tmp_path_factory.mktemp("folders")
    folders = {}
    for name, format in (
        ("classification", "huggingface"),
        ("embedding", "huggingface"),
        ("generation", "huggingface"),
        ("tagging", "keras_transformers"),
    ):
        pipeline = tiny.talker() if name == "generation" else tiny.pipeline(name)
        folders[name] = kt.save(pipeline, parent / name, format=format)
    folders["pretraining"] = parent / "pretraining"
    model = tiny.lively(kt.heads.pretrainer(tiny.encoder()))
    kt.convert.save_weights(model, folders["pretraining"], tiny.wordpiece(), family="bert")
    return folders


LOADERS = {
    "kt.load": ("classification", kt.load),
    "kt.load with a new head": (
        "classification",
        lambda folder: kt.load(folder, pipeline="tagging", labels=["O", "B-X"]),
    ),
    "kt.load of an embedder": ("embedding", kt.load),
    "kt.load of a language model": ("generation", kt.load),
    "kt.load of a saved pipeline": ("tagging", kt.load),
    "kt.load of a saved pipeline with a new head": (
        "tagging",
        lambda folder: kt.load(folder, pipeline="classification", labels=["a", "b"]),
    ),
    "load_encoder": ("classification", lambda folder: kt.convert.load_encoder(weights=folder)),
    "load_language_model": (
        "generation",
        lambda folder: kt.convert.load_language_model(weights=folder),
    ),
    "load_pretrainer": (
        "pretraining",
        lambda folder: load_pretrainer(
            weights=folder, vocabulary_size=len(tiny.VOCABULARY), max_sequence_length=16
        ),
    ),
    "pretrained_tokenizer": ("pretraining", lambda folder: pretrained_tokenizer(folder, 16)),
}


@pytest.mark.parametrize("name", LOADERS)
def test_each_file_is_read_once(name, folders, monkeypatch, untraced):
    folder, load = LOADERS[name]
    load(folders[folder])  # what a process does once
    with counting(monkeypatch) as counts:
        load(folders[folder])
    read = {Path(file).relative_to(folders[folder]).as_posix(): n for file, n in counts.items()}
    assert "model.safetensors" in read
    assert read == dict.fromkeys(read, 1)


def test_a_folder_shares_what_it_has_read(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    folder = Folder(tmp_path)
    assert folder.json("config.json") is folder.json("config.json")
    assert folder.json("other.json", missing_ok=True) == {}
    assert Folder.at(folder) is folder
    vocabulary = tmp_path / "vocabulary"
    vocabulary.mkdir()
    assert Folder(vocabulary, described_by=folder).json("config.json") == {"model_type": "bert"}
    with pytest.raises(FileNotFoundError, match=r"other\.json"):
        folder.json("other.json")
