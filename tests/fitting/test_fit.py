"""What `fit` promises besides learning: the recipe's weights, restarts, replicas, early errors."""

import importlib
import json
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tiny
from test_every_task import LABELS, TEXTS, bag_of_words

import keras_transformers as kt
from keras_transformers import runs

RECIPE = Path(__file__).parents[2] / "recipes/classification.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Writes an encoder and labelled texts."""
    folder = tmp_path_factory.mktemp("fit")
    keras.utils.set_random_seed(0)
    encoder = tiny.encoder()
    weights = folder / "encoder"
    weights.mkdir()
    kt.families.bert.FAMILY.save(encoder, weights / "model.safetensors")
    kt.families.bert.FAMILY.save_config(encoder, weights / "config.json")
    (weights / "vocab.txt").write_text("\n".join(tiny.VOCABULARY) + "\n")
    texts = [f"{text} {'very ' * i}" for i, text in enumerate(TEXTS)]
    lines = [f"{text}\t{['no', 'yes'][y]}" for text, y in zip(texts, LABELS, strict=True)]
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    return folder


def built_as_in_the_recipe(folder):
    keras.utils.set_random_seed(0)
    encoder, tokenizer = kt.convert.load_encoder(
        weights=folder / "encoder", lowercase=None, dropout=0.1
    )
    model = kt.heads.classifier(encoder, 2, dropout=0.1)
    return kt.pipelines.TextClassifier(model, tokenizer, ["no", "yes"], max_sequence_length=16)


OPTIONS = {
    "epochs": 2,
    "batch_size": 4,
    "accumulate": 2,
    "learning_rate": 1e-2,
    "warmup_fraction": 0.3,
    "clip_norm": 0.5,
    "seed": 0,
}


@pytest.mark.slow  # with the defaults of both: tests/recipes/test_fit_alike.py
def test_the_weights_are_the_recipes_bit_for_bit(folder, tmp_path):
    recipe = runpy.run_path(str(RECIPE))
    config = recipe["Config"](
        train_file=folder / "train.tsv", dev_file=folder / "dev.tsv", weights=folder / "encoder",
        max_sequence_length=16, runs_dir=tmp_path, quiet=True, **OPTIONS,
    )  # fmt: skip
    found = runs.execute(recipe["main"], config)
    pipeline = built_as_in_the_recipe(folder)
    untrained = pipeline.model.get_weights()
    history = kt.fit(
        pipeline, folder / "train.tsv", validation=folder / "dev.tsv", folder=tmp_path / "fit",
        quiet=True, **OPTIONS,
    )  # fmt: skip
    of_recipe = built_as_in_the_recipe(folder)
    runs.read_weights(of_recipe.model, tmp_path / "classification/best.weights.h5")
    ours, theirs = pipeline.model.get_weights(), of_recipe.model.get_weights()
    for before, one, other in zip(untrained, ours, theirs, strict=True):
        assert np.array_equal(one, other)
        assert not np.array_equal(before, one) or not before.any()
    for name in ("loss", "val_loss", "val_accuracy"):
        assert history.history[name] == [epoch[name] for epoch in found["epochs"]]


class StopAfter(keras.callbacks.Callback):
    """Stops the program in the middle of an epoch, as an interruption does."""

    def __init__(self, step):
        super().__init__()
        self.left = step

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_a_stopped_training_goes_on_bit_for_bit(tmp_path):
    options = {"epochs": 3, "batch_size": 4, "validation": 0.25, "checkpoint_every": 2,
               "quiet": True}  # fmt: skip
    whole = bag_of_words()
    expected = kt.fit(whole, (TEXTS, LABELS), **options).history
    stopped = bag_of_words()
    with pytest.raises(KeyboardInterrupt):
        kt.fit(
            stopped, (TEXTS, LABELS), folder=tmp_path / "run", callbacks=[StopAfter(8)], **options
        )
    again = bag_of_words()
    history = kt.fit(again, (TEXTS, LABELS), folder=tmp_path / "run", **options)
    assert history.epoch == [0, 1, 2]
    assert {"loss", "val_accuracy", "gradient_norm", "learning_rate"} <= expected.keys()
    for name in expected.keys() - {"tokens_per_second"}:  # of a clock
        assert history.history[name] == expected[name], name
    for one, other in zip(whole.model.get_weights(), again.model.get_weights(), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.slow
def test_a_folder_belongs_to_one_training(tmp_path):
    place = tmp_path / "run"
    data, fewer = (TEXTS, LABELS), (TEXTS[2:], LABELS[2:])
    options = {"validation": data, "folder": place, "epochs": 1, "quiet": True}
    kt.fit(bag_of_words(), data, **options)
    with pytest.raises(ValueError, match="another configuration: data was [0-9a-f]{16}, is"):
        kt.fit(bag_of_words(), fewer, **options)
    with pytest.raises(ValueError, match="another configuration: data was [0-9a-f]{16}, is"):
        kt.fit(bag_of_words(), data, **options | {"validation": fewer})
    with pytest.raises(ValueError, match="another configuration: seed was 0, is 1"):
        kt.fit(bag_of_words(), data, **options, seed=1)
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=f"{other} exists and is not a run's folder"):
        kt.fit(bag_of_words(), (TEXTS, LABELS), folder=other)
    assert [path.name for path in other.iterdir()] == ["notes.txt"]


