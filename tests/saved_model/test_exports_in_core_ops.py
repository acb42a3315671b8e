"""Exports in core ops: any TensorFlow runs them, without tensorflow-text's ops."""

import subprocess
import sys

import pytest
import tensorflow as tf
import tiny
from checks import says

import keras_transformers as kt
from keras_transformers.dependencies import text_library
from keras_transformers.saved_model.checks.audit import graph_ops
from keras_transformers.saved_model.checks.check import why_not_loaded
from keras_transformers.saved_model.checks.core_ops import releases, releases_with

TEXTS = ["A good film.", "very BAD films!", "", "中 \ufffd films"]

IN_A_FRESH_PROCESS = """
import sys
sys.modules["tensorflow_text"] = sys.modules["keras_transformers"] = None  # importing them fails
import tensorflow as tf
with tf.compat.v1.Session(graph=tf.Graph()) as session:
    tf.compat.v1.saved_model.load(session, ["serve"], sys.argv[1])
function = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answers = function(text=tf.constant(sys.argv[2:]))
print(sorted(answers), next(iter(answers.values())).shape[0])
"""


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    base = tmp_path_factory.mktemp("core")
    return kt.export(tiny.pipeline("classification"), base, ops="core", check=False)


def test_no_op_is_outside_of_the_core(classifier):
    ops = graph_ops(classifier)
    assert [op for op in ops if releases_with(op) != releases() and not op.startswith("_")] == []


def test_answers_are_those_of_the_pipeline(classifier):
    answers = kt.saved_model.predict(classifier, {"text": TEXTS})
    for answer, expected in zip(answers, tiny.pipeline("classification")(TEXTS), strict=True):
        assert answer["label"] == expected.label


@pytest.mark.slow
def test_a_process_without_tensorflow_text_runs_it(classifier):
    result = subprocess.run(
        [sys.executable, "-c", IN_A_FRESH_PROCESS, str(classifier), *TEXTS],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.split()[-1] == str(len(TEXTS))


@pytest.mark.slow
@pytest.mark.parametrize("task", tiny.TASKS)
def test_every_task_has_such_an_export(task, tmp_path):
    if task == "image_classification":
        pytest.skip("it reads no text")
    folder = kt.export(tiny.pipeline(task), tmp_path, ops="core")
    assert [op for op in graph_ops(folder) if releases_with(op) != releases()] == []


def test_an_op_of_tensorflow_text_in_an_own_tokenizer_is_named(tmp_path, monkeypatch):
    library = text_library.tensorflow_text()
    if library is None:
        pytest.skip("needs tensorflow-text: see setup.cfg")
    pipeline = tiny.pipeline("classification")
    tokenize = type(pipeline.tokenizer).tokenize

    def with_library(tokenizer, text):
        return tokenize(tokenizer, library.case_fold_utf8(text))

    monkeypatch.setattr(type(pipeline.tokenizer), "tokenize", with_library)
    with pytest.raises(ValueError, match="CaseFoldUTF8") as caught:
        kt.export(pipeline, tmp_path / "base", ops="core", check=False)
    assert says(str(caught.value), "ops='core' ... CaseFoldUTF8 ... leave out ops='core'")
    assert not list((tmp_path / "base").glob("*"))


def test_an_export_that_needs_tensorflow_text_says_so_where_it_is_missing(classifier):
    error = tf.errors.NotFoundError(None, None, "Op type not registered 'FastBertNormalize' in x")
    assert says(why_not_loaded(classifier, error), "FastBertNormalize ... install ... ops='core'")
