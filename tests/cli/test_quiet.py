"""TensorFlow's start-up notices do not reach stderr, and errors do, also those of C++."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").rglob("*.py"))
NOTICES = [
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795459225.450101   12628 port.cc:153] oneDNN custom operations are on.",
    "W0000 00:00:1795459225.450101   12628 x.cc:1] a warning",
    "E0000 00:00:1795459230.551193   12628 cuda_platform.cc:52] failed call to cuInit: INTERNAL: "
    "CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",
    "E0000 00:00:1795459232.440942   12628 util.cc:131] oneDNN supports DT_INT64 only on platforms "
    "with AVX-512. Falling back to the default Eigen-based implementation if present.",
]
ERRORS = [
    "E0000 00:00:1795459230.551193   12628 cuda_platform.cc:52] failed call to cuInit: INTERNAL: "
    "CUDA error: Failed call to cuInit: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "F0000 00:00:1795459230.551193   12628 tensor.cc:1] Check failed: 1 == 2",
    "Fatal Python error: Segmentation fault",
]


def run(*words, cwd=ROOT, **environment):
    """Runs Python as a user without settings of TensorFlow would."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    return subprocess.run(
        [sys.executable, *words],
        env=kept | {"PYTHONPATH": str(ROOT)} | environment,
        cwd=cwd,
        capture_output=True,
        text=True,
    )


def told(code="", **environment):
    """What reaches stderr if C++ writes all these lines, Python another one, and then `code`."""
    lines = "\n".join([*NOTICES, *ERRORS, ""])
    done = run(
        "-c",
        "import keras_transformers.quiet, os, sys\n"
        f"os.write(2, {lines.encode()!r}); print('from Python', file=sys.stderr); {code}",
        **environment,
    )
    return set(done.stderr.splitlines()), done.returncode


@pytest.mark.parametrize(
    ("code", "status"),
    [("", 0), ("sys.exit(3)", 3), ("os._exit(4)", 4), ("os.kill(os.getpid(), 9)", -9)],
)
def test_notices_are_dropped_and_all_else_is_told_however_the_process_ends(code, status):
    assert told(code) == ({*ERRORS, "from Python"}, status)


def test_a_child_is_quiet_too():
    code = (
        f"import subprocess; subprocess.run(['sh', '-c', 'echo \"{NOTICES[1]}\" >&2; echo x >&2'])"
    )
    assert told(code)[0] == {*ERRORS, "from Python", "x"}


def test_who_asks_for_tensorflows_messages_gets_them():
    assert told(TF_CPP_MIN_LOG_LEVEL="0")[0] == {*NOTICES, *ERRORS, "from Python"}
    assert told(TF_CPP_MIN_LOG_LEVEL="1")[0] == {NOTICES[2], *ERRORS, "from Python"}


def test_importing_the_package_changes_no_setting_and_no_stderr():
    code = (
        "import os, sys; before = sys.stderr, os.fstat(2); import keras_transformers\n"
        "print('TF_CPP_MIN_LOG_LEVEL' in os.environ, before == (sys.stderr, os.fstat(2)))"
    )
    assert run("-c", code).stdout == "False True\n"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_quiet_before_it_loads_tensorflow(recipe):
    imports = (
        name
        for node in ast.parse(recipe.read_text("utf-8")).body
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    )
    others = (name for name in imports if name.partition(".")[0] not in sys.stdlib_module_names)
    assert next(others) == "keras_transformers.quiet"


PREDICT = ("-m", "keras_transformers.cli.main", "predict", "saved_models/fill_mask_en")


@pytest.fixture(scope="module", params=[0, 2], ids=["success", "error"])
def prediction(request):
    """A prediction whose model was loaded, with the expected status; a text too many fails it."""
    more = ("--text-b", "a second text") if request.param else ()
    return request.param, run(*PREDICT, "--text", "She opened the [MASK].", *more)


@pytest.mark.slow
def test_a_prediction_is_quiet_but_for_errors(prediction):
    status, done = prediction
    assert done.returncode == status, done.stderr
    assert [line.partition(" takes ")[0] for line in done.stderr.splitlines()] == (
        ["keras-transformers: saved_models/fill_mask_en"] if status else []
    )
    assert ("probabilities" in done.stdout) is (status == 0)


@pytest.mark.slow
def test_a_recipes_help_and_its_errors_are_quiet():
    recipe = "recipes/classification.py"
    helped = run(recipe, "--help")
    assert (helped.returncode, helped.stderr, "--weights" in helped.stdout) == (0, "", True)
    failed = run(recipe, "--train-file", "no.tsv", "--dev-file", "no.tsv", "--weights", "no")
    assert failed.returncode == 2
    (line,) = failed.stderr.splitlines()
    assert line.startswith("error: --")