def test_nothing_is_left_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = signal.getsignal(signal.SIGTERM)
    kt.fit(bag_of_words(), (TEXTS, LABELS), epochs=1, quiet=True)
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_digest_is_the_same_in_every_process():
    """The bytes of an array of objects are addresses."""
    digest = importlib.import_module("keras_transformers.fitting.fit")._digest
    paths = [np.array(["".join(("a", ".png")), "b.png"], object) for _ in range(2)]
    assert digest(paths[0]) == digest(paths[1]) != digest(np.array(["a.png", "c.png"], object))
    assert digest(np.zeros((2, 3), "uint8")) != digest(np.zeros((3, 2), "uint8"))


@pytest.mark.slow
def test_replicas_train_what_one_device_trains():
    folders = [str(Path(file).parent) for file in (__file__, tiny.__file__)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *folders], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    differences, figures = json.loads(done.stdout.splitlines()[-1])
    assert differences < 1e-5
    assert figures[0] == pytest.approx(figures[1], rel=1e-5)


PROGRAM = """
import json, sys
sys.path[:0] = sys.argv[1:]
import keras_transformers.quiet
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras_transformers as kt
import tiny
from test_every_task import LABELS, TEXTS
from keras_transformers.families.bert.model import bert

def trained(strategy):
    keras.utils.set_random_seed(0)
    encoder = bert(vocabulary_size=len(tiny.VOCABULARY), num_layers=1, num_heads=2, hidden_dim=8,
                   max_sequence_length=16, dropout=0.0, attention_dropout=0.0)
    model = kt.heads.classifier(encoder, 2, dropout=0.0)
    classify = kt.pipelines.TextClassifier(model, tiny.wordpiece(), ["no", "yes"])
    history = kt.fit(classify, (TEXTS, LABELS), validation=(TEXTS, LABELS), epochs=2, batch_size=5,
                     learning_rate=1e-2, strategy=strategy, quiet=True)
    return classify, history.history["val_loss"]

(one, loss), (two, loss_of_two) = trained("default"), trained("mirrored")
weights = zip(one.model.get_weights(), two.model.get_weights(), strict=True)
print(json.dumps([max(float(np.abs(a - b).max()) for a, b in weights), [loss, loss_of_two]]))
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"data": (TEXTS, LABELS[1:])},
            "data: .* 24 of text, 23 of lab",
        ),
        ({"data": (TEXTS, [2] * 24)}, "data, row 0: .* 2: .*labels"),
        ({"data": (TEXTS, ["good"] * 24)}, "data, row 0: unknown label 'good'"),
        ({"data": ([1] * 24, LABELS)}, "data, row 0: text is 1, expected a string"),
        ({"data": {"text": TEXTS}}, "data: .*'label' among text: pass columns={'label':"),
        (
            {"validation": (TEXTS,)},
            r"validation: .*tuple of 1: .*\(text, lab",
        ),
        ({"validation": 1.5}, "validation=1.5: .*between 0 and 1"),
        ({"columns": {"texts": "a"}}, "'texts' .*text, label"),
        ({"epochs": 0}, "epochs=0: must be 1 or more"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0: must be above 0"),
    ],
)
def test_errors_come_before_the_first_step(given, message, tmp_path):
    pipeline = bag_of_words()
    before = pipeline.model.get_weights()
    with pytest.raises(ValueError, match=message):
        kt.fit(pipeline, **{"data": (TEXTS, LABELS), "folder": tmp_path / "run"} | given)
    assert not (tmp_path / "run").exists()
    assert all(map(np.array_equal, before, pipeline.model.get_weights()))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epoch": 1}, r"'epoch': .*epochs\?"),
        ({"zzz": 1}, "'zzz': .*accumulate, batch_size"),
        ({"precision": "mixed_bfloat16"}, "call keras.config.set_dtype_policy"),
        ({"data": 3}, "data: .*int: pass"),
    ],
)
def test_unknown_options_and_kinds(given, message):
    with pytest.raises(TypeError, match=message):
        kt.fit(bag_of_words(), **{"data": (TEXTS, LABELS)} | given)


def test_small_models_have_a_higher_rate():
    options = kt.fitting.FitOptions()
    small = keras.Sequential([keras.Input((10,)), keras.layers.Dense(2)])
    with kt.dependencies.private_api.without_values():
        medium, large = kt.bert_small(), kt.distilbert_base()
    assert options.rate_for(small) == 1e-3
    assert options.rate_for(medium) == 1e-4
    assert options.rate_for(large) == 5e-5
    assert kt.fitting.FitOptions(lora=8).rate_for(large) == 4e-4
