"""Every reader takes a damaged file or refuses it by name, in one error; none crashes or hangs.

`pytest tests/fuzz --fuzz-seconds 60` searches each reader for a minute. A file that was once read
wrongly is kept in `seeds/<reader>/` and tried again in every run.
"""

import dataclasses
import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorflow as tf
from mutation import damaged_bytes, damaged_json, search
from safetensors.numpy import save_file
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

import keras_transformers as kt
from keras_transformers.convert import elmo
from keras_transformers.convert.tensors import read_safetensors
from keras_transformers.data.pretraining import records
from keras_transformers.data.text import examples, load_conll, load_squad
from keras_transformers.data.translation import read_dictionary, read_tsv
from keras_transformers.saved_model import description, manifest
from keras_transformers.saved_model.warm_up import read_logs
from keras_transformers.serving.server.settings import read_model_config

SEEDS = Path(__file__).parent / "seeds"
EXPORTS = Path(__file__).parents[2] / "saved_models"


@dataclasses.dataclass(frozen=True)
class Reader:
    """A function that reads one kind of file.

    Attributes:
        file: the file's name within a folder.
        original: a valid file's contents.
        read: reads the file.
        is_json: whether to damage the values of its JSON too.
    """

    file: str
    original: Callable[[], bytes]
    read: Callable[[Path], Any]
    is_json: bool = False


def text(*lines: str) -> Callable[[], bytes]:
    return lambda: "\n".join(lines).encode()


def as_json(value: Any) -> Callable[[], bytes]:
    return lambda: json.dumps(value).encode()


def written(write: Callable[[Path], Any]) -> Callable[[], bytes]:
    """The contents of a file that a function writes."""

    def original() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder, "file"))
            return Path(folder, "file").read_bytes()

    return original


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"] = np.ones(8, "float32")
        file.create_dataset("CNN/W", data=np.ones((4, 4)), compression="gzip")


def read_hdf5(path: Path) -> None:
    elmo._read_hdf5(path)


def write_tensors(path: Path) -> None:
    save_file({"a": np.ones((2, 3), "float32"), "b": np.ones(2, "float16")}, path)


def read_shards(path: Path) -> None:
    write_tensors(path.with_name("a.safetensors"))
    read_safetensors(path.parent)


def write_records(path: Path) -> None:
    row = {
        **{name: [[1, 2, 3, 0]] for name in ("input_ids", "input_mask", "segment_ids")},
        **{name: [[1, 0]] for name in ("masked_lm_positions", "masked_lm_ids")},
        "masked_lm_weights": [[1.0, 0.0]],
        "next_sentence_labels": [[1]],
    }
    records.write_records(path, [row] * 2)


def read_records(path: Path) -> None:
    """TensorFlow checks each record's sum, without naming the file."""
    found = records.open_records(path)
    try:
        for row in tf.data.TFRecordDataset(list(found.paths)).batch(2):
            records.parse_records(row, found)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        pass


def write_warm_up(path: Path) -> None:
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = "serving_default"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a film"]))
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(log.SerializeToString())


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
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "Two dogs run.",
                    "qas": [
                        {
                            "id": "1",
                            "question": "Who?",
                            "is_impossible": False,
                            "answers": [{"text": "dogs", "answer_start": 4}],
                        }
                    ],
                }
            ]
        }
    ]
}
MODELS_CONFIG = text(
    'model_config_list { config { name: "a" base_path: "a" model_platform: "tensorflow"',
    "  model_version_policy { specific { versions: 1 } }",
    '  version_labels { key: "stable" value: 1 } } }',
)


def write_graph(path: Path) -> None:
    """A SavedModel's graph with a signature and no nodes."""
    model = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    graph = model.meta_graphs.add()
    graph.meta_info_def.tags.append("serve")
    signature = graph.signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    for tensors, name in ((signature.inputs, "text"), (signature.outputs, "label")):
        tensors[name].name, tensors[name].dtype = f"{name}:0", 7
        tensors[name].tensor_shape.dim.add(size=-1)
    path.write_bytes(model.SerializeToString(deterministic=True))


def describe(folder: Path) -> Any:
    if not (folder / "saved_model.pb").is_file():
        write_graph(folder / "saved_model.pb")
        (folder / "variables").symlink_to(EXPORTS / "fill_mask_en/1/variables")
    return description.describe(folder)


READERS = {
    "conll": Reader("a.txt", text("Bob B-P", "saw O", "", "Rome B-L"), load_conll),
    "squad": Reader("a.json", as_json(SQUAD), load_squad, is_json=True),
    "tsv": Reader("a.tsv", text("sentence\tlabel", "a film\tgood", "b\tbad"), examples.load),
    "csv": Reader("a.csv", text("sentence,label", '"a, film",good', "b,bad"), examples.load),
    "jsonl": Reader(
        "a.jsonl",
        text('{"text": "a", "label": 1}', '{"text": "b", "label": 0}'),
        functools.partial(examples.load, text_column="text", label_column="label"),
    ),
    "dictionary": Reader("a.dict", text("a AE1", "a(2) EH0", "b B IY1"), read_dictionary),
    "pairs": Reader("a.tsv", text("eins\tone", "zwei\ttwo"), lambda p: list(read_tsv(p))),
    "bert config": Reader("config.json", as_json(BERT), kt.convert.read_bert_config, is_json=True),
    "vit config": Reader("config.json", as_json(VIT), kt.convert.read_vit_config, is_json=True),
    "gpt config": Reader("config.json", as_json(GPT), kt.convert.read_gpt_config, is_json=True),
    "elmo options": Reader(
        "options.json", as_json(ELMO), kt.convert.read_elmo_options, is_json=True
    ),
    "safetensors": Reader("model.safetensors", written(write_tensors), read_safetensors),
    "shards' index": Reader(
        "model.safetensors.index.json", as_json(SHARDS), read_shards, is_json=True
    ),
    "hdf5": Reader("a.hdf5", written(write_hdf5), read_hdf5),
    "records": Reader("a.tfrecord", written(write_records), read_records),
    "manifest": Reader(
        "manifest.json",
        (EXPORTS / "manifest.json").read_bytes,
        lambda path: manifest.verify(path.parent),
        is_json=True,
    ),
    "metadata": Reader(
        description.METADATA_FILE,
        (EXPORTS / "fill_mask_en/1" / description.METADATA_FILE).read_bytes,
        lambda path: describe(path.parents[1]),
        is_json=True,
    ),
    "graph": Reader(
        "saved_model.pb", written(write_graph), lambda path: description.describe(path.parent)
    ),
    "models.config": Reader("models.config", MODELS_CONFIG, read_model_config),
    "warm-up": Reader(
        description.WARM_UP_FILE,
        written(write_warm_up),
        lambda path: list(read_logs(path.parents[1])),
    ),
}


def refusal(reader: Reader, path: Path) -> str | None:
    """The message with which a reader refuses a file; None if it takes the file."""
    try:
        reader.read(path)
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_by_name(name, tmp_path, seconds):
    reader = READERS[name]
    path = tmp_path / reader.file
    path.parent.mkdir(parents=True, exist_ok=True)
    original = reader.original()
    path.write_bytes(original)
    assert refusal(reader, path) is None

    def check(data: bytes) -> None:
        path.write_bytes(data)
        message = refusal(reader, path)
        assert message is None or path.name in message

    kept = [file.read_bytes() for file in sorted((SEEDS / name).glob("*"))]
    for data in kept:
        check(data)
    inputs = damaged_bytes([original, *kept])
    if reader.is_json:
        inputs |= damaged_json([original])
    search(name, inputs, check, seconds)
