"""kill -9 and SIGTERM in separate processes: a small benchmarks/kill_and_resume.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "kills", "how"),
    [
        ("default", 1, "KILL"),
        ("mirrored", 2, "KILL"),
        ("multi_worker", 2, "KILL"),
        ("multi_worker", 2, "TERM"),
    ],
)
def test_a_training_that_was_stopped_ends_with_the_same_bits(strategy, kills, how):
    said = run("--strategies", strategy, "--kills", str(kills), "--signal", how)
    assert f"{strategy}: kills {kills}, difference 0 (weight 0, optimizer 0," in said


@pytest.mark.slow
@pytest.mark.parametrize("training", ["classifier", "lora", "embedding"])
def test_a_training_that_was_killed_at_every_moment_ends_with_the_same_bits(training):
    said = run("--moments", training)
    assert f"{training}: killed at " in said
    assert "difference 0 (weight 0, optimizer 0, figures of the epochs 0)" in said


def run(*options):
    result = subprocess.run(
        [sys.executable, "benchmarks/kill_and_resume.py", *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    return result.stdout
