"""benchmarks/complexity.py: its fit, its theory and its measurements."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "complexity.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("complexity", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["complexity"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["complexity"]


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_the_fit_finds_known_exponents(benchmark, exponent):
    sizes = np.array([100, 200, 400, 700])
    assert benchmark.fitted_exponent(sizes, 3e-6 * sizes**exponent) == pytest.approx(exponent)
    noise = np.exp(np.random.default_rng(0).normal(0, 0.03, 4))
    noisy = benchmark.fitted_exponent(sizes, 3e-6 * sizes**exponent * noise)
    assert noisy == pytest.approx(exponent, abs=0.1)
    assert noisy != pytest.approx(exponent, abs=1e-6)


def test_theory_is_table_1_of_the_paper(benchmark):
    exponents = {(s.subject, s.figure, s.axis): s.theory for s in benchmark.sweeps()}
    expected = {
        ("self-attention", "time"): {"n": 2, "d": 1},
        ("recurrent", "time"): {"n": 1, "d": 2},
        ("convolution", "time"): {"n": 1, "d": 2, "k": 1},
        ("self-attention", "memory"): {"n": 2, "d": 1},
        ("recurrent", "memory"): {"n": 1, "d": 1},
        ("convolution", "memory"): {"n": 1, "d": 1},
        ("attention layer", "memory"): {"d": 1},
        ("attention in blocks", "memory"): {"n": 1},
        ("attention in a window", "memory"): {"n": 1},
        ("attention in a window", "time"): {"n": 1},
    }
    for (subject, figure), axes in expected.items():
        for axis, exponent in axes.items():
            assert exponents.pop((subject, figure, axis)) == pytest.approx(exponent)
    # The rest has two terms, so the exponent lies in between.
    assert {subject for subject, _, _ in exponents} == {"attention layer", "attention in blocks"}
    assert all(1 < exponent < 2 for exponent in exponents.values())


@pytest.mark.slow
def test_small_sweeps_are_measured_printed_and_drawn(tmp_path):
    """Runs in a separate process, which starts another one to measure memory."""
    program = f"""
import sys
sys.path.insert(0, {str(FILE.parent)!r})
import complexity as module
points = tuple(module.Point(n=n, d=64) for n in (64, 512))
chosen = [module.Sweep(name, "time", "n", points) for name in module.SUBJECTS]
larger = tuple(module.Point(n=n, d=64) for n in (256, 1024))
chosen.append(module.Sweep("self-attention", "memory", "n", larger))
found = module.run(chosen, rounds=1)
print(module.table(found))
module.plot(found, {str(tmp_path / "plot.png")!r})
small, large = found[-1][1]
assert large - small > 4 * (1024**2 - 256**2) * 4, (small, large)  # scores at the least
for sweep, (small, large) in found[:-1]:
    assert small > 0 and large > 0, (sweep, small, large)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    lines = result.stdout.splitlines()[-7:]
    assert lines[0].split() == ["layer", "figure", "over", "fitted", "theory", "measured"]
    assert "64: " in lines[1]
    assert "ms (d = 64)" in lines[1]
    assert "1024: " in lines[6]
    assert "MB (d = 64)" in lines[6]
    assert "k = 3" in lines[5]
    assert (tmp_path / "plot.png").stat().st_size > 10_000
