"""What every recipe saves, `keras_transformers.load` reads."""

import runpy
from unittest import mock

import pytest
import recipe_toys
from recipe_runs import RECIPES, file_of

import keras_transformers as kt
from keras_transformers.runs import Run, execute

# The quickstart runs the classification recipe, and distillation has a test beside its toy.
WITHOUT_TOY = {"quickstart", "distillation"}
WITHOUT_PIPELINE = {"elmo_tagging"}
NAMES = sorted({path.stem for path in RECIPES.rglob("*.py")} - WITHOUT_TOY - WITHOUT_PIPELINE)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", NAMES)
def test_a_saved_pipeline_is_loaded(recipe, tmp_path):
    module, finished = runpy.run_path(str(file_of(recipe))), []

    def noted(self, pipeline, *args, **kwargs):
        finished.append(pipeline)
        return finish(self, pipeline, *args, **kwargs)

    finish = Run.finish
    options = getattr(recipe_toys, recipe)(tmp_path) | {"epochs": 1, "save": tmp_path / "saved"}
    with mock.patch.object(Run, "finish", noted):
        execute(module["main"], module["Config"](runs_dir=tmp_path / "runs", **options))
    found = kt.load(tmp_path / "saved")
    assert type(found) is type(finished[0])
    assert found.config() == finished[0].config()
    assert found.model.count_params() == finished[0].model.count_params()
