"""The teacher forcing ratio at each update, and the callback that sets it."""

import math

import keras
import numpy as np
import pytest

from keras_transformers.training.teacher_forcing import TeacherForcingSchedule


def ratios(decay, steps, *, final_ratio=0.0, total_steps=1000):
    schedule = TeacherForcingSchedule(decay, final_ratio=final_ratio, total_steps=total_steps)
    return [schedule.ratio(step) for step in steps]


def test_constant_and_linear():
    assert ratios("constant", (0, 500, 5000), final_ratio=0.7) == [0.7] * 3
    assert ratios("linear", (0, 250, 1000, 5000), final_ratio=0.2) == pytest.approx(
        [1.0, 0.8, 0.2, 0.2]
    )


@pytest.mark.parametrize("total_steps", [2, 30, 1000, 10**6])
def test_the_inverse_sigmoid_is_the_papers_with_its_middle_in_the_middle(total_steps):
    found = ratios("inverse_sigmoid", range(0, total_steps, max(1, total_steps // 20)),
                   total_steps=total_steps)  # fmt: skip
    # The paper gives k, which follows from the first ratio, k / (k + 1).
    k = found[0] / (1 - found[0])
    steps = range(0, total_steps, max(1, total_steps // 20))
    assert found == pytest.approx([k / (k + math.exp(i / k)) for i in steps])
    middle, end = ratios("inverse_sigmoid", (total_steps / 2, total_steps), total_steps=total_steps)
    assert middle == pytest.approx(0.5)
    assert end == 0.0
    assert (np.diff(found) < 0).all()


def test_the_inverse_sigmoid_ends_at_the_final_ratio():
    start, middle, end = ratios("inverse_sigmoid", (0, 500, 1000), final_ratio=0.5)
    assert start == pytest.approx(1.0, abs=0.01)
    assert middle == pytest.approx(0.75)
    assert end == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decay": "cosine"}, "decay='cosine' .*'constant', 'linear'"),
        ({"final_ratio": 1.01}, "final_ratio=1.01 is not a ratio"),
        ({"final_ratio": -0.01}, "final_ratio=-0.01 is not a ratio"),
        ({"final_ratio": float("nan")}, "final_ratio=nan is not a ratio"),
        ({"total_steps": 0}, "total_steps is 0, must be 1 or more"),
    ],
)
def test_wrong_arguments_are_named(changes, message):
    arguments = {"decay": "linear", "final_ratio": 0.5, "total_steps": 10} | changes
    with pytest.raises(ValueError, match=message):
        TeacherForcingSchedule(arguments.pop("decay"), **arguments)


def regression(*, ratio):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    if ratio is not None:
        model.teacher_forcing = keras.Variable(ratio, trainable=False)
    return model


class Watch(keras.callbacks.Callback):
    """Records the ratio of each update."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        self.seen.append(float(self.model.teacher_forcing))


def fit(model, epochs, initial_epoch=0):
    schedule = TeacherForcingSchedule("linear", final_ratio=0.0, total_steps=8)
    watch = Watch()
    history = model.fit(
        np.ones((4, 2), "float32"),
        np.ones((4, 1), "float32"),
        batch_size=1,
        epochs=epochs,
        initial_epoch=initial_epoch,
        callbacks=[schedule, watch],
        verbose=0,
    )
    return watch.seen, history.history["teacher_forcing"]


def test_each_update_has_its_ratio_and_so_after_a_stop():
    expected = [1.0 - step / 8 for step in range(8)]
    whole, logged = fit(regression(ratio=0.5), 2)
    assert whole == pytest.approx(expected)
    assert logged == pytest.approx([expected[3], expected[7]])
    model = regression(ratio=0.5)
    fit(model, 1)
    stopped = regression(ratio=0.5)  # a new process, with only the optimizer's number of updates
    stopped.optimizer.iterations.assign(model.optimizer.iterations)
    assert fit(stopped, 2, initial_epoch=1)[0] == pytest.approx(expected[4:])


@pytest.mark.parametrize("ratio", [None])
def test_a_model_on_the_fast_path_has_no_ratio_to_set(ratio):
    with pytest.raises(ValueError, match="no teacher forcing ratio"):
        fit(regression(ratio=ratio), 1)
