"""Exports with explanations: the same shares as in Python, served like any signature."""

import numpy as np
import pytest
import tiny
from checks import says

import keras_transformers as kt
from keras_transformers.inspection import Explanation
from keras_transformers.saved_model import Predictor
from keras_transformers.saved_model.description import graph_signatures
from keras_transformers.serving import Client, Limits, ModelSettings, Server

TEXTS = ["a good film!", "very bad", "", "long " * 40, "Straße 東京"]


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """A classifier's export with explanations, checked."""
    base = tmp_path_factory.mktemp("explaining") / "toy"
    return kt.export(tiny.pipeline("classification"), base, explain=True)


def check_same(rows, whys):
    for row, why in zip(rows, whys, strict=True):
        found = Explanation.of(why.texts, row)
        assert found.tokens == why.tokens
        assert found.label == why.label
        np.testing.assert_allclose(found.shares, why.shares, atol=1e-5)
        assert found.score == pytest.approx(why.score, abs=1e-5)
        assert found.baseline_score == pytest.approx(why.baseline_score, abs=1e-5)
        for name in ("text_index", "starts", "ends"):
            np.testing.assert_array_equal(getattr(found, name), getattr(why, name))


def test_an_export_explains_as_python_does(export):
    pipeline = tiny.pipeline("classification")
    rows = Predictor(export, signature="explain")({"text": TEXTS}, batch_size=3)
    check_same(rows, kt.explain(pipeline, TEXTS))


def test_a_request_can_name_the_label(export):
    pipeline = tiny.pipeline("classification")
    predict = Predictor(export, signature="explain_label")
    for label in pipeline.labels:
        rows = predict({"text": TEXTS[:2], "label": [label, label]})
        check_same(rows, kt.explain(pipeline, TEXTS[:2], label=label))
    own = predict({"text": TEXTS[:1], "label": [""]})
    check_same(own, [kt.explain(pipeline, TEXTS[0])])
    with pytest.raises(ValueError) as error:
        predict({"text": ["a"], "label": ["joy"]})
    assert says(str(error.value), "negative, positive ... joy")


def test_explanations_are_on_request(export):
    assert {"explain", "explain_label"} <= set(graph_signatures(export))
    assert "explain" not in graph_signatures(tiny.exported("classification"))


@pytest.mark.slow
def test_the_local_server_and_the_client_serve_explanations(export):
    settings, limits = [ModelSettings("toy", export.parent)], Limits(timeout_s=300.0)
    with Server(settings, rest_port=0, grpc_port=None, limits=limits) as server:
        assert server.wait_until_loaded(120)
        with Client(f"http://127.0.0.1:{server.rest_port}", timeout_s=300) as client:
            rows = client.rows(TEXTS[:2], model="toy", signature_name="explain")
    check_same(rows, kt.explain(tiny.pipeline("classification"), TEXTS[:2]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", ["embedding", "question_answering", "regression", "reranking", "next_sentence"]
)
def test_exports_of_other_tasks_explain_as_python_does(task, tmp_path):
    pipeline = tiny.pipeline(task)
    path = kt.export(pipeline, tmp_path / "toy", explain=True)
    columns = dict.fromkeys(pipeline.explained_inputs, TEXTS)
    rows = Predictor(path, signature="explain")(columns)
    check_same(rows, kt.explain(pipeline, *columns.values()))


@pytest.mark.slow
def test_explanations_of_matrices_in_bfloat16(tmp_path):
    pipeline = tiny.pipeline("classification")
    path = kt.export(pipeline, tmp_path / "toy", explain=True, weights_dtype="bfloat16")
    rows = Predictor(path, signature="explain")({"text": TEXTS})
    for row, why in zip(rows, kt.explain(pipeline, TEXTS), strict=True):
        np.testing.assert_allclose(row["shares"], why.shares, atol=0.05)


@pytest.mark.parametrize("options", [{"weights_dtype": "int8"}, {"format": "litert"}])
def test_forms_without_gradients_are_refused(options, tmp_path):
    with pytest.raises(ValueError) as error:
        kt.export(tiny.pipeline("classification"), tmp_path / "toy", explain=True, **options)
    (form,) = options.values()
    assert says(str(error.value), f"{form} ... float32")
    assert not (tmp_path / "toy").exists()


def test_an_export_stores_each_weight_once(export):
    """The gradient's graph reads the same variables as the answers'."""
    plain = tiny.exported("classification")
    sizes = [
        sum(file.stat().st_size for file in (path / "variables").iterdir())
        for path in (export, plain)
    ]
    assert sizes[0] < sizes[1] * 1.02
