import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from checks import near
from safetensors.numpy import load_file, save_file

import keras_transformers as kt
from keras_transformers.families.bert.files import FAMILY as BERT
from keras_transformers.families.bert.model import bert

pytestmark = pytest.mark.kernels

GOLDEN = Path(__file__).parents[2] / "golden"
RANDOM = GOLDEN / "bert_random.safetensors"
TOLERANCE = 1e-5
# Hugging Face's name of an activation -> ours.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_approximate"}


@pytest.fixture(scope="module")
def golden_maker():
    import runpy

    return runpy.run_path(str(GOLDEN / "make_bert.py"))


def small_bert(maker, activation="gelu"):
    config = maker["CONFIG"]
    return bert(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        max_sequence_length=config["max_position_embeddings"],
        activation=activation,
    )


def outputs_of(maker, activation):
    encoder = small_bert(maker, ACTIVATIONS[activation])
    model = kt.heads.pretrainer(encoder, activation=ACTIVATIONS[activation])
    kt.convert.load_weights(model, RANDOM)
    inputs = maker["random_inputs"]()
    heads = model.predict(inputs, verbose=0)
    del inputs["mask_positions"]
    return encoder.predict(inputs, verbose=0) | heads


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_random_bert_with_both_heads_equals_the_frozen_reference(golden_maker, activation):
    golden = np.load(GOLDEN / "bert_random.npz")
    mask = golden_maker["random_inputs"]()["padding_mask"]
    for key, value in outputs_of(golden_maker, activation).items():
        expected = golden[f"{activation}/{key}"]
        if key == "sequence_output":  # outputs at padding are meaningless
            value, expected = value[mask], expected[mask]
        near(value, expected)


def test_the_two_forms_of_gelu_differ_more_than_the_tolerance(golden_maker):
    golden = np.load(GOLDEN / "bert_random.npz")
    difference = golden["gelu/mask_logits"] - golden["gelu_new/mask_logits"]
    assert np.abs(difference).max() > 10 * TOLERANCE


def test_minilm_equals_the_frozen_reference(minilm_dir):
    golden = np.load(GOLDEN / "minilm.npz")
    model = bert(**BERT.read(minilm_dir))
    kt.convert.load_weights(model, minilm_dir)
    mask = golden["padding_mask"]
    outputs = model.predict(
        {
            "token_ids": golden["token_ids"],
            "segment_ids": np.zeros_like(golden["token_ids"]),
            "padding_mask": mask,
        },
        verbose=0,
    )
    near(outputs["pooled_output"], golden["pooled_output"])
    near(outputs["sequence_output"][..., :8][mask], golden["sequence_output_start"][mask])


@pytest.mark.reference
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_frozen_random_outputs_are_transformers_own(golden_maker, activation):
    golden = np.load(GOLDEN / "bert_random.npz")
    for key, value in golden_maker["random_outputs"](activation).items():
        np.testing.assert_allclose(golden[f"{activation}/{key}"], value, atol=TOLERANCE)


@pytest.mark.reference
def test_the_frozen_minilm_outputs_are_transformers_own(golden_maker, minilm_dir):
    golden = np.load(GOLDEN / "minilm.npz")
    for key, value in golden_maker["minilm_outputs"](minilm_dir).items():
        atol = TOLERANCE * np.abs(value).max()
        np.testing.assert_allclose(golden[key], value, atol=atol, err_msg=key)


@pytest.mark.reference
def test_transformers_reads_what_save_bert_writes(golden_maker, tmp_path):
    import torch
    import transformers

    model = kt.heads.pretrainer(small_bert(golden_maker))
    kt.convert.load_weights(model, RANDOM)
    config = transformers.BertConfig(**golden_maker["CONFIG"], architectures=["BertForPreTraining"])
    config.save_pretrained(tmp_path)
    BERT.save(model, tmp_path / "model.safetensors")
    theirs, report = transformers.BertForPreTraining.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    original = golden_maker["random_model"]("gelu").state_dict()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, original[name]), name


