"""Every recipe under XLA with static shapes, as TPUs need them."""

import runpy
from unittest import mock

import keras
import numpy as np
import pytest
import recipe_toys
import tensorflow as tf
from recipe_runs import RECIPES, file_of

from keras_transformers.runs import Run, execute
from keras_transformers.training.distributed import prepare

# Recipes, the most shapes of their batches, and other options. No batch size divides its rows.
TOYS = {
    "classification": (2, {}),
    "elmo_tagging": (1, {}),
    "fasttext_classification": (1, {}),
    "feature_based": (2, {}),
    "glue": (1, {"accumulate": 3}),
    "gpt_classification": (1, {}),
    "image_classification": (1, {"mixup": 0.2}),
    "language_model": (1, {}),
    "multi_label_classification": (1, {}),
    "pretrain_bert": (1, {"accumulate": 2, "batch_size": 4}),
    "pretrain_electra": (1, {}),
    "pretrain_elmo": (1, {}),
    "pronunciation": (1, {}),
    "question_answering": (1, {}),
    "tagging": (2, {}),
    "translation": (1, {}),
}
# The quickstart runs the classification recipe, distillation has a test beside its toy, rows of
# multiple choice differ in the number of choices, which no static shape has, a row that completes a
# batch of embeddings would be compared with the others, and batches of pairs differ in their texts.
WITHOUT_TOY = {"quickstart", "distillation", "multiple_choice", "embedding", "few_shot"}
DROPOUT = {"dropout": 0.0}  # draws other numbers under XLA
WITHOUT_DROPOUT = {"fasttext_classification"}
TIMES = {"seconds", "tokens_per_second", "target_tokens_per_second", "mfu"}
# These draw in the model, and draw other floats under XLA: wrong words, and replacements. What does
# not depend on it much: the generator's figures, and those of validation, which draws no words.
DRAWING = {"pretrain_electra": "mask", "pretrain_elmo": "val_"}


def train(recipe, folder, **options):
    """Returns a run's metrics, its model, and the element specs of its datasets."""
    module = runpy.run_path(str(file_of(recipe)))
    found = {}

    def noted(self, model, *args, **kwargs):
        arguments = prepare(self, model, *args, **kwargs)
        datasets = (arguments["x"], arguments["validation_data"])
        specs = [dataset.element_spec for dataset in datasets if dataset is not None]
        found.update(model=model, specs=specs)
        return arguments

    prepare = Run.prepare
    with mock.patch.object(Run, "prepare", noted):
        config = module["Config"](runs_dir=folder, epochs=1, **options)
        metrics = execute(module["main"], config)
    return metrics, found["model"], found["specs"]


def figures(metrics, prefix=""):
    """Yields name -> number of all metrics that do not measure speed."""
    for name, value in metrics.items():
        if name == "epochs":
            for epoch in value:
                yield from figures(epoch, f"epoch {epoch['epoch']} ")
        elif isinstance(value, float) and name not in TIMES:
            yield prefix + name, value


@pytest.mark.slow
@pytest.mark.parametrize("recipe", TOYS)
def test_a_recipe_trains_alike_under_xla_with_static_shapes(recipe, tmp_path):
    num_shapes, changes = TOYS[recipe]
    options = getattr(recipe_toys, recipe)(tmp_path) | changes
    options |= {} if recipe in WITHOUT_DROPOUT else DROPOUT
    expected, model, specs = train(recipe, tmp_path / "runs", **options)
    assert not model.jit_compile
    keras.backend.clear_session()
    found, model, specs = train(recipe, tmp_path / "static", **options, static_shapes=num_shapes)
    assert model.jit_compile
    for spec in specs:
        for tensor in tf.nest.flatten(spec):
            assert tensor.shape[0] is not None
            assert tensor.shape.is_fully_defined() or num_shapes > 1
    found, expected = dict(figures(found)), dict(figures(expected))
    # XLA's gradients are dense, so fastText's have a norm to log.
    found = {name: found[name] for name in expected if DRAWING.get(recipe, "") in name}
    expected = {name: expected[name] for name in found}
    assert expected
    tolerance = 0.1 if recipe in DRAWING else 1e-3
    assert found == pytest.approx(expected, rel=tolerance, abs=1e-4)


def test_every_recipe_with_a_model_is_tried():
    recipes = {path.stem for path in RECIPES.rglob("*.py")}
    assert recipes - WITHOUT_TOY == TOYS.keys()


def test_upstream_scan_still_does_not_train_under_xla():
    """When this fails, `scan` accepts inputs of unknown length, and layers.recurrent can use it."""
    one = tf.ones(())

    @tf.function(jit_compile=True)
    def gradient():
        with tf.GradientTape() as tape:
            tape.watch(one)
            after, _ = keras.ops.scan(lambda state, _: (state * one,) * 2, one, tf.ones((3,)))
        return tape.gradient(after, one)

    with pytest.raises(tf.errors.InvalidArgumentError, match="fixed tensor list size"):
        gradient()


def test_xla_refuses_rows_that_are_not_static():
    inputs = keras.Input((2,), name="x")
    model = keras.Model({"x": inputs}, {"y": keras.layers.Dense(1, name="y")(inputs)})
    model.compile("sgd", {"y": keras.losses.MeanSquaredError()}, jit_compile=True)
    prepare(model, accumulate=3)
    batch = {"x": tf.ones((4, 2))}, {"y": tf.ones((4, 1))}
    with pytest.raises(ValueError, match="multiple of 3 .*4"):
        model.fit(tf.data.Dataset.from_tensors(batch), verbose=0)


def test_xla_takes_batches_of_several_sizes():
    """As those of translation have, whose size is the number of their tokens."""
    rows = np.random.default_rng(0).normal(size=(7, 2)).astype("float32")
    batches = [{"x": rows[:4]}, {"x": rows[4:]}]
    spec = {"x": tf.TensorSpec((None, 2)), "y": tf.TensorSpec((None, 1))}

    def losses(jit_compile):
        keras.utils.set_random_seed(0)
        inputs = keras.Input((2,), name="x")
        model = keras.Model({"x": inputs}, {"y": keras.layers.Dense(1, name="y")(inputs)})
        model.compile("sgd", {"y": keras.losses.MeanSquaredError()}, jit_compile=jit_compile)
        prepare(model, static_shapes=True)
        data = tf.data.Dataset.from_generator(
            lambda: (batch | {"y": batch["x"].sum(1, keepdims=True)} for batch in batches),
            output_signature=spec,
        ).map(lambda row: ({"x": row["x"]}, {"y": row["y"]}))
        fitted = model.fit(data, epochs=2, validation_data=data, verbose=0)
        return fitted.history["loss"] + fitted.history["val_loss"]

    assert losses(jit_compile=True) == pytest.approx(losses(jit_compile=False))
