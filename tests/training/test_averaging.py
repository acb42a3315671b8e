"""The average of weights: in memory during `fit`, and from files."""

import zipfile
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest

from keras_transformers.runs.weights_files import SaveWeights
from keras_transformers.training.averaging import (
    AverageLastWeights,
    SwapAverageWeights,
    average_weights,
)

Weights = list[np.ndarray]


def small_model(units: int = 3) -> keras.Model:
    """Returns a model with float32 and bfloat16 kernels, and a moving average (not trainable)."""
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(units, name="first"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dense(2, name="second", dtype="bfloat16"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.1), "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def randomize(model: keras.Model, seed: int) -> Weights:
    generator = np.random.default_rng(seed)
    model.set_weights([generator.normal(size=weight.shape) for weight in model.weights])
    for variable in model.optimizer.variables[2:]:
        variable.assign(generator.normal(size=variable.shape))
    return model.get_weights()


def mean_weights(kept: list[Weights]) -> Weights:
    return [
        np.mean([np.float64(array) for array in arrays], axis=0)
        for arrays in zip(*kept, strict=True)
    ]


def assert_weights(model: keras.Model, expected: Weights) -> None:
    for weight, value in zip(model.weights, expected, strict=True):
        tolerance = 1e-2 if weight.dtype == "bfloat16" else 1e-6
        np.testing.assert_allclose(
            np.float64(weight.numpy()), value, rtol=tolerance, atol=1e-7, err_msg=weight.path
        )


def assert_same(actual: Weights, expected: Weights) -> None:
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def epochs(averaging: AverageLastWeights, count: int, batches: int = 4) -> list[Weights]:
    """Calls the callback as `fit` does, with random weights; returns those of each batch."""
    averaging.set_model(small_model())
    weights = []
    for epoch in range(count):
        for batch in range(batches):
            weights.append(randomize(averaging.model, len(weights)))
            averaging.on_train_batch_end(batch)
        averaging.on_epoch_end(epoch)
    return weights


def test_the_last_epochs_are_averaged() -> None:
    averaging = AverageLastWeights(num_kept=3)
    weights = epochs(averaging, 5)
    assert len(averaging) == 3
    averaging.apply()
    assert_weights(averaging.model, mean_weights([weights[i] for i in (11, 15, 19)]))


def test_every_so_many_batches_are_averaged_across_epochs() -> None:
    averaging = AverageLastWeights(num_kept=2, frequency=3)
    weights = epochs(averaging, 2)
    averaging.apply()
    assert_weights(averaging.model, mean_weights([weights[i] for i in (2, 5)]))


def test_averaged_weights_are_swapped_in_and_out() -> None:
    averaging = AverageLastWeights(num_kept=4)
    weights = epochs(averaging, 4)
    model = averaging.model
    moments = [variable.numpy() for variable in model.optimizer.variables]

    def fail_inside() -> None:
        with averaging.averaged_weights():
            assert_weights(model, mean_weights(weights[3::4]))
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail_inside()
    assert_same(model.get_weights(), weights[-1])
    assert_same([variable.numpy() for variable in model.optimizer.variables], moments)


@pytest.mark.slow
def test_fit_is_the_same_when_a_callback_evaluates_the_average() -> None:
    inputs, targets = np.eye(4), np.ones((4, 2))
    averaging, outputs = AverageLastWeights(num_kept=2), []

    class Evaluate(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            with averaging.averaged_weights():
                outputs.append(keras.ops.convert_to_numpy(self.model(inputs)))

    plain, model = small_model(), small_model()
    model.set_weights(plain.get_weights())
    plain.fit(inputs, targets, epochs=3, shuffle=False, verbose=0)
    callbacks = [averaging, Evaluate()]
    model.fit(inputs, targets, epochs=3, shuffle=False, callbacks=callbacks, verbose=0)
    assert_same(model.get_weights(), plain.get_weights())
    assert len(outputs) == 3
    assert np.abs(np.float32(outputs[-1]) - np.float32(model(inputs))).max() > 1e-3


def test_bad_arguments_and_nothing_kept() -> None:
    with pytest.raises(ValueError, match="num_kept is 0"):
        AverageLastWeights(num_kept=0)
    with pytest.raises(ValueError, match="frequency is 'step'"):
        AverageLastWeights(frequency="step")  # type: ignore[arg-type]
    averaging = AverageLastWeights(frequency=10)
    epochs(averaging, 1)
    with pytest.raises(ValueError, match="no weights .*4 batches.*10 batches"):
        averaging.apply()


def save(model: keras.Model, path: Path) -> Path:
    model.save(path) if path.suffix == ".keras" else model.save_weights(path)
    return path


def saved(directory: Path, suffix: str) -> tuple[list[Path], list[Weights]]:
    model, paths, weights = small_model(), [], []
    for number in range(3):
        weights.append(randomize(model, number))
        paths.append(save(model, directory / f"weights-{number}{suffix}"))
    return paths, weights


def test_weights_files(tmp_path: Path) -> None:
    paths, weights = saved(tmp_path, ".weights.h5")
    output = average_weights(paths, tmp_path / "mean.weights.h5")
    model = small_model()
    model.load_weights(output)
    assert_weights(model, mean_weights(weights))
    assert not list(tmp_path.glob(".*")), "a scratch file stayed"


def test_keras_archives_keep_the_last_optimizer(tmp_path: Path) -> None:
    paths, weights = saved(tmp_path, ".keras")
    output = average_weights([str(path) for path in paths], str(tmp_path / "mean.keras"))
    model, last = keras.models.load_model(output), keras.models.load_model(paths[-1])
    assert_weights(model, mean_weights(weights))
    moments, expected = ([v.numpy() for v in m.optimizer.variables] for m in (model, last))
    assert np.abs(np.float64(expected[2])).max() > 0
    assert_same(moments, expected)
    with zipfile.ZipFile(output) as archive:
        assert archive.testzip() is None


def test_a_failure_while_writing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(small_model(), tmp_path / "a.keras")

    def full_disk(*arguments: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(OSError, match="no space left"):
        average_weights([path], tmp_path / "mean.keras")
    assert list(tmp_path.iterdir()) == [path]


def test_bfloat16_is_summed_in_float64(tmp_path: Path) -> None:
    model, paths = small_model(), []
    for number, value in enumerate((256.0, 1.0, 1.0, 1.0)):  # 64.75; 64 if summed in bfloat16
        model.set_weights([np.full(weight.shape, value) for weight in model.weights])
        paths.append(save(model, tmp_path / f"{number}.weights.h5"))
    model.load_weights(average_weights(paths, tmp_path / "mean.weights.h5"))
    kernel = model.get_layer("second").kernel.numpy()
    assert kernel[0, 0] == np.asarray(64.75, ml_dtypes.bfloat16) != 64.0


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_other_shapes_are_named(tmp_path: Path, suffix: str) -> None:
    paths = [save(small_model(units), tmp_path / f"{units}{suffix}") for units in (3, 5)]
    message = r"dense/vars/0 \(layer 'first'\) is \(4, 5\) against \(4, 3\)"
    with pytest.raises(ValueError, match=message):
        average_weights(paths, tmp_path / f"mean{suffix}")
    assert {path.name for path in tmp_path.iterdir()} == {f"3{suffix}", f"5{suffix}"}


def test_missing_weights_are_named(tmp_path: Path) -> None:
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="first")])
    paths = [save(small_model(), tmp_path / "a.weights.h5"), save(other, tmp_path / "b.weights.h5")]
    with pytest.raises(ValueError, match=r"\(layer 'norm'\).*\(3,\)"):
        average_weights(paths, tmp_path / "c.weights.h5")