def test_saving_and_loading_changes_no_bit(golden_maker, tmp_path):
    model = kt.heads.pretrainer(small_bert(golden_maker))
    kt.convert.load_weights(model, RANDOM)
    BERT.save(model, tmp_path / "copy.safetensors")
    other = kt.heads.pretrainer(small_bert(golden_maker))
    kt.convert.load_weights(other, tmp_path / "copy.safetensors")
    for one, two in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_old_names_prefixes_buffers_and_tied_copies_are_understood(golden_maker, tmp_path):
    tensors = load_file(RANDOM)
    embeddings = tensors["bert.embeddings.word_embeddings.weight"]
    old = {name.replace("Norm.weight", "Norm.gamma"): t for name, t in tensors.items()}
    old = {name.replace("Norm.bias", "Norm.beta"): t for name, t in old.items()}
    old["cls.predictions.decoder.weight"] = embeddings.copy()
    old["bert.embeddings.position_ids"] = np.arange(20)[None]
    save_file(old, tmp_path / "old.safetensors")
    model = kt.heads.pretrainer(small_bert(golden_maker))
    kt.convert.load_weights(model, tmp_path / "old.safetensors")
    np.testing.assert_array_equal(model.get_layer("token_embedding").embeddings, embeddings)

    bare = {n.removeprefix("bert."): t for n, t in tensors.items() if n.startswith("bert.")}
    save_file(bare, tmp_path / "bare.safetensors")
    kt.convert.load_weights(small_bert(golden_maker), tmp_path / "bare.safetensors")

    old["cls.predictions.decoder.weight"] = embeddings + 1
    save_file(old, tmp_path / "untied.safetensors")
    with pytest.raises(ValueError, match=r"cls.predictions.decoder.weight differs from bert.emb"):
        kt.convert.load_weights(model, tmp_path / "untied.safetensors")


def test_a_bfloat16_file_loads(golden_maker, tmp_path):
    import ml_dtypes

    tensors = {name: t.astype(ml_dtypes.bfloat16) for name, t in load_file(RANDOM).items()}
    save_file(tensors, tmp_path / "half.safetensors")
    model = kt.heads.pretrainer(small_bert(golden_maker))
    kt.convert.load_weights(model, tmp_path / "half.safetensors")
    expected = tensors["bert.pooler.dense.bias"].astype("float32")
    np.testing.assert_array_equal(model.get_layer("pooler").bias, expected)


def test_nothing_is_dropped_silently(golden_maker, tmp_path):
    encoder = small_bert(golden_maker)
    before = encoder.get_weights()
    with pytest.raises(ValueError, match=r"not used .*ignore.*cls.predictions.bias, cls.pred"):
        kt.convert.load_weights(encoder, RANDOM)
    kt.convert.load_weights(encoder, RANDOM, ignore=["cls.*"])
    assert not np.array_equal(before[0], encoder.get_weights()[0])


def test_every_missing_and_misshapen_tensor_is_named_and_nothing_changes(golden_maker, tmp_path):
    tensors = load_file(RANDOM)
    del tensors["bert.encoder.layer.1.output.dense.bias"]
    tensors["bert.pooler.dense.weight"] = np.zeros((16, 4), "float32")
    save_file(tensors, tmp_path / "broken.safetensors")
    model = kt.heads.pretrainer(small_bert(golden_maker))
    before = model.get_weights()
    with pytest.raises(ValueError, match="does not fit the model") as error:
        kt.convert.load_weights(model, tmp_path / "broken.safetensors")
    message = str(error.value)
    assert "missing from the file: bert.encoder.layer.1.output.dense.bias" in message
    assert "bert.pooler.dense.weight is (16, 4), pooler/kernel needs (16, 16)" in message
    for one, two in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)


def test_missing_and_cut_files_are_refused(golden_maker, tmp_path):
    model = small_bert(golden_maker)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        kt.convert.load_weights(model, tmp_path / "nowhere")
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(RANDOM.read_bytes()[:-100])
    with pytest.raises(ValueError, match="cut.safetensors:.*file"):
        kt.convert.load_weights(model, cut)


def test_sharded_checkpoints_load_and_missing_shards_are_named(golden_maker, tmp_path):
    tensors = load_file(RANDOM)
    names = sorted(tensors)
    halves = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, members in halves.items():
        save_file({name: tensors[name] for name in members}, tmp_path / file)
    weight_map = {name: file for file, members in halves.items() for name in members}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    kt.convert.load_weights(kt.heads.pretrainer(small_bert(golden_maker)), tmp_path)
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="lists two.safetensors, which"):
        kt.convert.load_weights(small_bert(golden_maker), tmp_path)


