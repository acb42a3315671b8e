"""Presets that keras-nlp 0.12 and keras-hub 0.32 wrote, with their models' outputs."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tiny
from left_behind import difference, same_outputs

import keras_transformers as kt
from keras_transformers.convert.formats.weights import find_weights
from keras_transformers.tasks.weights.assembly import assemble

TASKS = {
    "bert_cls": "classification",
    "bert_mlm": "fill_mask",
    "distil_cls": "classification",
    "distil_mlm": "fill_mask",
    "gpt2_lm": "generation",
    "roberta_cls": "classification",
    "roberta_mlm": "fill_mask",
}
OF_KERAS_HUB = {"bert_lora": "classification", "bert_sharded": "classification"}
IMAGES = {"vit_cls": "image_classification", "vit_cls_nopre": "image_classification"}


def cases():
    yield from (("nlp012", name, task) for name, task in TASKS.items())
    for name, task in (TASKS | OF_KERAS_HUB | IMAGES | {"t5_lm": "translation"}).items():
        yield "kh", name, task


@pytest.mark.parametrize(("version", "name", "task"), cases())
def test_outputs_are_the_originals(version, name, task, left_behind):
    folder = left_behind(f"{version}/{name}")
    loaded = kt.load(folder)
    assert loaded.task == task
    same_outputs(loaded.model, folder.with_name(f"{name}.npz"))


@pytest.mark.parametrize("version", ["nlp012", "kh"])
@pytest.mark.parametrize("name", ["bert_bf16", "gpt2_bf16"])
def test_what_the_original_computes_in_bfloat16_is_near(version, name, left_behind):
    folder = left_behind(f"{version}/{name}")
    found = difference(kt.load(folder).model, folder.with_name(f"{name}.npz"))
    assert 1e-5 < found < 0.05


@pytest.mark.parametrize("version", ["nlp012", "kh"])
def test_a_head_with_softmax_gives_the_same_probabilities(version, left_behind):
    folder = left_behind(f"{version}/bert_softmax")
    classify = kt.load(folder)
    with np.load(folder.with_name("bert_softmax.npz")) as file:
        inputs = {
            "token_ids": file["in_input_ids"],
            "segment_ids": file["in_token_type_ids"],
            "padding_mask": file["in_attention_mask"] == 1,
        }
        wanted = file["out_logits"]  # which that model calls its probabilities
    found = tf.nn.softmax(classify.model(inputs)["logits"])
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("version", ["nlp012", "kh"])
@pytest.mark.parametrize("name", ["bert_backbone", "xlmr_backbone"])
def test_a_backbone_without_a_tokenizer_has_an_encoder(version, name, left_behind):
    folder = left_behind(f"{version}/{name}")
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        kt.load(folder)
    encoder = assemble(find_weights(folder)).model
    outputs = {"sequence_output": encoder.output["sequence_output"]}
    if name == "bert_backbone":
        outputs = dict(encoder.output)
    same_outputs(type(encoder)(encoder.input, outputs), folder.with_name(f"{name}.npz"))


def test_an_albert_is_keras_hubs(tmp_path):
    import keras_hub

    theirs = tiny.lively(
        keras_hub.models.AlbertBackbone(
            vocabulary_size=30, num_layers=3, num_heads=2, embedding_dim=4, hidden_dim=8,
            intermediate_dim=12, max_sequence_length=16,
        )
    )  # fmt: skip
    theirs.save_to_preset(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        kt.load(tmp_path)
    ours = assemble(find_weights(tmp_path)).model
    random = np.random.default_rng(0)
    given = {
        "token_ids": random.integers(1, 30, (2, 7)),
        "segment_ids": random.integers(0, 2, (2, 7)),
        "padding_mask": np.arange(7) < np.array([[7], [5]]),
    }
    found, wanted = ours(given), theirs(given)
    real = given["padding_mask"]
    for name in ("sequence_output", "pooled_output"):
        found_, wanted_ = (np.asarray(each[name]) for each in (found, wanted))
        if name == "sequence_output":
            found_, wanted_ = found_[real], wanted_[real]
        np.testing.assert_allclose(found_, wanted_, atol=1e-5)
    config = json.loads((tmp_path / "config.json").read_text())
    config["config"]["num_groups"] = 2
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="num_groups=2; only 1 is supported"):
        find_weights(tmp_path)


@pytest.mark.parametrize("name", ["FNetBackbone", "BartBackbone", "DebertaV3Backbone"])
def test_other_families_are_refused_by_name(name, left_behind):
    with pytest.raises(ValueError, match=f"a preset of '{name}'.*BertBackbone"):
        kt.load(left_behind(f"kh/{name}"))
