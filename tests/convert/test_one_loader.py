"""Recipes' `--weights` are whatever `kt.load` takes: the same encoder comes through both."""

import tarfile
from pathlib import Path

import numpy as np
import pytest
import tiny

import keras_transformers as kt

GOLDEN = Path(__file__).parents[1] / "golden/left_behind"
WITH_ENCODERS = (
    *("classification", "regression", "tagging", "question_answering", "fill_mask"),
    *("multiple_choice", "next_sentence", "embedding"),
)


def same_weights(model, wanted, *, but=()):
    """Fails unless all of a model's weights are another one's; returns how many were compared."""
    values = {weight.path: weight.numpy() for weight in wanted.weights}
    compared = [weight for weight in model.weights if not weight.path.startswith(but)]
    for weight in compared:
        np.testing.assert_array_equal(weight, values[weight.path], err_msg=weight.path)
    return len(compared)


@pytest.mark.one_case
@pytest.mark.parametrize("task", WITH_ENCODERS)
def test_a_saved_pipeline_is_where_another_task_begins(task, tmp_path):
    saved = tiny.pipeline(task)
    kt.save(saved, tmp_path / "saved")
    encoder, tokenizer = kt.convert.load_encoder(weights=tmp_path / "saved", dropout=0.3)
    assert tokenizer.vocabulary == saved.tokenizer.vocabulary
    assert same_weights(encoder, saved.model, but=("pooler",)) > 10
    rates = {layer.rate for layer in encoder._flatten_layers() if hasattr(layer, "rate")}
    assert rates == {0.3}
    if task != "tagging":
        new = kt.load(tmp_path / "saved", pipeline="tagging", labels=["A", "B", "C"])
        assert same_weights(new.model, encoder, but=("logits", "pooler")) > 10


def test_a_saved_generator_and_a_saved_image_classifier(tmp_path):
    generator = tiny.pipeline("generation")
    kt.save(generator, tmp_path / "generator")
    model, _ = kt.convert.load_language_model(weights=tmp_path / "generator")
    same_weights(model, generator.model)
    with pytest.raises(ValueError, match="generation, not .*embedding"):
        kt.convert.load_encoder(weights=tmp_path / "generator")

    classifier = tiny.pipeline("image_classification")
    kt.save(classifier, tmp_path / "images")
    *size, channels = classifier.model.input["images"].shape[1:]
    shape = {"image_size": tuple(size), "num_channels": channels, "dropout": 0.0}
    encoder = kt.convert.load_image_encoder(tmp_path / "images", **shape)
    same_weights(encoder, classifier.model)
    with pytest.raises(ValueError, match=f"num_channels={channels}, not {channels + 1}"):
        kt.convert.load_image_encoder(tmp_path / "images", **shape | {"num_channels": channels + 1})


@pytest.mark.parametrize(
    ("archive", "path"),
    [
        ("model_garden", "encoder"),
        ("model_garden", "hub"),
        ("kb", "kb/kb_lambda_model/model.h5"),
        ("hf4_tf", "hf4_tf/bert_sharded"),
        ("hf4_pt", "hf4_pt/bert_bf16"),
    ],
)
def test_files_of_other_libraries(archive, path, tmp_path):
    with tarfile.open(GOLDEN / f"{archive}.tar.xz") as opened:
        opened.extractall(tmp_path, filter="data")
    encoder, tokenizer = kt.convert.load_encoder(weights=tmp_path / path)
    embedder = kt.load(tmp_path / path, pipeline="embedding")
    assert tokenizer.vocabulary == embedder.tokenizer.vocabulary
    assert same_weights(embedder.model, encoder) > 10
