"""Every reader of models, weights and vocabularies takes a damaged file or refuses it by name.

See `test_damaged_files`.
"""

import functools
import json
import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tiny
from reader import Reader, as_json, check_reader, text, written
from safetensors.numpy import save_file

import keras_transformers as kt
from keras_transformers import convert
from keras_transformers.convert.containers.arrays import open_arrays
from keras_transformers.families.elmo import files as elmo
from keras_transformers.runs.weights_files import read_weights, write_weights
from keras_transformers.tokenizers import SymbolTokenizer, WordPieceTokenizer
from keras_transformers.tokenizers.byte_pairs import files as byte_pair_files
from keras_transformers.tokenizers.word_vocabulary import WordVocabulary
from keras_transformers.training.averaging import average_weights


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"] = np.ones(8, "float32")
        file.create_dataset("CNN/W", data=np.ones((4, 4)), compression="gzip")


def read_hdf5(path: Path) -> None:
    elmo._read_hdf5(path)


def write_tensors(path: Path) -> None:
    save_file({"a": np.ones((2, 3), "float32"), "b": np.ones(2, "float16")}, path)


def read_tensors(path: Path) -> None:
    dict(open_arrays(path))


def golden(name: str) -> Callable[[], bytes]:
    return (Path(__file__).parents[1] / "golden" / "pickles" / name).read_bytes


def read_shards(path: Path) -> None:
    write_tensors(path.with_name("a.safetensors"))
    read_tensors(path.parent)


BERT = {
    "model_type": "bert",
    "vocab_size": 50,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "hidden_size": 8,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}
