"""TensorFlow's start-up notices do not reach stderr, and errors do."""

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
    "E0000 00:00:1795459225.450101   12628 x.cc:1] Unable to register cuDNN factory: Attempting to",
]
ERRORS = [
    "E0000 00:00:1795459230.551193   12628 cuda_platform.cc:52] failed call to cuInit: INTERNAL: "
    "CUDA error: Failed call to cuInit: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "F0000 00:00:1795459230.551193   12628 tensor.cc:1] Check failed: 1 == 2",
    "Fatal Python error: Segmentation fault",
]
# What TensorFlow may say once it is loaded: there is no GPU, or no AVX-512.
LATER = ("failed call to cuInit", "oneDNN supports DT_INT64 only on")


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


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A folder with a `tensorflow` that writes notices and errors while it is loaded."""
    folder = tmp_path_factory.mktemp("library")
    lines = "\n".join([*NOTICES, *ERRORS, ""]).encode()
    (folder / "tensorflow").mkdir()
    (folder / "tensorflow/__init__.py").write_text(
        "import contextlib, os, tensorflow.part\n"
        f"with contextlib.suppress(OSError): os.write(2, {lines!r})\n"
        "if 'FAIL' in os.environ: raise ImportError('no such library')\n"
    )
    (folder / "tensorflow/part.py").touch()
    return folder


def said(library, code, **environment):
    """What reaches stderr from a process that imports `quiet`, then runs `code`; its status."""
    path = f"{library}{os.pathsep}{ROOT}"
    done = run(
        "-c", f"import keras_transformers.quiet, os, sys; {code}", PYTHONPATH=path, **environment
    )
    return done.stderr.splitlines(), done.returncode


def test_notices_are_dropped_and_errors_pass(library):
    again = "import tensorflow; tensorflow.part; os.write(2, b'I0000 00:00:1 later\\n')"
    assert said(library, again) == ([*ERRORS, "I0000 00:00:1 later"], 0)


def test_an_import_that_fails_loses_no_error(library):
    lines, status = said(library, "import tensorflow", FAIL="1")
    assert (lines[: len(ERRORS)], lines[-1], status) == (ERRORS, "ImportError: no such library", 1)


def test_a_closed_stderr_is_no_error(library):
    assert said(library, "os.close(2); import tensorflow; os._exit(3)") == ([], 3)


def test_the_processes_of_a_job_are_quiet_too(library):
    code = (
        "from keras_transformers.jobs.engines import Local, Stage; "
        "Local(2)([Stage('load', exec, ['import tensorflow'])], None)"
    )
    assert said(library, code) == (ERRORS, 0)


def test_with_level_0_tensorflow_says_everything(library):
    lines, _ = said(library, "import tensorflow", TF_CPP_MIN_LOG_LEVEL="0")
    assert lines == [*NOTICES, *ERRORS]


def test_the_log_level_is_2_unless_it_is_set(library):
    code = "print(os.environ['TF_CPP_MIN_LOG_LEVEL'], file=sys.stderr)"
    assert said(library, code)[0] == ["2"]
    assert said(library, code, TF_CPP_MIN_LOG_LEVEL="1")[0] == ["1"]


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


PREDICT = ("-m", "keras_transformers.cli.main", "predict", "saved_models/fill_mask_en/1")


@pytest.fixture(scope="module", params=[0, 2], ids=["success", "error"])
def prediction(request):
    """A prediction whose model was loaded, with the expected status; a text too many fails it."""
    more = ("--text-b", "a second text") if request.param else ()
    return request.param, run(*PREDICT, "--text", "She opened the [MASK].", *more)


@pytest.mark.slow
def test_a_prediction_is_quiet_but_for_errors(prediction):
    status, done = prediction
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if not any(x in line for x in LATER)]
    assert [line.partition(" takes ")[0] for line in lines] == (
        ["keras-transformers: saved_models/fill_mask_en/1"] if status else []
    )
    assert ("probabilities" in done.stdout) is (status == 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [
        ("recipes/classification.py",),
        ("-m", "keras_transformers.cli.main", "train", "classification"),
    ],
    ids=["script", "command"],
)
def test_a_recipes_help_and_its_errors_are_quiet(recipe):
    helped = run(*recipe, "--help")
    assert (helped.returncode, helped.stderr, "--weights" in helped.stdout) == (0, "", True)
    failed = run(*recipe, "--train-file", "no.tsv", "--dev-file", "no.tsv", "--weights", "no")
    assert failed.returncode == 2
    (line,) = failed.stderr.splitlines()
    assert line.startswith("error: --")
