"""ModernBERT's weights and configurations against transformers."""

import json

import family_checks
import keras
import numpy as np
import pytest
from family_checks import ALL_TASKS, FamilyFiles

import keras_transformers as kt
from keras_transformers.families.modern_bert.files import FAMILY as MODERN_BERT

CONFIG = {
    "model_type": "modernbert",
    "vocab_size": 50,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "local_attention": 4,
}


def read(folder, **changes):
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return MODERN_BERT.read(folder)


def encoder(task):
    model = MODERN_BERT.build(
        vocabulary_size=50,
        num_layers=4,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        max_sequence_length=32,
        local_window=2,
    )
    if task != "encoder":
        return model
    return keras.Model(model.input, {"sequence_output": model.output["sequence_output"]})


FAMILY = FamilyFiles("modern_bert", encoder, kt.convert.load_weights, MODERN_BERT.save, {})


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


# Name -> the fields that differ.
FORMS = {
    "plain": {},
    "biases": {"attention_bias": True, "mlp_bias": True, "norm_bias": True},
    "windows of 20 in two of three layers": {"local_attention": 20},
    "every second layer global": {"global_attn_every_n_layers": 2, "local_attention": 128},
    "other bases": {"global_rope_theta": 5e4, "local_rope_theta": 500.0},
    "bases by layer": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 7e4},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        }
    },
}


@pytest.mark.reference
@pytest.mark.parametrize("length", [8, 300, 2048])
@pytest.mark.parametrize("name", FORMS)
def test_vectors_are_those_of_transformers(name, length, tmp_path):
    torch = pytest.importorskip("torch", reason="needs the extra reference")
    transformers = pytest.importorskip("transformers", reason="needs the extra reference")
    torch.manual_seed(0)
    fields = {**CONFIG, "max_position_embeddings": 2048, "pad_token_id": 0, **FORMS[name]}
    fields.pop("model_type")
    config = transformers.ModernBertConfig(**fields, attn_implementation="eager")
    reference = transformers.ModernBertModel(config).eval()
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    reference.save_pretrained(tmp_path)
    if "rope_parameters" not in FORMS[name]:  # the old spelling
        text = json.dumps({"model_type": "modernbert", **fields})
        (tmp_path / "config.json").write_text(text)
    built = MODERN_BERT.build(**MODERN_BERT.read(tmp_path))
    model = keras.Model(built.input, {"sequence_output": built.output["sequence_output"]})
    MODERN_BERT.fill(model, tmp_path)
    ids = np.random.default_rng(0).integers(1, 50, (3, length)).astype("int32")
    mask = np.arange(length) < np.array([[length], [length // 2], [3]])
    with torch.no_grad():
        expected = reference(
            torch.tensor(ids, dtype=torch.long), attention_mask=torch.tensor(mask)
        ).last_hidden_state.numpy()
    found = np.asarray(model({"token_ids": ids, "padding_mask": mask})["sequence_output"])
    scale = np.abs(expected[mask]).max()
    np.testing.assert_allclose(found[mask] / scale, expected[mask] / scale, atol=1e-5)


@pytest.mark.reference
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_classifiers_logits_are_those_of_transformers(pooling, tmp_path):
    torch = pytest.importorskip("torch", reason="needs the extra reference")
    transformers = pytest.importorskip("transformers", reason="needs the extra reference")
    torch.manual_seed(0)
    fields = {**CONFIG, "classifier_pooling": pooling, "classifier_bias": True, "pad_token_id": 0}
    fields.pop("model_type")
    config = transformers.ModernBertConfig(**fields, num_labels=3, attn_implementation="eager")
    reference = transformers.ModernBertForSequenceClassification(config).eval()
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    reference.save_pretrained(tmp_path)
    model = kt.heads.classifier(MODERN_BERT.build(**MODERN_BERT.read(tmp_path)), 3)
    MODERN_BERT.fill(model, tmp_path)
    ids = np.random.default_rng(0).integers(1, 50, (3, 12)).astype("int32")
    mask = np.arange(12) < np.array([[12], [7], [1]])
    with torch.no_grad():
        expected = reference(
            torch.tensor(ids, dtype=torch.long), attention_mask=torch.tensor(mask)
        ).logits.numpy()
    found = model({"token_ids": ids, "padding_mask": mask})["logits"]
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_a_config_comes_back_in_both_spellings(tmp_path):
    old = read(tmp_path, global_rope_theta=5e4, local_rope_theta=500.0, norm_bias=True)
    assert (old["local_window"], old["global_every"]) == (2, 3)
    parameters = {
        "full_attention": {"rope_type": "default", "rope_theta": 5e4},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
    }
    assert read(tmp_path, rope_parameters=parameters, norm_bias=True) == old
    other = {"head_pooling": "mean", "head_bias": True, "head_activation": "relu"}
    model = kt.heads.classifier(MODERN_BERT.build(**old | other), 3)
    MODERN_BERT.save_config(model, tmp_path / "config.json")
    assert MODERN_BERT.read(tmp_path) == old | other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classifier_pooling": "max"}, "classifier_pooling='max'; expected cls or mean"),
        ({"classifier_activation": "elu"}, "classifier_activation='elu'; expected one of"),
        ({"local_attention": 1}, "local_attention=1; expected an integer from 2"),
        ({"decoder_bias": False}, "decoder_bias=False; only True is supported"),
        ({"layer_types": ["sliding_attention"] * 4}, "layer_types=.*full_attention in the first"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers=0"),
        ({"attention_bias": 1}, "attention_bias=1; expected true or false"),
        ({"num_attention_heads": 16}, "heads are 1 wide; .*must be even"),
        ({"num_attention_heads": 3}, "hidden_size=16 is not a multiple of num_attention_heads=3"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}},
            "rope_parameters.full_attention has the type 'linear'",
        ),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, **change)