@pytest.mark.parametrize(
    "text",
    ["{}", "[1]", '{"weight_map"', '{"weight_map": [1]}', '{"weight_map": {}}', "[" * 2_000],
)
def test_a_damaged_index_of_shards_is_named(golden_maker, tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json: "):
        kt.convert.load_weights(small_bert(golden_maker), tmp_path)


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", 3, ""])
def test_an_index_lists_files_beside_it_alone(golden_maker, tmp_path, shard):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": shard}}))
    with pytest.raises(ValueError, match="x, not the name of a file"):
        kt.convert.load_weights(small_bert(golden_maker), tmp_path)


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (np.nan, "float32", r"NaN or infinity: bert\.pooler\.dense\.bias .*1 of 16"),
        (np.inf, "float16", r"NaN or infinity: bert\.pooler\.dense\.bias .*1 of 16"),
        (1, "int32", r"not floating-point: bert\.pooler\.dense\.bias is int32"),
    ],
)
def test_tensors_that_are_no_numbers_are_named_and_nothing_changes(
    golden_maker, tmp_path, value, dtype, message
):
    tensors = load_file(RANDOM)
    bias = tensors["bert.pooler.dense.bias"].astype(dtype)
    bias[3] = value
    save_file(tensors | {"bert.pooler.dense.bias": bias}, tmp_path / "model.safetensors")
    model = kt.heads.pretrainer(small_bert(golden_maker))
    before = [np.array(weight) for weight in model.weights]
    with pytest.raises(ValueError, match=message):
        kt.convert.load_weights(model, tmp_path)
    for weight, old in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_an_encoder_without_a_pooler_loads(golden_maker, tmp_path, caplog):
    tensors = load_file(RANDOM)
    kept = {name: array for name, array in tensors.items() if "pooler" not in name}
    save_file(kept, tmp_path / "model.safetensors")
    config = {**golden_maker["CONFIG"], "model_type": "bert"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [f"w{number}" for number in range(config["vocab_size"] - len(words))]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    encoder, _ = kt.convert.load_encoder(weights=tmp_path)
    found = encoder.get_layer("token_embedding").embeddings
    np.testing.assert_array_equal(found, tensors["bert.embeddings.word_embeddings.weight"])
    assert "has no pooler: the encoder's starts with random weights" in caplog.text
    kt.heads.tagger(encoder, 3)


def test_a_head_without_a_place_is_refused(golden_maker, tmp_path):
    encoder = small_bert(golden_maker)
    odd = keras.Model(
        encoder.input, keras.layers.Dense(3, name="odd")(encoder.output["pooled_output"])
    )
    with pytest.raises(ValueError, match="'odd'.*Face's BERT"):
        BERT.save(odd, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError, match="create it"):
        BERT.save(encoder, tmp_path / "missing" / "x.safetensors")


def test_a_config_becomes_arguments(tmp_path, golden_maker):
    config = {**golden_maker["CONFIG"], "model_type": "bert", "hidden_act": "gelu_new"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    arguments = BERT.read(tmp_path)
    assert arguments["activation"] == "gelu_approximate"
    assert arguments["initializer_range"] == 0.5
    model = bert(**arguments)
    assert model.count_params() == small_bert(golden_maker).count_params()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, "model_type is 'roberta'; expected 'bert'"),
        ({"hidden_act": "elu"}, "hidden_act='elu'; expected one of gelu"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"vocab_size": None}, "has no field 'vocab_size'"),
        ({"is_decoder": True}, "is_decoder=True; only False is supported"),
        ({"add_cross_attention": True}, "add_cross_attention=True; only False is supported"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(tmp_path, golden_maker, change, message):
    config = {**golden_maker["CONFIG"], **change}
    config = {key: value for key, value in config.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        BERT.read(tmp_path)


def test_a_missing_or_malformed_config_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json: no such file"):
        BERT.read(tmp_path)
    shutil.copy(RANDOM, tmp_path / "config.json")
    with pytest.raises(ValueError, match="not JSON"):
        BERT.read(tmp_path)
