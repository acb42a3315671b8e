"""Fields of a folder that change what its model computes: followed, or refused by name."""

import json

import numpy as np
import pytest
import tiny
import weights_folders
from logged import warnings_in
from weights_folders import LABELS, change_json

import keras_transformers as kt


@pytest.fixture
def gpt2(tmp_path):
    """A folder of a GPT-2 as transformers writes it, without a generation_config.json."""
    written = tiny.pipeline("generation")
    kt.convert.save_weights(written.model, tmp_path / "gpt2", written.tokenizer, family="gpt2")
    change_json(tmp_path / "gpt2/config.json", architectures=["GPT2LMHeadModel"])
    return tmp_path / "gpt2"


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        (
            {"do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "max_new_tokens": 7},
            {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "max_length": 7},
        ),
        ({"do_sample": False, "temperature": 0.7}, {"top_k": 1, "temperature": 1.0}),
        ({"do_sample": True, "top_k": 100_000}, {"top_k": 0}),
        ({"do_sample": True, "temperature": 0.7}, {"top_k": 50, "temperature": 0.7}),
        ({"temperature": 0.7, "top_p": 0.9}, {"top_k": 1, "temperature": 1.0, "top_p": 1.0}),
        ({}, {"top_k": 1, "temperature": 1.0, "max_length": 50}),
    ],
)
@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_a_language_model_samples_as_its_folder_says(file, fields, options, gpt2, caplog):
    change_json(gpt2 / file, **fields)
    found = kt.load(gpt2).options
    assert {name: found[name] for name in options} == options
    assert kt.load(gpt2, top_k=2).options["top_k"] == 2
    warm = kt.load(gpt2, temperature=0.3).options
    assert (warm["temperature"], warm["top_k"] != 1) == (0.3, True)
    assert not warnings_in(caplog)


def test_what_sampling_does_not_know_is_named(gpt2, caplog):
    change_json(gpt2 / "generation_config.json", min_length=2, num_beams=4, max_length=9)
    kt.load(gpt2)
    assert "generation_config.json: the search here does not support" in caplog.text
    for field in ("min_length=2", "num_beams=4", "max_length=9"):
        assert field in caplog.text


def test_repetition_penalty_and_stop_strings_are_read_and_written(gpt2, tmp_path):
    fields = {"repetition_penalty": 1.2, "stop_strings": ["a", "\n"]}
    change_json(gpt2 / "generation_config.json", **fields)
    generate = kt.load(gpt2)
    assert (generate.repetition_penalty, generate.stop) == (1.2, ("a", "\n"))
    kt.save(generate, tmp_path / "again", format="huggingface")
    written = json.loads((tmp_path / "again/generation_config.json").read_text())
    assert {name: written[name] for name in fields} == fields
    change_json(gpt2 / "generation_config.json", stop_strings=[3])
    with pytest.raises(ValueError, match=r"generation_config.json: stop_strings=\[3\]"):
        kt.load(gpt2)


def test_several_end_tokens_and_a_wrong_one(gpt2):
    end = kt.load(gpt2).tokenizer.end_token_id
    change_json(gpt2 / "generation_config.json", eos_token_id=[end, end - 1])
    assert kt.load(gpt2).also_end_token_ids == (end - 1,)
    change_json(gpt2 / "generation_config.json", eos_token_id=end - 1)
    with pytest.raises(ValueError, match=r"generation_config.json: eos_token_id=.* belongs to ano"):
        kt.load(gpt2)
    change_json(gpt2 / "generation_config.json", eos_token_id=[end])
    change_json(gpt2 / "config.json", eos_token_id=50256)  # the default: no token of this one's
    kt.load(gpt2)


@pytest.mark.parametrize(
    ("field", "value"),
    [("pruned_heads", {"0": [1]}), ("quantization_config", {"quant_method": "bitsandbytes"})],
)
def test_matrices_of_another_kind_are_refused_by_name(field, value, tmp_path):
    weights_folders.write("bert", "classification", tmp_path / "bert", **{field: value})
    with pytest.raises(ValueError, match=f"config.json: {field}=.* save the model without it"):
        kt.load(tmp_path / "bert")
    change_json(tmp_path / "bert/config.json", **{field: {}})
    kt.load(tmp_path / "bert")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dense_act_fn": "relu"}, "dense_act_fn='relu', but feed_forward_proj means 'gelu_appr"),
        ({"is_gated_act": False}, "is_gated_act=False, but feed_forward_proj means True"),
        ({"dense_act_fn": "gelu_new", "is_gated_act": True}, None),
    ],
)
def test_a_t5_that_contradicts_itself_is_refused(fields, message, tmp_path):
    sizes = {"vocab_size": 9, "num_layers": 1, "num_heads": 2, "d_model": 8, "d_ff": 8, "d_kv": 4}
    config = {"model_type": "t5", **sizes, "feed_forward_proj": "gated-gelu", **fields}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if message is None:
        assert kt.convert.t5.FAMILY.read(tmp_path)["activation"] == "gelu_approximate"
        return
    with pytest.raises(ValueError, match=message):
        kt.convert.t5.FAMILY.read(tmp_path)


def test_sinusoids_of_a_distilbert_are_in_its_file(tmp_path):
    folder = tmp_path / "distilbert"
    written = weights_folders.write("distilbert", "embedding", folder, sinusoidal_pos_embds=True)
    found = kt.load(folder).model.get_layer("position_embedding").embeddings
    wanted = written.model.get_layer("position_embedding").embeddings
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.one_case
@pytest.mark.parametrize(
    "task", ["classification", "tagging", "question_answering", "fill_mask", "regression"]
)
def test_a_head_is_used_where_no_class_is_named(task, tmp_path, caplog):
    """As in folders of transformers 2 and 3, whose config.json has no `architectures`."""
    written = weights_folders.write("bert", task, tmp_path / "bert")
    change_json(tmp_path / "bert/config.json", architectures=None)
    assert kt.load(tmp_path / "bert").task == "embedding"
    assert "embedding does not use" in caplog.text
    caplog.clear()
    options = weights_folders.QUESTION_OPTIONS if task == "question_answering" else {}
    loaded = kt.load(tmp_path / "bert", pipeline=task, **options)
    assert "are new" not in caplog.text
    for found, wanted in zip(loaded.model.weights, written.model.weights, strict=True):
        np.testing.assert_array_equal(found, wanted, err_msg=wanted.path)
    if task in ("classification", "tagging"):
        assert list(loaded.labels) == LABELS
