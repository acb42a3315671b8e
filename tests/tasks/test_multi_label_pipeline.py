"""Multi-label classification, a task that lives in its own files: loaded, saved, exported."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt

TEXTS = ["a good film", "very bad", "", "good good good"]


@pytest.fixture(scope="module")
def pipeline():
    return tiny.pipeline("multi_label_classification")


def logits(pipeline, texts):
    return pipeline.run_model(pipeline.encode(texts))["logits"].numpy()


def test_labels_are_those_above_their_thresholds_the_most_likely_first(pipeline):
    probabilities = 1 / (1 + np.exp(-logits(pipeline, TEXTS).astype("float64")))
    counts = set()
    for answer, row in zip(pipeline(TEXTS), probabilities, strict=True):
        np.testing.assert_allclose(answer.probabilities, row, atol=1e-6)
        chosen = [i for i in np.argsort(-row) if row[i] > pipeline.thresholds[i]]
        assert list(answer.labels) == [pipeline.labels[i] for i in chosen]
        counts.add(len(chosen))
    assert len(counts) > 1
    assert pipeline([]) == []


@pytest.mark.parametrize("thresholds", [0.0, 1.0])
def test_all_labels_and_none(pipeline, thresholds):
    every = kt.pipelines.MultiLabelClassifier(
        pipeline.model, pipeline.tokenizer, pipeline.labels, thresholds=thresholds
    )
    assert {len(answer.labels) for answer in every(TEXTS)} == {0 if thresholds else 3}


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ([0.5, 0.5], "2 numbers for 3 labels: pass one"),
        (1.5, "1.5 for 'joy'.* from 0 to 1"),
        ([0.5, float("nan"), 0.5], "nan for 'anger'"),
    ],
)
def test_thresholds_that_do_not_fit(pipeline, thresholds, message):
    with pytest.raises(ValueError, match=message):
        kt.pipelines.MultiLabelClassifier(
            pipeline.model, pipeline.tokenizer, pipeline.labels, thresholds=thresholds
        )


def test_saved_and_restored(pipeline, tmp_path):
    kt.save(pipeline, tmp_path / "saved")
    restored = kt.load(tmp_path / "saved")
    assert (restored.task, restored.thresholds) == (
        "multi_label_classification",
        pipeline.thresholds,
    )
    assert restored(TEXTS) == pipeline(TEXTS)


def test_hugging_faces_files_there_and_back(pipeline, tmp_path):
    folder = kt.save(pipeline, tmp_path / "hf", format="huggingface")
    config = json.loads((folder / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert config["architectures"] == ["BertForSequenceClassification"]
    back = kt.load(folder)
    assert back.task == "multi_label_classification"
    np.testing.assert_allclose(logits(back, TEXTS), logits(pipeline, TEXTS), atol=1e-6)
    new = kt.load(folder, pipeline="multi_label_classification", labels=["x", "y"])
    assert (new.labels, new.thresholds) == (("x", "y"), (0.5, 0.5))


@pytest.mark.slow
def test_the_export_answers_alike_in_python_and_for_classify(pipeline, tmp_path):
    path = kt.export(pipeline, tmp_path / "export")
    rows = zip(kt.saved_model.Predictor(path)({"text": TEXTS}), pipeline(TEXTS), strict=True)
    for row, answer in rows:
        assert row["labels"] == list(answer.labels)
        np.testing.assert_allclose(row["probabilities"], answer.probabilities, atol=1e-6)
    signatures = tf.saved_model.load(str(path)).signatures
    empty = signatures["serving_default"](text=tf.constant([], tf.string))
    assert empty["labels"].shape == (0, 0)
    example = tf.train.Example()
    example.features.feature["text"].bytes_list.value.append(TEXTS[0].encode())
    found = signatures["classify"](inputs=tf.constant([example.SerializeToString()]))
    assert [label.decode() for label in found["classes"].numpy()[0]] == list(pipeline.labels)
    np.testing.assert_allclose(found["scores"][0], pipeline(TEXTS[0]).probabilities, atol=1e-6)


@pytest.mark.reference
def test_transformers_computes_the_same(pipeline, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = kt.save(pipeline, tmp_path / "hf", format="huggingface")
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    theirs = model(**tokenizer(TEXTS, padding=True, return_tensors="pt"))
    assert model.config.problem_type == "multi_label_classification"
    np.testing.assert_allclose(theirs.logits.detach().numpy(), logits(pipeline, TEXTS), atol=1e-5)
