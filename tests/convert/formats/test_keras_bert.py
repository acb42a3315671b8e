"""keras-bert's HDF5 files: their layout and what they answer are keras-bert's own."""

import gzip
import json
import runpy
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

import keras_transformers as kt

GOLDEN = Path(__file__).parents[2] / "golden"
MAKER = runpy.run_path(str(GOLDEN / "make_keras_bert.py"))
FILES = json.loads(gzip.decompress((GOLDEN / "keras_bert_files.json.gz").read_bytes()))
WANTED = np.load(GOLDEN / "keras_bert.npz")
WEIGHTS = MAKER["weights"]()
# The order of a layer's weights in keras-bert; in a file they are in that of the alphabet.
ORDERS = [
    "Wq bq Wk bk Wv bv Wo bo",
    "W1 b1 W2 b2",
    "kernel bias",
    "gamma beta",
    "embeddings",
    "bias",
]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(45))]


def value(path, shape):
    """Returns the array at a path: that of the random BERT, or zeros for other heads."""
    layer, weight = path.removesuffix(":0").split("/")[-2:]
    given = WEIGHTS.get(layer)
    if given is None:
        return np.zeros(shape, "float32")
    (order,) = (o.split() for o in ORDERS if len(o.split()) == len(given) and weight[-2:] in o)
    return given[order.index(weight.removeprefix(f"{layer}_"))]


def write(folder, name="pretrained", *, config=None, changes=None):
    """Writes the file of a model and its vocabulary; a change of an array to None removes it."""
    described = FILES[name]
    arrays = {path: value(path, shape) for path, shape in described["shapes"].items()}
    arrays |= {f"model_weights/{path}": array for path, array in (changes or {}).items()}
    file = folder / "bert.h5"
    with h5py.File(file, "w") as opened:
        opened.attrs["model_config"] = json.dumps(config or described["model_config"])
        for path, array in arrays.items():
            if array is not None:
                opened[path] = array
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    return file


def outputs(pipeline):
    given = MAKER["inputs"]()
    return pipeline.model({name: given[name] for name in pipeline.model.input})


def close(logits, wanted):
    np.testing.assert_allclose(keras.ops.softmax(logits), WANTED[wanted], atol=1e-6)


def test_a_pretrained_model_gives_keras_berts_probabilities(tmp_path, caplog):
    file = write(tmp_path)
    fill = kt.load(file)
    assert (fill.task, fill.tokenizer.vocabulary_size) == ("fill_mask", 50)
    close(outputs(fill)["mask_logits"], "mask_probabilities")
    judge = kt.load(file, pipeline="next_sentence")
    close(outputs(judge)["next_sentence_logits"], "next_sentence_probabilities")
    assert not caplog.records


def test_an_encoder_embeds_and_takes_new_heads(tmp_path, caplog):
    file = write(tmp_path, "encoder")
    assert kt.load(file).task == "embedding"
    assert not caplog.records
    new = kt.load(file, pipeline="tagging", labels=["a", "b"])
    assert new.model.output["logits"].shape[-1] == 2


@pytest.mark.parametrize(
    ("name", "layer", "task"),
    [("classifier", "label", "classification"), ("tagger", "tag", "tagging")],
)
def test_a_dense_layer_on_the_model_is_its_head(tmp_path, caplog, name, layer, task):
    shape = FILES[name]["shapes"][f"model_weights/{layer}/{layer}/kernel:0"]
    kernel = np.random.default_rng(1).normal(0, 1, shape).astype("float32")
    file = write(tmp_path, name, changes={f"{layer}/{layer}/kernel:0": kernel})
    loaded = kt.load(file)
    assert loaded.task == task
    assert loaded.labels == [f"LABEL_{index}" for index in range(shape[1])]
    assert not caplog.records
    np.testing.assert_array_equal(np.asarray(loaded.model.get_layer("logits").kernel), kernel)
    names = [f"name {index}" for index in range(shape[1])]
    assert kt.load(file, labels=names).labels == names


