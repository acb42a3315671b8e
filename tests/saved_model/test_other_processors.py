"""An export made with one processor's kernels passes the check with another's, if it is right.

TensorFlow without oneDNN, and oneDNN without AVX-512, stand in for other processors.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers.families.bert.model import bert
from keras_transformers.saved_model.checks import check
from keras_transformers.saved_model.description import METADATA_FILE
from keras_transformers.saved_model.examples import stored_examples

pytestmark = pytest.mark.kernels

KERNELS = {
    "without oneDNN": {"TF_ENABLE_ONEDNN_OPTS": "0"},
    "AVX2": {"TF_ENABLE_ONEDNN_OPTS": "0", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "oneDNN for AVX2": {"TF_ENABLE_ONEDNN_OPTS": "1", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
TEXTS = [
    " ".join(words) for words in np.random.default_rng(0).choice(tiny.VOCABULARY[5:], size=(3, 50))
]


def encoder(activation="gelu"):
    return tiny.lively(
        bert(
            vocabulary_size=len(tiny.VOCABULARY),
            num_layers=2,
            num_heads=2,
            hidden_dim=64,
            max_sequence_length=64,
            activation=activation,
        )
    )


def sensitive(activation="gelu"):
    """An embedder whose weights enlarge rounding, with numbers from -100 to 100 in its vectors."""
    model = encoder(activation)
    norm = model.get_layer("encoder_layer_1").feed_forward_norm
    norm.set_weights([100 * weight for weight in norm.get_weights()])
    return kt.pipelines.Embedder(model, tiny.wordpiece(), normalize=False)


def export_sensitive(path):
    return kt.export(sensitive(), path, examples=TEXTS)


def export_int8(path):
    embed = kt.pipelines.Embedder(encoder(), tiny.wordpiece())
    return kt.export(embed, path, weights_dtype="int8", check=False)


def vectors(export):
    answers = kt.saved_model.predict(export, {"text": TEXTS})
    return np.array([answer["embedding"] for answer in answers])


def answer_and_export_int8(made_here, path):
    np.save(f"{path}_answers.npy", vectors(made_here))
    export_int8(path)


def elsewhere(kernels, function, *arguments):
    """Calls a function of this file with paths, in a process with other kernels."""
    code = f"import sys, test_other_processors as tests; tests.{function}(*sys.argv[1:])"
    environment = os.environ | KERNELS[kernels] | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    subprocess.run(command, env=environment, check=True)


@pytest.fixture(scope="module")
def made_here(tmp_path_factory):
    return export_sensitive(tmp_path_factory.mktemp("made_here"))


@pytest.fixture(scope="module")
def translator_made_here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translator")
    return kt.export(tiny.pipeline("translation"), folder, check=False)


def test_a_wrong_model_is_told_from_rounding(made_here):
    metadata = json.loads((made_here / METADATA_FILE).read_text())
    assert 1e-5 <= metadata["tolerance"] < 1e-3
    example = next(stored_examples(metadata, "serving_default"))
    texts = {name: tf.constant(column) for name, column in example["inputs"].items()}
    for activation, right in (("gelu", True), ("gelu_approximate", False)):
        answer = sensitive(activation).answer(**texts)
        found = {name: value.numpy() for name, value in answer.items()}
        wanted, tolerance = example["outputs"], metadata["tolerance"]
        assert (list(check.differences(found, wanted, tolerance)) == []) == right


@pytest.mark.slow
@pytest.mark.usefixtures("new_processes")
@pytest.mark.parametrize("kernels", KERNELS)
def test_made_here_and_checked_elsewhere(kernels, made_here, translator_made_here, monkeypatch):
    for name, value in KERNELS[kernels].items():
        monkeypatch.setenv(name, value)
    for export in (made_here, translator_made_here):
        check.self_check(export)


@pytest.mark.slow
def test_made_elsewhere_and_checked_here(tmp_path):
    elsewhere("AVX2", "export_sensitive", tmp_path / "base")
    assert list(check.failures(str(tmp_path / "base/1"))) == []


@pytest.mark.slow
def test_int8_answers_alike_everywhere(tmp_path):
    """Sums are exact; numbers between two multiples of a step may be rounded either way."""
    made_here = export_int8(tmp_path / "here")
    elsewhere("AVX2", "answer_and_export_int8", made_here, tmp_path / "AVX2")
    expected = vectors(made_here)
    for found in (np.load(tmp_path / "AVX2_answers.npy"), vectors(tmp_path / "AVX2/1")):
        np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
