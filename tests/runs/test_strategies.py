"""The options for where a training runs, as far as this machine allows."""

import dataclasses
import importlib.util
import signal
import sys
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from keras_transformers.runs import Options, Run, clusters, preemption, workers
from keras_transformers.training import strategies
from keras_transformers.training.distributed import prepare

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in (clusters.VARIABLE, "TPU_NAME", "SLURM_PROCID", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)
    yield
    keras.config.set_dtype_policy("float32")


def run_of(tmp_path, **options):
    return Run(Options(runs_dir=tmp_path, **options))


def test_one_device_is_stock_keras(tmp_path):
    with run_of(tmp_path).scope():
        assert not tf.distribute.has_strategy()
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    prepare(model, accumulate=1)
    assert not {"train_step", "make_train_function", "predict_on_batch"} & vars(model).keys()
    assert workers.is_chief()


def test_mirrored_takes_the_devices_of_this_machine(tmp_path):
    with run_of(tmp_path, strategy="mirrored", precision="mixed_bfloat16").scope():
        assert tf.distribute.has_strategy()
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
    assert strategies.create("mirrored") is strategies.create("mirrored")


def test_a_run_answers_a_signal_with_another_try(monkeypatch, tmp_path):
    set_to = []
    monkeypatch.setattr(preemption.signal, "signal", lambda number, handler: set_to.append(number))
    monkeypatch.setattr(preemption.signal, "getsignal", lambda number: signal.SIG_DFL)
    run_of(tmp_path)
    assert set_to == [signal.SIGTERM]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "parameter_server"}, "fit .*strategy='multi_worker'"),
        ({"strategy": "tpu"}, "strategy='tpu': no TPU at TPU_NAME='local'.*tensorflow-tpu"),
        ({"strategy": "sharded"}, "'sharded': .*default, mirrored"),
        ({"accumulate": 0}, "--accumulate 0: must be 1 or more"),
        ({"worker_index": 0}, "--worker-index are for --strategy multi_worker, not default"),
        ({"strategy": "multi_worker"}, "no workers found"),
    ],
)
def test_what_cannot_be_is_refused(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run_of(tmp_path, **changes)


def test_workers_that_would_each_train_alone_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(clusters.VARIABLE, clusters.Cluster(("a:1", "b:1"), 1).config())
    with pytest.raises(ValueError, match="2 workers,.*alone"):
        run_of(tmp_path)
    assert not workers.is_chief()


def test_several_steps_per_execution_are_refused():
    with strategies.create("mirrored").scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="y")])
        model.compile("sgd", {"y": keras.losses.MeanSquaredError()}, steps_per_execution=2)
    with pytest.raises(ValueError, match="steps_per_execution=2: compile with 1"):
        prepare(model)


def test_alone_the_chief_comes_first_and_waits_for_nobody():
    workers.wait_for_all()
    assert workers.chief_first(lambda: 3) == 3


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in RECIPES.glob("*.py") if path.stem != "quickstart")
)
def test_every_recipe_has_these_options(name, monkeypatch):
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    assert issubclass(module.Config, Options)
    fields = {field.name: field for field in dataclasses.fields(module.Config)}
    for name in ("strategy", "workers", "worker_index", "precision", "accumulate", "resume"):
        assert fields[name].default == Options.__dataclass_fields__[name].default, name