GPT = {
    "model_type": "gpt2",
    "vocab_size": 50,
    "n_layer": 1,
    "n_head": 2,
    "n_embd": 8,
    "n_positions": 16,
    "n_inner": None,
}
VIT = {
    "model_type": "vit",
    "patch_size": 4,
    "image_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "hidden_size": 8,
    "intermediate_size": 8,
}
DISTILBERT = {
    "model_type": "distilbert",
    "vocab_size": 50,
    "n_layers": 1,
    "n_heads": 2,
    "dim": 8,
    "hidden_dim": 8,
    "max_position_embeddings": 16,
}
ROBERTA = {**BERT, "model_type": "roberta", "type_vocab_size": 1, "max_position_embeddings": 18}
PREPROCESSOR = {
    "do_resize": True,
    "size": {"height": 8, "width": 8},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
SHARDS = {"metadata": {}, "weight_map": {"a": "a.safetensors", "b": "a.safetensors"}}
ELMO = {
    "lstm": {"dim": 4, "projection_dim": 2, "n_layers": 1, "cell_clip": 3, "proj_clip": 3},
    "char_cnn": {
        "filters": [[1, 2]],
        "activation": "relu",
        "n_highway": 1,
        "n_characters": 262,
        "max_characters_per_token": 10,
        "embedding": {"dim": 4},
    },
}


def check_argument(value: Any) -> None:
    """Fails unless a builder can be given the value: no size may be so large as to take all memory.

    Strings, which name an activation or a place of norms, were looked up.
    """
    if isinstance(value, list | tuple):
        for each in value:
            check_argument(each)
    elif isinstance(value, float):
        assert math.isfinite(value)
    elif not isinstance(value, bool):
        assert value is None or isinstance(value, str) or 0 <= value <= 2**24


def config(
    original: dict[str, Any], read: Callable[[Path], dict[str, Any]], file: str = "config.json"
) -> Reader:
    """The reader of a family's configuration."""

    def checked(path: Path) -> None:
        for value in read(path).values():
            check_argument(value)

    return Reader(file, as_json(original), checked, is_json=True)


def read_preprocessor(path: Path) -> None:
    path.with_name("config.json").write_text(json.dumps(VIT))
    for value in convert.vit.FAMILY.read(path.parent).values():
        check_argument(value)


@functools.cache
def small_model() -> keras.Model:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


def average(path: Path) -> None:
    output = path.with_name("averaged.weights.h5")
    output.unlink(missing_ok=True)
    average_weights([path], output)


@functools.cache
def saved_pipeline() -> Path:
    """A folder with a pipeline, which no test changes."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"), "saved")
    return tiny.pipeline("classification").save(folder)


def in_pipeline(file: str, *, is_json: bool = False, others: tuple[str, ...] = ()) -> Reader:
    """The reader of a file in a saved pipeline's folder."""

    def read(path: Path) -> None:
        for original in saved_pipeline().iterdir():
            if original.name != path.name:
                shutil.copy(original, path.parent)
        kt.load(path.parent)

    def original() -> bytes:
        return (saved_pipeline() / file).read_bytes()

    return Reader(file, original, read, is_json, others, examples=10)


def in_byte_pairs(number: int, *, is_json: bool = False) -> Reader:
    """The reader of one of the two files of a byte-pair vocabulary."""
    name, other = byte_pair_files.NAMES[number], byte_pair_files.NAMES[1 - number]

    def original(number: int) -> bytes:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        tiny.byte_pairs().save(folder)
        return (folder / byte_pair_files.NAMES[number]).read_bytes()

    originals = functools.cache(original)

    def read(path: Path) -> None:
        path.with_name(other).write_bytes(originals(1 - number))
        kt.tokenizers.BytePairTokenizer(path.parent)

    return Reader(name, lambda: originals(number), read, is_json, (other,))


READERS = {
    "bert config": config(BERT, convert.bert.FAMILY.read),
    "roberta config": config(ROBERTA, convert.roberta.FAMILY.read),
    "distilbert config": config(DISTILBERT, convert.distilbert.FAMILY.read),
    "vit config": config(VIT, convert.vit.FAMILY.read),
    "gpt config": config(GPT, convert.gpt.FAMILY.read),
    "preprocessor": Reader(
        "preprocessor_config.json", as_json(PREPROCESSOR), read_preprocessor, is_json=True
    ),
    "elmo options": config(ELMO, convert.read_elmo_options, file="options.json"),
    "safetensors": Reader(
        "model.safetensors", written(write_tensors), lambda path: dict(open_arrays(path))
    ),
    "shards' index": Reader(
        "model.safetensors.index.json", as_json(SHARDS), read_shards, is_json=True
    ),
    "pytorch's zip": Reader("pytorch_model.bin", golden("zip.bin"), read_tensors),
    "pytorch's stream": Reader("pytorch_model.bin", golden("legacy.bin"), read_tensors),
    "hdf5": Reader("a.hdf5", written(write_hdf5), read_hdf5),
    "weights": Reader(
        "best.weights.h5",
        written(lambda path: write_weights(small_model(), path), "best.weights.h5"),
        lambda path: read_weights(small_model(), path),
    ),
    "averaged weights": Reader(
        "best.weights.h5",
        written(lambda path: write_weights(small_model(), path), "best.weights.h5"),
        average,
    ),
    "pipeline": in_pipeline("pipeline.json", is_json=True),
    "pipeline's model": in_pipeline("model.json", is_json=True, others=("model.safetensors",)),
    "pipeline's weights": in_pipeline("model.safetensors"),
    "wordpiece": Reader("vocab.txt", text(*tiny.VOCABULARY), WordPieceTokenizer),
    "byte pairs": in_byte_pairs(0, is_json=True),
    "merges": in_byte_pairs(1),
    "sentence pieces": Reader(
        "vocabulary.model",
        written(lambda path: tiny.sentence_pieces().save(path.parent), "vocabulary.model"),
        kt.tokenizers.SentencePieceTokenizer,
    ),
    "symbols": Reader("symbols.txt", text("a", "b", "c"), lambda p: SymbolTokenizer.load(p.parent)),
    "words": Reader("words.txt", text("<S>", "</S>", "<UNK>", "a", "b"), WordVocabulary.read),
    "n-grams": Reader("words.txt", text("</s>", "a", "film"), kt.tokenizers.NgramTokenizer),
}


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_by_name(name, tmp_path, seconds):
    check_reader(name, READERS[name], tmp_path, seconds)