def test_nan_is_named(tmp_path: Path) -> None:
    model = small_model()
    model.get_layer("second").bias.assign([0.0, np.nan])
    path = save(model, tmp_path / "a.weights.h5")
    with pytest.raises(ValueError, match=r"a\.weights\.h5: .*\(layer 'second'\) contains NaN"):
        average_weights([path], tmp_path / "b.weights.h5")


def test_bad_paths(tmp_path: Path) -> None:
    good, out = save(small_model(), tmp_path / "a.weights.h5"), tmp_path / "out.weights.h5"
    with pytest.raises(ValueError, match="no files"):
        average_weights([], out)
    with pytest.raises(FileNotFoundError, match=r"b\.weights\.h5: no such file"):
        average_weights([good, tmp_path / "b.weights.h5"], out)
    with pytest.raises(FileExistsError, match=r"a\.weights\.h5 exists"):
        average_weights([good], good)
    with pytest.raises(ValueError, match="must all be"):
        average_weights([good], tmp_path / "out.keras")
    with pytest.raises(ValueError, match="must end in"):
        average_weights([good], tmp_path / "out.h5")
    for name in ("text.weights.h5", "text.keras"):
        (tmp_path / name).write_text("neither HDF5 nor zip")
        with pytest.raises(ValueError, match="not weights that Keras wrote"):
            average_weights([tmp_path / name], tmp_path / f"out-{name}")
    assert not list(tmp_path.glob("out*"))


