"""The heads of tasks against Hugging Face's, with the random BERT of tests/golden/make_bert.py."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from checks import near
from safetensors.numpy import load_file, save_file

import keras_transformers as kt
from keras_transformers.families.bert.files import FAMILY as BERT
from keras_transformers.families.bert.model import bert

pytestmark = pytest.mark.kernels

GOLDEN = Path(__file__).parents[1] / "golden"
TASKS = ("classifier", "regressor", "tagger", "span_extractor", "multiple_choice")
WITHOUT_POOLER = ("tagger", "span_extractor")


@pytest.fixture(scope="module")
def maker():
    return runpy.run_path(str(GOLDEN / "make_bert_tasks.py"))


@pytest.fixture(scope="module")
def golden():
    return np.load(GOLDEN / "bert_tasks.npz")


def our_model(task):
    config = runpy.run_path(str(GOLDEN / "make_bert.py"))["CONFIG"]
    encoder = bert(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        max_sequence_length=config["max_position_embeddings"],
    )
    size = {"classifier": {"num_classes": 3}, "tagger": {"num_labels": 5}}.get(task, {})
    return getattr(kt.heads, task)(encoder, **size)


def their_tensors(golden, task):
    """The tensors that transformers saves: encoder and head."""
    tensors = {
        name: tensor
        for name, tensor in load_file(GOLDEN / "bert_random.safetensors").items()
        if name.startswith("bert.")
        and not (task in WITHOUT_POOLER and name.startswith("bert.pooler."))
    }
    prefix = f"{task}/head/"
    head = {k.removeprefix(prefix): golden[k] for k in golden.files if k.startswith(prefix)}
    assert len(head) == 2
    return tensors | head


def loaded(golden, task, folder):
    save_file(their_tensors(golden, task), folder / "model.safetensors")
    model = our_model(task)
    kt.convert.load_weights(model, folder)  # uses exactly the file's tensors
    return model


@pytest.mark.parametrize("task", TASKS)
def test_outputs_equal_transformers(maker, golden, task, tmp_path):
    inputs = maker["inputs"](task)
    outputs = loaded(golden, task, tmp_path)(inputs)
    expected = {k for k in golden.files if k.startswith(f"{task}/") and "/head/" not in k}
    assert {f"{task}/{key}" for key in outputs} == expected
    for key, value in outputs.items():
        wanted = golden[f"{task}/{key}"]
        assert value.shape == wanted.shape
        assert value.dtype == np.float32
        if task in WITHOUT_POOLER:  # outputs at padding are meaningless
            value, wanted = (array[inputs["padding_mask"]] for array in (value, wanted))
        near(value, wanted)
        assert np.ptp(wanted) > 0.5, key  # the outputs differ


@pytest.mark.parametrize("task", TASKS)
def test_saving_gives_the_same_file(golden, task, tmp_path):
    model = loaded(golden, task, tmp_path)
    BERT.save(model, tmp_path / "copy.safetensors")
    expected, found = their_tensors(golden, task), load_file(tmp_path / "copy.safetensors")
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def test_a_head_that_does_not_fit_is_refused(golden, tmp_path):
    save_file(their_tensors(golden, "tagger"), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"missing .*: bert.pooler.dense.bias"):
        kt.convert.load_weights(our_model("classifier"), tmp_path)
    with pytest.raises(ValueError, match=r"missing from the file: qa_outputs.*used.*classifier"):
        kt.convert.load_weights(our_model("span_extractor"), tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize("task", TASKS)
def test_the_frozen_outputs_are_transformers_own(maker, golden, task):
    recomputed = maker["outputs"](task)
    assert {f"{task}/{k}" for k in recomputed} == {k for k in golden.files if k.startswith(task)}
    for key, value in recomputed.items():
        np.testing.assert_allclose(golden[f"{task}/{key}"], value, atol=1e-5, err_msg=key)


@pytest.mark.reference
@pytest.mark.parametrize("task", TASKS)
def test_transformers_reads_what_save_bert_writes(maker, golden, task, tmp_path):
    import torch
    import transformers

    original = maker["model"](task)
    BERT.save(loaded(golden, task, tmp_path), tmp_path / "model.safetensors")
    original.config.save_pretrained(tmp_path)
    kind = getattr(transformers, maker["TASKS"][task][0])
    theirs, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, original.state_dict()[name]), name