def test_other_heads_are_named_and_left_out(tmp_path, caplog):
    file = write(tmp_path, "other")
    with pytest.raises(ValueError, match="uses the head of of_first: give pipeline="):
        kt.load(file)
    assert kt.load(file, pipeline="embedding").task == "embedding"
    assert "does not use of_first/bias, of_first/kernel" in caplog.text


def changed(config, name, **options):
    """Returns a copy of a configuration with other options of the layers whose names end so."""
    copy = json.loads(json.dumps(config))
    layers = [each for each in copy["config"]["layers"] if each["name"].endswith(name)]
    assert layers
    for layer in layers:
        layer["config"] |= options
    return copy


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        ("-MultiHeadSelfAttention", {"head_num": 3}),
        ("-MultiHeadSelfAttention", {"head_num": True}),
        ("-MultiHeadSelfAttention", {"head_num": 10**30}),
        ("1-MultiHeadSelfAttention", {"head_num": 4}),
        ("-MultiHeadSelfAttention", {"activation": "relu"}),
        ("1-FeedForward", {"activation": "relu"}),
        ("-FeedForward", {"activation": {"class_name": "function"}}),
        ("-Norm", {"epsilon": None}),
        ("-Norm", {"epsilon": 1.5}),
    ],
)
def test_a_configuration_that_is_no_berts_is_refused(tmp_path, layer, options):
    config = changed(FILES["encoder"]["model_config"], layer, **options)
    with pytest.raises(ValueError, match=r"bert\.h5: .*(not those of a BERT|not one)"):
        kt.load(write(tmp_path, "encoder", config=config))


NORM = "Embedding-Norm/Embedding-Norm/gamma:0"
ATTENTION = "Encoder-2-MultiHeadSelfAttention"
WQ = f"{ATTENTION}/{ATTENTION}/{ATTENTION}_Wq:0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({WQ: None}, "bert.encoder.layer.1.attention.self.query.weight"),
        ({NORM: np.ones(17, "float32")}, "bert.embeddings.LayerNorm.weight"),
        ({NORM: np.full(16, np.nan, "float32")}, "NaN"),
        ({NORM: np.ones(16, "int32")}, "gamma:0 of shape .* holds no weights of this file"),
        (
            {"Embedding-Task/Embedding-Task/embeddings:0": np.ones((2, 16), "float32")},
            "Embedding-Task",
        ),
        ({f"again/{NORM}": np.ones(16, "float32")}, "several layers are named Embedding-Norm"),
        ({"Embedding-Segment/Embedding-Segment/embeddings:0": None}, "lacks Embedding-Segment"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        kt.load(write(tmp_path, "encoder", changes=changes))


def test_arrays_that_the_file_does_not_hold_are_not_read(tmp_path):
    """One of a million gigabytes without a value, and one whose values are another file's."""
    file = write(tmp_path, "encoder", changes={NORM: None})
    (tmp_path / "secret").write_bytes(b"x" * 64)
    for number, options in enumerate(
        [{"shape": (2**50,)}, {"shape": (16,), "external": str(tmp_path / "secret")}]
    ):
        copy = tmp_path / f"{number}.h5"
        copy.write_bytes(file.read_bytes())
        with h5py.File(copy, "a") as opened:
            opened.create_dataset(f"model_weights/{NORM}", dtype="float32", **options)
        with pytest.raises(ValueError, match="gamma:0 of shape .* holds no weights of this file"):
            kt.load(copy)


def test_what_is_missing_or_damaged_is_said_in_one_line(tmp_path):
    file = write(tmp_path, "encoder")
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"vocab\.txt is missing: put the vocabulary"):
        kt.load(file)
    with h5py.File(file, "a") as opened:
        opened.attrs["model_config"] = "{"
    with pytest.raises(ValueError, match="its model_config is damaged"):
        kt.load(file)
    with h5py.File(file, "a") as opened:
        del opened.attrs["model_config"]
    with pytest.raises(ValueError, match=r"has weights alone.*save the model with model\.save"):
        kt.load(file)
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(ValueError, match="cannot be read as a model of keras-bert"):
        kt.load(file)
    with h5py.File(file, "w") as opened:
        opened["other"] = np.ones(3, "float32")
    with pytest.raises(ValueError, match="no model of keras-bert, as it lacks Embedding-Token"):
        kt.load(file)
