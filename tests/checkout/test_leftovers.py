"""The tests that read the repository's tree pass beside whatever a user made in the checkout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from checks import copy_checkout

ROOT = Path(__file__).parents[2]
# The tests that search folders of the tree, list what is in it, or take an export's newest version.
READERS = [
    "tests/test_architecture.py",
    "tests/dependencies/test_private_api.py",
    "tests/test_readme.py",
    "tests/test_rooms.py",
    "tests/release",
    "tests/test_saved_models.py",
    "tests/benchmarks/test_suite.py",
    "tests/cli",
    "tests/docs",
    "tests/models/test_registry.py",
    "tests/runs/test_options.py",
    "tests/runs/test_strategies.py",
    "tests/saved_model/publishing/test_card.py",
    "tests/saved_model/test_export_commands.py::test_show_the_exports_in_the_repository",
    "tests/serving/test_deployment.py",
    "tests/serving/test_serving_docs.py",
]
# Slow ones that read the tree: all the others train, or read what they wrote themselves.
SLOW_READERS = [
    "tests/cli/test_quiet.py::test_a_prediction_is_quiet_but_for_errors",
    "tests/saved_model/test_audit.py::test_the_exports_in_the_repository_pass[sentiment_en]",
]
DAMAGED = "not what its name says"
# What `make quickstart`, the README's lines, `pip` and a retrained model leave in a checkout.
LEFTOVERS = {
    "saved_models/sentiment/1/saved_model.pb": DAMAGED,
    "saved_models/untrained/1/saved_model.pb": DAMAGED,
    "saved_models/sentiment_en/2/saved_model.pb": DAMAGED,
    "saved_models/fill_mask_en/2/saved_model.pb": DAMAGED,
    "saved_models/translate_de_en/2/saved_model.pb": DAMAGED,
    "saved_models/models.config": DAMAGED,
    "build/quickstart/train.tsv": "sentence\tlabel\na film\tpositive\n",
    "build/quickstart/run/metrics.json": DAMAGED,
    "build/lib/keras_transformers/models/stray.py": DAMAGED,
    "build/test_stray.py": "def test_of_another_project():\n    raise AssertionError\n",
    "build/README.md": "python recipes/none.py --no-such-option",
    "runs/reviews/metrics.json": DAMAGED,
    "runs/stray.py": DAMAGED,
    "sentiment/pipeline.json": DAMAGED,
    "sentiment-hf/config.json": DAMAGED,
    ".venv/lib/stray.py": DAMAGED,
}


@pytest.fixture(scope="module")
def used_checkout(tmp_path_factory) -> Path:
    """A copy of the files that git tracks or would track, and `LEFTOVERS`."""
    copy = tmp_path_factory.mktemp("used") / "checkout"
    copy_checkout(copy)
    for name, text in LEFTOVERS.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text, "utf-8")
    (copy / "minilm").symlink_to(".venv/lib/removed")
    return copy


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=checkout,
        env=kept | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "tests",
    [
        # The tutorials run in folders of their own and take most of the time.
        [*READERS, "--deselect", "tests/docs/test_tutorials.py::test_a_tutorial_runs"],
        [*SLOW_READERS, "-m", "slow"],
    ],
    ids=["default", "slow"],
)
def test_what_a_user_made_fails_no_test(used_checkout, tests):
    done = run(used_checkout, *tests)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_git_ignores_what_a_user_makes():
    """So that no commit takes them along; versions beside a published one are for the user."""
    names = [name for name in LEFTOVERS if "_en/2/" not in name] + ["minilm"]
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(names) - set(done.stdout.split()) == set()
