"""ELECTRA's pretraining recipe, from text to a discriminator that is fine-tuned."""

import functools

import keras
import numpy as np
import pytest
from checks import says
from recipe_runs import error_of, run, save_sentences, write_documents

import keras_transformers as kt
from keras_transformers.convert.containers.arrays import open_arrays
from keras_transformers.families.electra.model import electra

error_of = functools.partial(error_of, "pretrain_electra")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrain_electra")
    write_documents(folder)
    return folder


def options(folder, **changes):
    return {
        "data": folder / "text.txt",
        "dev_fraction": 0.2,
        "vocabulary_size": 120,
        "dupe_factor": 2,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 32,
        "embedding_dim": 16,
        "generator_size": 0.5,
        "epochs": 2,
        "steps_per_epoch": 20,
        "length": 16,
        "batch_size": 8,
        "learning_rate": 5e-3,
        "runs_dir": folder / "runs",
    } | changes


@pytest.fixture(scope="module")
def outcome(folder):
    return run("pretrain_electra", **options(folder, export=folder / "saved/1"))


@pytest.mark.slow
def test_a_run_learns_to_find_replaced_tokens(outcome):
    first, last = outcome.metrics["epochs"]
    metrics = outcome.metrics
    assert metrics["steps"] == 40
    assert last["val_mask_logits_loss"] < first["val_mask_logits_loss"]
    assert metrics["dev_replaced_accuracy"] > metrics["dev_replaced_accuracy, none"] > 0.8
    assert 0 < metrics["dev_replaced_recall"] <= 1


@pytest.mark.slow
def test_the_weights_are_a_discriminator_and_a_generator(outcome):
    judge, fill = kt.load(outcome.folder / "weights"), kt.load(outcome.folder / "generator")
    assert judge("the cat is near the dog .").tokens[:2] == ["the", "cat"]
    assert len(fill("the cat is [MASK] the dog .").tokens[0]) == 5
    shape = kt.families.electra.FAMILY.read(outcome.folder / "weights")
    assert (shape["hidden_dim"], shape["embedding_dim"]) == (32, 16)
    model = kt.heads.replaced_token_detector(electra(**shape))
    assert model.count_params() == outcome.metrics["parameters, discriminator"]
    generator = kt.families.electra.FAMILY.read(outcome.folder / "generator")
    assert (generator["hidden_dim"], generator["embedding_dim"]) == (16, 16)


@pytest.mark.slow
def test_the_export_says_which_words_are_replaced(outcome, folder):
    (answer,) = kt.saved_model.predict(folder / "saved/1", {"text": ["the cat is near the dog ."]})
    assert set(answer["labels"]) <= {"original", "replaced"}


@pytest.mark.slow
def test_the_discriminator_is_fine_tuned(outcome, tmp_path):
    save_sentences(tmp_path)
    tuned = run(
        "classification",
        train_file=tmp_path / "train.tsv",
        dev_file=tmp_path / "dev.tsv",
        weights=outcome.folder / "weights",
        max_sequence_length=16,
        epochs=1,
        runs_dir=tmp_path,
    )
    assert 0 <= tuned.metrics["dev_accuracy"] <= 1


@pytest.mark.slow
def test_records_of_another_run_in_parts_and_mixed_precision(outcome, folder, tmp_path):
    records = outcome.folder / "records"
    changes = {"data": None, "records": records, "accumulate": 2, "precision": "mixed_bfloat16"}
    more = run("pretrain_electra", **options(folder, runs_dir=tmp_path, **changes))
    keras.config.set_dtype_policy("float32")
    assert more.metrics["dev_mask_perplexity"] < 120


@pytest.mark.slow
def test_a_run_starts_from_a_bert(outcome, folder, tmp_path):
    records = outcome.folder / "records"
    shape = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32}
    common = {"records": records, "batch_size": 8, "runs_dir": tmp_path}
    bert = run(
        "pretrain_bert",
        **common | shape,
        phase_1_length=16,
        phase_2_epochs=0,
        epochs=1,
        steps_per_epoch=2,
    )
    started = run(
        "pretrain_electra",
        **common,
        weights=bert.folder / "weights",
        length=16,
        epochs=1,
        steps_per_epoch=1,
        learning_rate=1e-9,
    )
    theirs = open_arrays(bert.folder / "weights" / "model.safetensors")
    name = "encoder.layer.0.attention.self.query.weight"
    for role in ("weights", "generator"):
        ours = open_arrays(started.folder / role / "model.safetensors")
        np.testing.assert_allclose(ours[f"electra.{name}"], theirs[f"bert.{name}"], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": "bert"}, "--weights ... its own vocabulary"),
        ({"data": None}, "--data FILE ... --records FOLDER"),
        ({"model": "bert_tiny"}, "--model bert_tiny: take one of electra_small"),
        ({"generator_size": 0}, "--generator-size 0 ... above 0"),
        ({"discriminator_weight": -1}, "--discriminator-weight -1 ... 0 or more"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(folder, tmp_path, capsys, changes, message):
    assert says(error_of(capsys, **options(folder, runs_dir=tmp_path) | changes), message)
