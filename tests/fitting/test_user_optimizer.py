"""`fit` with an optimizer and callbacks of the user's own."""

import keras
import numpy as np
import pytest
from test_every_task import DATA, LABELS, TEXTS, bag_of_words, fresh
from test_fit import StopAfter

import keras_transformers as kt
from keras_transformers.fitting.user_optimizer import UserOptimizer
from keras_transformers.training import adamw

OPTIONS = {"epochs": 3, "batch_size": 4, "validation": 0.25, "quiet": True}


def plateau():
    """Lowers the rate after each epoch but the first."""
    return keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=10)


def trained(pipeline=None, **options):
    if pipeline is None:  # low-rank updates need blocks
        pipeline = fresh("classification") if "lora" in options else bag_of_words()
    history = kt.fit(pipeline, (TEXTS, LABELS), **OPTIONS | options).history
    history.pop("tokens_per_second")  # of a clock
    return pipeline.model.get_weights(), history


def stopped_and_resumed(folder, make, step=8, **options):
    """Trains in two parts; `make` returns the optimizer and callbacks of each."""
    options = {**options, "folder": folder, "checkpoint_every": 2}
    first, second = make(), make()
    first["callbacks"] = [*first.get("callbacks", ()), StopAfter(step)]
    with pytest.raises(KeyboardInterrupt):
        trained(**options, **first)
    return trained(**options, **second)


def same(left, right):
    (weights, history), (others, its) = left, right
    return all(map(np.array_equal, weights, others)) and history == its


@pytest.mark.slow
def test_callbacks_that_set_the_rate_work_with_a_rate_that_is_a_number(tmp_path):
    def make():
        return {"optimizer": adamw(1e-2), "callbacks": [plateau()]}

    whole = trained(**make())
    assert whole[1]["learning_rate"] == pytest.approx([1e-2, 1e-3, 1e-4])
    assert same(stopped_and_resumed(tmp_path / "run", make), whole)
    with pytest.raises(ValueError, match="another configuration: optimizer_config was"):
        trained(folder=tmp_path / "run", optimizer=adamw(2e-2), callbacks=plateau())


def test_callbacks_that_cannot_set_the_rate_are_refused_before_the_first_step(tmp_path):
    for callback in (plateau(), keras.callbacks.LearningRateScheduler(lambda epoch: 0.1)):
        with pytest.raises(ValueError, match=r"optimizer=keras_transformers\.training\.adamw"):
            trained(callbacks=callback, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_rule_for_the_best_epoch_beside_ours_is_refused(tmp_path):
    stopping = keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True)
    with pytest.raises(ValueError, match="EarlyStopping.*val_loss.*val_accuracy"):
        trained(callbacks=stopping, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_validation_early_stopping_may_restore_any():
    pipeline = bag_of_words()
    stopping = keras.callbacks.EarlyStopping("loss", mode="max", restore_best_weights=True)
    trained(pipeline, validation=None, callbacks=stopping, learning_rate=1e-2)
    assert all(map(np.array_equal, stopping.best_weights, pipeline.model.get_weights()))
    assert stopping.best_epoch == 0


@pytest.mark.slow
def test_a_callback_hears_the_tasks_own_figures():
    """They are not Keras': EarlyStopping on one never stopped, because it came before them."""
    seen = []
    hear = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs)))
    data = DATA["embedding"][0]
    kt.fit(fresh("embedding"), data, validation=data, epochs=1, callbacks=hear, quiet=True)
    assert seen[0]["val_ndcg_at_10"] > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"optimizer": keras.optimizers.AdamW(1e-2, use_ema=True, ema_momentum=0.5)},
        lambda: {"optimizer": "rmsprop"},
        lambda: {"optimizer": lambda: keras.optimizers.SGD(0.1, momentum=0.9), "lora": 2},
        lambda: {"optimizer": keras.optimizers.Adam(1e-2, clipnorm=0.1), "accumulate": 2},
    ],
    ids=["averages", "by name", "made, with updates", "clipped, in parts"],
)
@pytest.mark.slow
def test_a_stopped_training_goes_on(make, tmp_path):
    whole = trained(**make())
    assert len(set(whole[1]["loss"])) == 3
    assert same(stopped_and_resumed(tmp_path / "run", make), whole)


def test_the_averages_are_scored_and_kept():
    """With a momentum of 1 they stay the weights of the first update."""
    kept = []
    for validation in ((TEXTS, LABELS), None):
        optimizer = keras.optimizers.Adam(1e-2, use_ema=True, ema_momentum=1.0)
        stopping = keras.callbacks.EarlyStopping("loss", mode="max")  # then Keras undoes a swap
        weights, history = trained(
            optimizer=optimizer, callbacks=stopping, validation=validation, epochs=4
        )
        assert len(set(history["loss"])) == len(history["loss"]) > 1
        assert len(set(history.get("val_loss", [0]))) == 1
        kept.append(weights)
    for one, other in zip(*kept, strict=True):  # Keras swaps by sums and differences
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("name", ["learning_rate", "warmup_fraction", "weight_decay", "clip_norm"])
def test_what_the_optimizer_brings_is_not_an_option_too(name):
    with pytest.raises(ValueError, match=f"{name}=0.1.*optimizer="):
        kt.fit(bag_of_words(), (TEXTS, LABELS), optimizer="adam", **{name: 0.1})


def built():
    optimizer = keras.optimizers.Adam()
    optimizer.build([keras.Variable(0.0)])
    return optimizer


@pytest.mark.parametrize(
    ("source", "strategy", "error", "parts"),
    [
        ("adamm", "default", ValueError, ["'adamm'", "adam"]),
        (3, "default", TypeError, ["optimizer=3", "keras.optimizers.Optimizer"]),
        (lambda: "adam", "default", TypeError, ["optimizer=", "str"]),
        (built(), "default", ValueError, ["Adam has trained already", "new one"]),
        (keras.optimizers.Adam(), "mirrored", ValueError, ["'mirrored'", "lambda: Adam("]),
        (
            keras.optimizers.Adam(gradient_accumulation_steps=4),
            "default",
            ValueError,
            ["gradient_accumulation_steps=4", "accumulate=4"],
        ),
    ],
)
def test_optimizers_that_do_not_fit(source, strategy, error, parts):
    with pytest.raises(error) as found:
        UserOptimizer(source, strategy=strategy)
    assert all(part in str(found.value) for part in parts), found.value


def test_an_optimizer_is_described_without_what_differs_by_process():
    def described(**options):
        inner = keras.optimizers.AdamW(1e-3, **options)
        return UserOptimizer(keras.optimizers.LossScaleOptimizer(inner), strategy="default").config

    assert described() == described() != described(beta_1=0.8)
    assert UserOptimizer("adam", strategy="mirrored").config["class"] == "Adam"
