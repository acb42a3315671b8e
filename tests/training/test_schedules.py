"""Learning rates against the papers' formulas, written out."""

import math

import keras
import numpy as np
import pytest

from keras_transformers.training.schedules import (
    WarmupCosineDecay,
    WarmupInverseSqrt,
    WarmupLinearDecay,
    noam,
)


def rates(schedule, steps):
    return np.array([float(schedule(step)) for step in steps])


def test_linear_rises_to_the_peak_and_falls_to_the_end():
    schedule = WarmupLinearDecay(2e-5, warmup_steps=10, total_steps=100)
    got = rates(schedule, range(120))
    expected = [2e-5 * (u / 10 if u <= 10 else max(0.0, (101 - u) / 91)) for u in range(1, 121)]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-12)
    assert got.argmax() == 9
    assert got[99] > 0  # the last update still moves the weights
    assert got[100] == 0


def test_cosine():
    schedule = WarmupCosineDecay(1.0, warmup_steps=4, total_steps=20, final_learning_rate=0.1)
    expected = [
        u / 4 if u <= 4 else 0.1 + 0.9 * (1 + math.cos(math.pi * min(1, (u - 4) / 17))) / 2
        for u in range(1, 31)
    ]
    np.testing.assert_allclose(rates(schedule, range(30)), expected, rtol=1e-5)


def test_noam_is_equation_3_of_the_paper():
    steps = [0, 1, 99, 3999, 4000, 99_999]
    paper = [512**-0.5 * min((s + 1) ** -0.5, (s + 1) * 4000**-1.5) for s in steps]
    np.testing.assert_allclose(rates(noam(hidden_dim=512), steps), paper, rtol=1e-5)
    peak = noam(hidden_dim=512).peak_learning_rate
    assert peak == pytest.approx((512 * 4000) ** -0.5)
    np.testing.assert_allclose(
        rates(WarmupInverseSqrt(peak, warmup_steps=4000), steps), paper, rtol=1e-5
    )


@pytest.mark.parametrize(
    "schedule",
    [
        WarmupLinearDecay(1.0, warmup_steps=0, total_steps=10),
        WarmupCosineDecay(1.0, warmup_steps=0, total_steps=10),
        WarmupInverseSqrt(1.0, warmup_steps=0),
    ],
)
def test_without_warmup_the_first_update_has_the_peak(schedule):
    got = rates(schedule, range(10))
    assert got[0] == 1.0
    assert (np.diff(got) < 0).all()


@pytest.mark.one_case
@pytest.mark.parametrize(
    "schedule",
    [
        WarmupLinearDecay(1e-3, warmup_steps=3, total_steps=9, final_learning_rate=1e-5),
        WarmupCosineDecay(1e-3, warmup_steps=3, total_steps=9, final_learning_rate=1e-5),
        WarmupInverseSqrt(1e-3, warmup_steps=3),
        noam(hidden_dim=8, warmup_steps=3),
    ],
)
def test_schedules_survive_saving_with_their_optimizer(tmp_path, schedule):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(schedule), loss="mse", jit_compile=False)
    x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
    model.fit(x, y, batch_size=1, epochs=1, verbose=0)  # inside the compiled step
    assert float(model.optimizer.learning_rate) == pytest.approx(float(schedule(4)))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert type(again._learning_rate) is type(schedule)
    np.testing.assert_array_equal(
        rates(again._learning_rate, range(12)), rates(schedule, range(12))
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WarmupInverseSqrt(0.0, warmup_steps=1), "peak_learning_rate is 0.0"),
        (lambda: WarmupInverseSqrt(math.nan, warmup_steps=1), "peak_learning_rate is nan"),
        (lambda: WarmupInverseSqrt(1.0, warmup_steps=-1), "warmup_steps is -1"),
        (lambda: WarmupLinearDecay(1.0, warmup_steps=5, total_steps=4), "total_steps is 4"),
        (lambda: WarmupCosineDecay(1.0, warmup_steps=0, total_steps=0), "total_steps is 0"),
        (
            lambda: WarmupLinearDecay(1.0, warmup_steps=0, total_steps=1, final_learning_rate=2.0),
            "final_learning_rate is 2.0",
        ),
        (lambda: noam(hidden_dim=0), "hidden_dim is 0"),
    ],
)
def test_impossible_schedules_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
