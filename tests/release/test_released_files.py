"""Files that version 1.0.0 wrote load, and give its answers; see golden/make_release.py."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import keras
import numpy as np
import pytest
from golden.make_release import answer

import keras_transformers as kt

ARCHIVE = Path(__file__).parents[1] / "golden" / "release_1_0_0.tar.xz"
with tarfile.open(ARCHIVE) as _archive:
    ANSWERS = json.load(_archive.extractfile("answers.json"))
SCRIPT = """
import sys
import keras
import keras_transformers.models

for path in sys.argv[1:]:
    keras.models.load_model(path)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds a saved pipeline and the .keras file of its model for each name in `ANSWERS`."""
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", ANSWERS)
def test_a_saved_pipeline_gives_its_answer(name, folder, untraced):
    pipeline = kt.load(folder / name)
    fields = answer(name, pipeline)
    if isinstance(fields, dict):  # a minor version may add some
        fields = {field: fields[field] for field in ANSWERS[name]}
    keras.tree.assert_same_structure(fields, ANSWERS[name])
    for one, other in zip(*map(keras.tree.flatten, (fields, ANSWERS[name])), strict=True):
        if isinstance(other, float):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        else:
            assert one == other
    model = keras.models.load_model(folder / f"{name}.keras")
    assert type(model) is type(pipeline.model)
    weights = {weight.path: weight for weight in model.weights}
    assert weights.keys() == {weight.path for weight in pipeline.model.weights}
    for weight in pipeline.model.weights:
        np.testing.assert_array_equal(weight, weights[weight.path])


@pytest.mark.slow
def test_keras_finds_the_classes_of_models(folder):
    """In a process that has imported nothing else."""
    paths = map(str, sorted(folder.glob("*.keras")))
    subprocess.run([sys.executable, "-c", SCRIPT, *paths], check=True)
