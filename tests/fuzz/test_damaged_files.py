"""Every reader of data, exports and settings takes a damaged file or refuses it by name.

It does so in one error, and none crashes or hangs. `pytest tests/fuzz --fuzz-seconds 60` searches
each reader for a minute. A file that was once read wrongly is kept in `seeds/<reader>/` and tried
again in every run.
"""

import functools
import gzip
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from reader import Reader, as_json, check_reader, text, written
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from keras_transformers.data.images.labelled_images import read_idx
from keras_transformers.data.pretraining import records
from keras_transformers.data.text import examples, load_conll, load_squad
from keras_transformers.data.translation import read_dictionary, read_tsv
from keras_transformers.saved_model import description, manifest
from keras_transformers.saved_model.warm_up import read_logs
from keras_transformers.serving.server.settings import read_model_config

EXPORTS = Path(__file__).parents[2] / "saved_models"


def idx() -> bytes:
    """Two images of 2 x 3 pixels."""
    return bytes([0, 0, 8, 3, *(0, 0, 0, 2), *(0, 0, 0, 2), *(0, 0, 0, 3), *range(12)])


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
    "idx": Reader("images-idx3-ubyte", idx, functools.partial(read_idx, num_axes=3)),
    "packed idx": Reader(
        "labels-idx1-ubyte.gz",
        lambda: gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 0]), mtime=0),
        functools.partial(read_idx, num_axes=1),
    ),
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


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_by_name(name, tmp_path, seconds):
    check_reader(name, READERS[name], tmp_path, seconds)
