"""How the benchmarks decide that answers are the same and that memory has grown."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def soak():
    pytest.importorskip("grpc")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import serving_soak

        yield serving_soak
    for name in ("serving", "serving_soak"):
        sys.modules.pop(name, None)


def test_answers_are_the_same_but_for_the_last_digits_of_floats(soak):
    expected = {"label": b"good \xff", "scores": np.float32([0.5, 2.0]), "words": np.array([b"a"])}
    found = {"label": "good \N{REPLACEMENT CHARACTER}", "scores": [0.50001, 2.0], "words": ["a"]}
    assert soak.same(found, expected)
    for wrong in ({"label": "bad"}, {"scores": [0.51, 2.0]}, {"scores": [0.5]}, {"words": ["b"]}):
        assert not soak.same(found | wrong, expected)
    assert not soak.same({"label": "good"}, expected)


@pytest.mark.parametrize(
    ("values", "growth"),
    [
        ([500, 900, 1000, 1000, 1000, 1000, 1000, 1000], 0.0),
        ([500, 900, 1000, 1000, 1000, 1200, 1300, 1300], 0.3),
        ([100, 200], 0.0),  # too few to tell
    ],
)
def test_growth_is_seen_after_the_first_quarter(soak, values, growth):
    run = soak.Soak(None, [], {}, total=0, seconds=0)
    run.memory = [(number, float(mib)) for number, mib in enumerate(values)]
    assert run.growth() == pytest.approx(growth)


def test_a_row_of_the_table(soak):
    import serving

    slow = serving.Tally([0.1] * 10, wall=1.0)
    fast = serving.Tally([0.01] * 99 + [0.5], wall=2.0, cpu=0.4)
    words = fast.row("fast", slow).split()
    assert words == ["fast", "50.0/s", "(", "5.00)", "10.0", "ms", "500.0", "ms", "4.0", "ms"]
    kinds = serving.kinds_of(["a b", "a b c d e f g h i"], 3)
    assert kinds == {"short": ["a b"] * 3, "mixed": ["a b", "a b c d e f g h i", "a b"]}
    with pytest.raises(SystemExit, match="at most 8 words"):
        serving.kinds_of(["a b c d e f g h i"], 3)
