"""Loads and saves ELECTRA's weights, against transformers: discriminator, generator and tasks."""

import json

import family_checks
import numpy as np
import pytest
from checks import in_float64, near, same_but_for_rounding
from family_checks import ALL_TASKS, FamilyFiles
from safetensors.numpy import save_file

import keras_transformers as kt
from keras_transformers.families.electra.files import FAMILY as ELECTRA
from keras_transformers.families.electra.model import electra, with_pooler

pytestmark = pytest.mark.kernels

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
    "model_type": "electra",
    "vocab_size": 50,
    "embedding_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "hidden_act": "gelu",
}
TASKS = (*ALL_TASKS, "replaced_token_detector")


def encoder(task):
    model = electra(**SHAPE)
    return with_pooler(model) if task in ("classifier", "regressor", "multiple_choice") else model


FAMILY = FamilyFiles("electra", encoder, kt.convert.load_weights, ELECTRA.save, {})


@pytest.mark.parametrize("task", TASKS)
def test_outputs_equal_transformers(task, tmp_path):
    family_checks.outputs_equal_transformers(FAMILY, task, tmp_path)


@pytest.mark.parametrize("task", TASKS)
def test_saving_gives_the_same_tensors(task, tmp_path):
    family_checks.saving_gives_the_same_tensors(FAMILY, task, tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize("task", TASKS)
def test_against_transformers_live(task, tmp_path):
    family_checks.the_frozen_outputs_are_transformers_own(FAMILY, task)
    family_checks.transformers_reads_what_we_write(FAMILY, task, tmp_path)


@pytest.mark.reference
def test_the_counts_are_transformers_own():
    """With both heads too, whose counts the paper gives."""
    import torch
    import transformers

    found = kt.models.registry.all_entries()
    heads = {"discriminator": {}, "generator": {}}
    for name in kt.list_models("electra_*"):
        symbols = found[name].symbols
        shape = found[name].count.keywords
        config = transformers.ElectraConfig(
            vocab_size=symbols["V"],
            embedding_size=symbols["E"],
            hidden_size=symbols["H"],
            intermediate_size=symbols["I"],
            num_hidden_layers=shape["num_layers"],
        )
        with torch.device("meta"):
            model = transformers.ElectraModel(config)
            heads["discriminator"][name] = transformers.ElectraForPreTraining(config)
        assert sum(each.numel() for each in model.parameters()) == found[name].num_parameters
        if note := found[name].paper_note:
            count = sum(each.numel() for each in heads["discriminator"][name].parameters())
            assert f"{count:,}" in note


def test_the_labels_of_a_head_are_written(tmp_path):
    save = ELECTRA.save_config
    family_checks.the_labels_of_a_head_are_written(with_pooler(electra(**SHAPE)), save, tmp_path)


@pytest.mark.parametrize("change", [{}, {"embedding_size": 16}, {"hidden_act": "relu"}])
def test_a_config_comes_back(change, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    found = ELECTRA.read(tmp_path)
    assert change or SHAPE.items() <= found.items()
    ELECTRA.save_config(electra(**found), tmp_path / "copy.json")
    assert ELECTRA.read(tmp_path / "copy.json") == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"summary_activation": "tanh"}, "summary_activation='tanh'; only 'gelu' is supported"),
        ({"embedding_size": 0}, "embedding_size=0; expected an integer"),
        ({"hidden_act": "elu"}, "hidden_act='elu'; expected one of gelu"),
        ({"hidden_size": None}, "has no field 'hidden_size'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    config = {key: value for key, value in (CONFIG | change).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        ELECTRA.read(tmp_path)


def write_folder(folder, task, **fields):
    """A folder as transformers writes it, with the weights of a task; returns it."""
    kind = FAMILY.maker.tasks[task][0]
    (folder / "config.json").write_text(json.dumps(CONFIG | {"architectures": [kind]} | fields))
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(45))]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    save_file(FAMILY.tensors(task), folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("task", ["encoder", "masked_lm", "replaced_token_detector"])
def test_a_folder_is_an_encoder_with_a_new_pooler(task, tmp_path):
    loaded, tokenizer = kt.convert.load_encoder(weights=write_folder(tmp_path, task))
    assert set(loaded.output) == {"sequence_output", "pooled_output"}
    assert set(loaded.input) == set(tokenizer(["w1"], max_sequence_length=8))
    inputs = FAMILY.maker.inputs("encoder")
    found = np.asarray(loaded(inputs)["sequence_output"])[inputs["padding_mask"]]
    wanted = FAMILY.golden["encoder/sequence_output"][inputs["padding_mask"]]
    near(found, wanted)


PIPELINES = {
    "encoder": "Embedder",
    "masked_lm": "MaskFiller",
    "replaced_token_detector": "Tagger",
    "classifier": "TextClassifier",
    "regressor": "TextRegressor",
    "tagger": "Tagger",
    "span_extractor": "QuestionAnswerer",
}


@pytest.mark.one_case
@pytest.mark.parametrize("task", PIPELINES)
def test_a_folder_becomes_the_pipeline_of_its_class(task, tmp_path):
    labels = {"classifier": 3, "regressor": 1, "tagger": 5}.get(task)
    folder = write_folder(tmp_path, task, **({"num_labels": labels} if labels else {}))
    options = {"doc_stride": 4, "max_question_length": 6} if task == "span_extractor" else {}
    loaded = kt.load(folder, **options)
    assert type(loaded).__name__ == PIPELINES[task]
    inputs = FAMILY.maker.inputs(task)
    if task == "masked_lm":
        inputs["mask_positions"] = np.tile(np.arange(9, dtype="int32"), (3, 1))
    outputs, exact = loaded.model(inputs), in_float64(loaded.model)(inputs)
    for key in set(FAMILY.maker.tasks[task][2]) & set(outputs):
        found, wanted = np.asarray(outputs[key]), FAMILY.golden[f"{task}/{key}"]
        is_real = inputs["padding_mask"] if found.shape[:2] == (3, 9) else slice(None)
        arrays = (wanted.reshape(found.shape), found, exact[key])
        same_but_for_rounding(*(np.asarray(array)[is_real] for array in arrays))


def test_a_discriminator_says_which_words_are_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    judge = kt.load(write_folder(tmp_path / "folder", "replaced_token_detector"))
    inputs = FAMILY.maker.inputs("encoder")
    found = np.asarray(judge.decode(inputs)["probabilities"])[inputs["padding_mask"]]
    logits = FAMILY.golden["replaced_token_detector/replaced_logits"][inputs["padding_mask"]]
    np.testing.assert_allclose(found[:, 1], 1 / (1 + np.exp(-logits)), atol=1e-5)
    judge.save(tmp_path / "saved")
    assert kt.load(tmp_path / "saved")("w1 w2 w7") == judge("w1 w2 w7")
    for bias, label in ((99.0, "replaced"), (-99.0, "original")):
        judge.model.get_layer("replaced_score").bias.assign([bias])
        assert judge("w1 w2 w7").labels == [label] * 3


def test_what_does_not_fit_is_listed(tmp_path):
    tensors = FAMILY.tensors("encoder")
    project = "embeddings_project.weight"
    del tensors["embeddings.LayerNorm.bias"]
    save_file(
        tensors | {project: tensors[project][:, :1], "encoder.extra": np.zeros(3)},
        tmp_path / "model.safetensors",
    )
    model = electra(**SHAPE)
    before = model.get_weights()
    with pytest.raises(ValueError, match="does not fit the model") as error:
        kt.convert.load_weights(model, tmp_path)
    for part in (
        "missing from the file: electra.embeddings.LayerNorm.bias",
        r"electra.embeddings_project.weight is (16, 1)",
        "not used (name them in `ignore` to leave them out): electra.encoder.extra",
    ):
        assert part in str(error.value)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_tied_copy_that_differs_is_refused(tmp_path):
    tensors = FAMILY.tensors("masked_lm")
    tensors["generator_lm_head.weight"] = tensors["generator_lm_head.weight"] + 1
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="differs from electra.embeddings.word_embeddings"):
        kt.convert.load_weights(kt.heads.masked_lm(electra(**SHAPE)), tmp_path)


def test_a_head_that_electra_lacks_is_not_written(tmp_path):
    model = kt.heads.pretrainer(with_pooler(electra(**SHAPE)))
    with pytest.raises(ValueError, match="'next_sentence_logits' has no counterpart in .* ELECTRA"):
        ELECTRA.save(model, tmp_path / "model.safetensors")
