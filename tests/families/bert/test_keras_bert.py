"""keras-bert's and bert4keras' HDF5 files: their layout and what they answer are their own."""

import gzip
import json
import runpy
import shutil
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from left_behind import same_outputs
from logged import warnings_in

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
    assert not warnings_in(caplog)


def test_an_encoder_embeds_and_takes_new_heads(tmp_path, caplog):
    file = write(tmp_path, "encoder")
    assert kt.load(file).task == "embedding"
    assert not warnings_in(caplog)
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
    assert list(loaded.labels) == [f"LABEL_{index}" for index in range(shape[1])]
    assert not warnings_in(caplog)
    np.testing.assert_array_equal(np.asarray(loaded.model.get_layer("logits").kernel), kernel)
    names = [f"name {index}" for index in range(shape[1])]
    assert list(kt.load(file, labels=names).labels) == names


def test_other_heads_are_named_and_left_out(tmp_path, caplog):
    file = write(tmp_path, "other")
    assert kt.load(file).task == "embedding"
    assert "model_weights/of_first/of_first/kernel:0 (16, 3)" in caplog.text


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
        ("-MultiHeadSelfAttention", {"history_only": True}),
        ("1-FeedForward", {"activation": "relu"}),
        ("-FeedForward", {"activation": {"class_name": "function"}}),
        ("-Norm", {"epsilon": None}),
        ("-Norm", {"epsilon": 1.5}),
    ],
)
def test_a_configuration_that_is_no_berts_is_refused(tmp_path, layer, options):
    config = changed(FILES["encoder"]["model_config"], layer, **options)
    with pytest.raises(
        ValueError, match=r"bert\.h5: .*(not those of a BERT|not one|heads do not divide)"
    ):
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
        ({f"again/{NORM}": np.ones(16, "float32")}, "are both bert.embeddings.LayerNorm.weight"),
        (
            {"Embedding-Segment/Embedding-Segment/embeddings:0": None},
            "lacks bert.embeddings.token_type_embeddings",
        ),
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


def test_what_is_missing_or_damaged_is_reported_in_one_line(tmp_path):
    file = write(tmp_path, "encoder")
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"vocab\.txt.*copy"):
        kt.load(file)
    with h5py.File(file, "a") as opened:
        opened.attrs["model_config"] = "{"
    with pytest.raises(ValueError, match="model_config: not JSON .*save it again"):
        kt.load(file)
    with h5py.File(file, "a") as opened:
        del opened.attrs["model_config"]
    with pytest.raises(FileNotFoundError, match=r"has only weights.*copy the bert_config\.json"):
        kt.load(file)
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"bert\.h5: cannot.*HDF5 weights"):
        kt.load(file)
    with h5py.File(file, "w") as opened:
        opened["other"] = np.ones(3, "float32")
    with pytest.raises(ValueError, match=r"HDF5.*other\. Expected"):
        kt.load(file)


def with_values_of(file, path, **options):
    """A classifier whose new head has the values of a dense layer, as the warning says."""
    classify = kt.load(file, pipeline="classification", labels=["a", "b", "c"], **options)
    with h5py.File(file) as opened:
        values = [opened[f"{path}/{name}:0"][...] for name in ("kernel", "bias")]
    classify.model.get_layer("logits").set_weights(values)
    logits = classify.model.output["logits"]
    probabilities = keras.ops.log_softmax(logits)  # the originals have softmax there
    return keras.Model(classify.model.input, {"logits": probabilities})


@pytest.mark.parametrize(
    ("name", "file", "path", "outputs"),
    [
        ("kb_lambda_model", "model.h5", "model_weights/my_head/my_head", "kb_lambda_model"),
        ("kb_lambda_weights", "model.h5", "my_head/my_head", "kb_lambda_model"),
        ("b4k_weights", "model.h5", "dense_13/dense_13", "b4k_weights"),
        ("b4k_weights", "best_model.weights", "dense_13/dense_13", "b4k_weights"),
        ("b4k_model", "model.h5", "model_weights/dense_13/dense_13", "b4k_weights"),
    ],
)
def test_a_new_head_takes_the_values_of_a_dense_layer(
    name, file, path, outputs, left_behind, tmp_path, caplog
):
    """The dense layer reads the first token's vector, by a Lambda layer."""
    copy = Path(shutil.copy(left_behind(f"kb/{name}/{file}"), tmp_path))
    for beside in (f"kb/{name}/vocab.txt", "kb/b4k_ckpt/bert_config.json"):
        shutil.copy(left_behind(beside), tmp_path)
    assert kt.load(copy).task == "embedding"
    assert (
        f"{copy}: its own layers are not loaded: {path}/bias:0 (3,), {path}/kernel:0" in caplog.text
    )
    model = with_values_of(copy, path, pooling="cls")
    same_outputs(model, left_behind(f"kb/{outputs}.npz"))


def test_the_second_model_of_a_process_is_read(left_behind, tmp_path, caplog):
    """Its names end in _1, and its weights alone need bert_config.json."""
    folder = shutil.copytree(left_behind("kb/kb_nsp_weights"), tmp_path / "model")
    file = folder / "model.h5"
    with pytest.raises(FileNotFoundError, match=r"bert_config\.json.*pretrained"):
        kt.load(file)
    shutil.copy(left_behind("kb/b4k_ckpt/bert_config.json"), folder)
    new = kt.load(file, pipeline="classification", labels=["a", "b", "c"])
    with h5py.File(file) as opened:
        for name, path in (
            ("token_embedding/embeddings", "Embedding-Token/Embedding-Token_1/embeddings:0"),
            ("pooler/kernel", "NSP-Dense/NSP-Dense/kernel:0"),
        ):
            (found,) = [each for each in new.model.weights if each.path == name]
            np.testing.assert_array_equal(np.asarray(found), opened[path][...])
    assert "dense/dense/kernel:0 (16, 3)" in caplog.text


@pytest.mark.parametrize("option", [{"a_bias": True}, {"p_bias": "rotary"}])
def test_attention_that_is_no_berts_is_refused(option, left_behind, tmp_path):
    """bert4keras' masks and positions are inputs of the layer."""
    folder = shutil.copytree(left_behind("kb/b4k_model"), tmp_path / "model")
    with h5py.File(folder / "model.h5", "a") as opened:
        config = json.loads(opened.attrs["model_config"])
        for layer in config["config"]["layers"]:
            if layer["name"] == "Transformer-1-MultiHeadSelfAttention":
                layer["inbound_nodes"][0][0][3] = option
        opened.attrs["model_config"] = json.dumps(config)
    with pytest.raises(
        ValueError, match="Transformer-1-MultiHeadSelfAttention's mask or positions"
    ):
        kt.load(folder / "model.h5")
