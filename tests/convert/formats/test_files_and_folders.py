"""A folder with one file that loads loads as that file does, in every format of single files."""

import json
import runpy
import shutil
import tarfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import test_gguf
import tiny

import keras_transformers as kt
from keras_transformers.convert.formats.weights import all_formats, has_weights, look

TESTS = Path(__file__).parents[2]
GOLDEN = TESTS / "golden"
GOOGLE_VIT = runpy.run_path(str(TESTS / "families/vit/test_google_vit.py"))
KERAS_BERT = runpy.run_path(str(TESTS / "families/bert/test_keras_bert.py"))


def _of_fasttext(folder, left_behind):
    return Path(shutil.copy(GOLDEN / "fasttext/ngrams.bin", folder))


def _of_gguf(folder, left_behind):
    test_gguf.write(folder / "model.gguf", tiny.encoder(), block_count=1)
    return folder / "model.gguf"


def _of_vit(folder, left_behind):
    arrays = GOOGLE_VIT["google_arrays"](GOOGLE_VIT["classifier"]())
    np.savez(folder / "ViT-B_4.npz", **arrays)
    return folder / "ViT-B_4.npz"


def _of_keras_bert(folder, left_behind):
    return KERAS_BERT["write"](folder)  # with the head for next sentences


def _of_model_garden(folder, left_behind):
    with tarfile.open(GOLDEN / "left_behind/model_garden.tar.xz") as opened:
        opened.extractall(folder.parent, filter="data")
    shutil.copytree(folder.with_name("encoder"), folder, dirs_exist_ok=True)
    return folder / "ckpt-1.index"


def _copied(name, file):
    def copy(folder, left_behind):
        shutil.copytree(left_behind(f"{name}/{file}").parent, folder, dirs_exist_ok=True)
        return folder / file

    return copy


def _of_opennmt(folder, left_behind):
    with tarfile.open(GOLDEN / "left_behind/onmt.tar.xz") as opened:
        opened.extractall(folder.parent, filter="data")
    shutil.copytree(folder.with_name("onmt") / "transformer", folder, dirs_exist_ok=True)
    (folder / "model_description.py").write_text("num_heads = 2\n")
    return folder / "ckpt-40.index"


# A format, by the start of its contents -> makes a file of it, in a folder; None for formats of
# folders alone.
MADE = {
    "bilm-tf's": None,
    "a .bin or .ftz file of fastText's": _of_fasttext,
    "GGUF": _of_gguf,
    "Google's checkpoints of ALBERT": None,  # as Google's BERT
    "Google's bert_config.json": _copied("kb/b4k_ckpt", "bert_model.ckpt.index"),
    "Google's checkpoints of ELECTRA": None,
    "a .npz file of Google's ViT": _of_vit,
    "Hugging Face's": None,
    "keras-bert's": _of_keras_bert,
    "a Keras 2 model around": _copied("user/model_h5", "model.h5"),
    "presets": None,
    "Model Garden's": _of_model_garden,
    "OpenNMT-tf's": _of_opennmt,
    "saved pipelines": None,
    "sentence-transformers'": None,
    "SparseEncoder's": None,
    "MultiVectorEncoder's": None,
    "static vectors": None,
}


def test_every_format_is_here():
    for known in all_formats():
        assert sum(known.contents.startswith(start) for start in MADE) == 1, known.contents
    assert len(all_formats()) == len(MADE)


@pytest.mark.one_case
@pytest.mark.parametrize("name", [name for name, make in MADE.items() if make])
def test_a_folder_loads_as_its_file(name, left_behind, tmp_path):
    (folder := tmp_path / "folder").mkdir()
    file = MADE[name](folder, left_behind)
    assert has_weights(folder)
    of_file, of_folder = kt.load(file), kt.load(folder)
    assert type(of_file) is type(of_folder)
    assert of_file.config() == of_folder.config()
    for one, other in zip(of_file.model.weights, of_folder.model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_configuration_beside_a_file_of_weights_alone(left_behind, tmp_path):
    shutil.copytree(left_behind("kb/b4k_weights"), tmp_path / "b4k")
    (tmp_path / "b4k/best_model.weights").unlink(missing_ok=True)
    shutil.copy(left_behind("kb/b4k_ckpt") / "bert_config.json", tmp_path / "b4k")
    shutil.copytree(left_behind("user/model_h5"), tmp_path / "own")
    with h5py.File(tmp_path / "own/model.h5", "a") as opened:
        layers = json.loads(opened.attrs.pop("model_config"))["config"]["layers"]
    config = next(each["config"] for each in layers if each["class_name"] == "TFBertModel")
    (tmp_path / "own/config.json").write_text(json.dumps(config))
    for name in ("b4k", "own"):
        assert has_weights(tmp_path / name)
        one, other = kt.load(tmp_path / name / "model.h5"), kt.load(tmp_path / name)
        for value, same in zip(one.model.weights, other.model.weights, strict=True):
            np.testing.assert_array_equal(value, same)


def test_of_several_files_those_that_open_are_named(tmp_path):
    file = KERAS_BERT["write"](tmp_path)
    with h5py.File(tmp_path / "optimizer.h5", "w") as opened:
        opened["momentum"] = np.zeros(3)
    assert look(tmp_path).source == file
    kt.load(tmp_path)
    (tmp_path / "best.h5").write_bytes(file.read_bytes())
    assert not has_weights(tmp_path)
    with pytest.raises(ValueError, match="pass one of bert.h5 and best.h5"):
        kt.load(tmp_path)


def test_the_only_file_says_what_it_lacks(tmp_path):
    file = KERAS_BERT["write"](tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=rf"{file.with_name('vocab.txt')} is missing: copy"):
        kt.load(tmp_path)