class StopAfter(keras.callbacks.Callback):
    """Stops training after an epoch, as early stopping does."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = epoch == self.epoch


def with_average() -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(
        keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), "mse", jit_compile=False
    )
    return model


@pytest.mark.slow
def test_averages_outlive_an_early_stop_on_disk_alone(tmp_path):
    """Keras' `fit` restores the training weights; if this fails, recipes need no workaround."""
    inputs, targets = np.eye(2, dtype="float32"), np.ones((2, 1), "float32")
    saved = tmp_path / "last.weights.h5"
    model = with_average()
    callbacks = [SwapAverageWeights(), SaveWeights(saved), StopAfter(1)]
    model.fit(inputs, targets, epochs=5, verbose=0, callbacks=callbacks)
    after_fit = model.get_weights()
    model.load_weights(saved)
    averages = model.get_weights()
    assert np.abs(after_fit[0] - averages[0]).max() > 1e-3

    training = with_average()
    training.fit(inputs, targets, epochs=2, verbose=0)  # without the swap: ends with averages
    assert_same(training.get_weights(), averages)


def test_where_a_swap_stood_is_remembered():
    swap, other = SwapAverageWeights(), SwapAverageWeights()
    swap._ema_weights_in_model = True
    other.load_state(swap.state())
    assert other._ema_weights_in_model is True


@pytest.mark.parametrize(
    ("scores", "chosen", "weight"),
    [
        ({"last": 1.0, "average of 2": 2.0}, "average of 2", 2.0),
        ({"last": 2.0, "average of 2": 1.0}, "last", 3.0),
        ({"last": 1.0, "average of 2": 1.0}, "last", 3.0),
    ],
)
def test_the_better_weights_stay_in_the_model(
    scores: dict[str, float], chosen: str, weight: float
) -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    averaging = AverageLastWeights(num_kept=2)
    averaging.set_model(model)
    for epoch, value in enumerate((1.0, 3.0)):
        model.set_weights([np.full((1, 1), value, "float32")])
        averaging.on_epoch_end(epoch)
    measured = {}

    def score(name: str) -> float:
        measured[name] = model.get_weights()[0].item()
        return scores[name]

    assert averaging.keep_better(score) == chosen
    assert measured == {"last": 3.0, "average of 2": 2.0}, "each with the weights of its name"
    assert model.get_weights()[0].item() == weight


def test_a_score_that_fails_leaves_the_last_weights() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    averaging = AverageLastWeights(num_kept=2)
    averaging.set_model(model)
    for epoch, value in enumerate((1.0, 3.0)):
        model.set_weights([np.full((1, 1), value, "float32")])
        averaging.on_epoch_end(epoch)
    with pytest.raises(KeyError, match="average of 2"):
        averaging.keep_better({"last": 1.0}.__getitem__)
    assert model.get_weights()[0].item() == 3.0
