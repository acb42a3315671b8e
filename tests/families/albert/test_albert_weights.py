"""Loads and saves ALBERT's weights, against transformers."""

import json

import family_checks
import pytest
from family_checks import ALL_TASKS, FamilyFiles

import keras_transformers as kt
from keras_transformers.families.albert.files import FAMILY as ALBERT
from keras_transformers.families.albert.model import albert

SHAPE = {
    "vocabulary_size": 50,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "embedding_dim": 8,
    "max_sequence_length": 20,
}
CONFIG = {
    "model_type": "albert",
    "vocab_size": 50,
    "embedding_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "hidden_act": "gelu_new",
}
FAMILY = FamilyFiles(
    "albert",
    lambda task: albert(**SHAPE),
    kt.convert.load_weights,
    ALBERT.save,
    {"masked_lm": {"activation": "gelu_approximate"}},
    without_pooler=("masked_lm", "tagger", "span_extractor"),
)


@pytest.mark.parametrize("task", ALL_TASKS)
def test_outputs_equal_transformers(task, tmp_path):
    family_checks.outputs_equal_transformers(FAMILY, task, tmp_path)


@pytest.mark.parametrize("task", ALL_TASKS)
def test_saving_gives_the_same_tensors(task, tmp_path):
    family_checks.saving_gives_the_same_tensors(FAMILY, task, tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize("task", ALL_TASKS)
def test_against_transformers_live(task, tmp_path):
    family_checks.the_frozen_outputs_are_transformers_own(FAMILY, task)
    family_checks.transformers_reads_what_we_write(FAMILY, task, tmp_path)


@pytest.mark.reference
def test_the_counts_are_transformers_own():
    import torch
    import transformers

    found = kt.models.registry.all_entries()
    for name in kt.list_models("albert_*"):
        sizes = found[name].symbols
        config = transformers.AlbertConfig(
            vocab_size=sizes["V"],
            embedding_size=sizes["E"],
            hidden_size=sizes["H"],
            intermediate_size=4 * sizes["H"],
        )
        with torch.device("meta"):
            model = transformers.AlbertModel(config)
        assert sum(each.numel() for each in model.parameters()) == found[name].num_parameters


def test_the_labels_of_a_head_are_written(tmp_path):
    family_checks.the_labels_of_a_head_are_written(albert(**SHAPE), ALBERT.save_config, tmp_path)


@pytest.mark.parametrize("change", [{}, {"embedding_size": 16}, {"hidden_act": "relu"}])
def test_a_config_comes_back(change, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    found = ALBERT.read(tmp_path)
    assert change or SHAPE.items() <= found.items()
    ALBERT.save_config(albert(**found), tmp_path / "copy.json")
    assert ALBERT.read(tmp_path / "copy.json") == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_groups": 2}, "num_hidden_groups=2; only 1 is supported"),
        ({"inner_group_num": 2}, "inner_group_num=2; only 1 is supported"),
        ({"embedding_size": 0}, "embedding_size=0; expected an integer"),
        ({"hidden_size": None}, "has no field 'hidden_size'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    config = {key: value for key, value in (CONFIG | change).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        ALBERT.read(tmp_path)
