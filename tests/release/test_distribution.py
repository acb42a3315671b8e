"""What is installed: the published wheel does what the README says, and so does a checkout."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from checks import copy_checkout

import keras_transformers as kt

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
NAME = f"keras_transformers-{kt.__version__}"
# What a user writes, with a misspelt name in the last line.
SCRIPT = """
import keras_transformers as kt
from keras_transformers.layers import MultiHeadAttention, TransformerBlock

answer: kt.pipelines.Classification
reveal_type(kt.bert_base)
reveal_type(kt.list_models)
reveal_type(kt.create_model)
reveal_type(kt.load)
reveal_type(kt.load("folder", pipeline="tagging"))
reveal_type(kt.export)
reveal_type(kt.layers.MultiHeadAttention)
reveal_type(TransformerBlock)
reveal_type(kt.heads.classifier)
reveal_type(kt.tokenizers.WordPieceTokenizer)
reveal_type(kt.pipelines.TextClassifier)
reveal_type(answer.label)
reveal_type(kt.serving.Client)
classify = kt.load("folder", pipeline="classification", labels=["bad"], pair=True)
kt.fit(classify, ([], []), validation=0.1, epochs=3, lora=8, warmup_fraction=0.1)
"""
MISSPELT = """
kt.lod("folder")
kt.load("folder", labls=["bad"])
kt.fit(classify, ([], []), epoch=3)
kt.evaluate(classify, ([], []), colums={})
kt.export(classify, "folder", weight_dtype="int8")
kt.save(classify, "folder", format="transformers")
"""


def test_one_version_is_written_everywhere():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## (\S+?),? ", changelog, re.M)[0] == kt.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == kt.__version__
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    """A folder with the files to publish, built from the files that git tracks; in .names, they."""
    folder = tmp_path_factory.mktemp("release")
    names = copy_checkout(folder / "checkout")
    (folder / "names").write_text("\n".join(names), "utf-8")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist")]
    done = subprocess.run(
        [*command, str(folder / "checkout")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_the_sdist_has_every_file_of_the_repository(release):
    with tarfile.open(release / "dist" / f"{NAME}.tar.gz") as sdist:
        found = {member.name.removeprefix(f"{NAME}/") for member in sdist if member.isfile()}
    wanted = set((release / "names").read_text("utf-8").splitlines())
    made = {name for name in found if name == "PKG-INFO" or ".egg-info/" in name}
    assert (wanted - found, found - wanted - made) == (set(), set())


@pytest.mark.slow
def test_the_wheel_has_the_package_with_the_recipes_and_nothing_else(release):
    with zipfile.ZipFile(release / "dist" / f"{NAME}-py3-none-any.whl") as wheel:
        found = {name for name in wheel.namelist() if not name.startswith(f"{NAME}.dist-info/")}
    names = (release / "names").read_text("utf-8").splitlines()
    wanted = {name for name in names if name.startswith("keras_transformers/")}
    wanted |= {f"keras_transformers/{name}" for name in names if name.startswith("recipes/")}
    assert (wanted - found, found - wanted) == (set(), set())


@pytest.fixture(scope="module")
def new_environment(tmp_path_factory) -> Callable[[], Path]:
    """Makes environments; returns the folder of their commands.

    They share what is installed beside the package that the tests run, but not that package.
    """
    shared = tmp_path_factory.mktemp("shared")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "keras_transformers" not in entry.name:  # the package, and the path to a checkout
            (shared / entry.name).symlink_to(entry)

    def make() -> Path:
        folder = tmp_path_factory.mktemp("environment")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "shared.pth").write_text(f"{shared}\n", "utf-8")
        return folder / "bin"

    return make


def run(commands: Path, folder: Path, *command: str, status: int = 0) -> str:
    """Runs a command of an environment in a folder, with nothing that points to the checkout."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(commands / command[0]), *command[1:]],
        cwd=folder,
        env=kept | {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def install(commands: Path, folder: Path, *arguments: str) -> None:
    """Installs from a folder. pip fails if a requirement is missing among what is shared."""
    run(commands, folder, "python", "-m", "pip", "install", "--no-index", *arguments)


@pytest.fixture(scope="module")
def installed(release, new_environment) -> Path:
    """The commands of an environment into which the README's lines installed the wheel."""
    commands = new_environment()
    lines = re.findall(r"^    pip install ('?keras-transformers\S*)", README, re.M)
    assert "'keras-transformers[serving]'" in lines
    for line in lines:
        install(commands, release, "--find-links", "dist", line.strip("'"))
    return commands


@pytest.fixture(scope="module")
def editable(release, new_environment) -> Path:
    """The commands of an environment with an editable install of a checkout."""
    commands = new_environment()
    install(commands, release, "--no-build-isolation", "-e", "./checkout")
    return commands


@pytest.fixture(params=["installed", "editable"])
def either(request) -> Path:
    """The commands of an environment with the wheel, and of one with an editable install."""
    return request.getfixturevalue(request.param)


@pytest.mark.slow
def test_the_readmes_lines_run_from_the_wheel(installed, minilm_dir, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "minilm").symlink_to(minilm_dir)
    lines = [
        *("import importlib.metadata, keras_hub, keras_nlp", "print(kt.__file__)"),
        "print(keras_nlp.models.BertBackbone is keras_hub.models.BertBackbone)",
        "print(importlib.metadata.version('keras-transformers'))",
    ]
    (tmp_path / "readme.py").write_text("\n".join([*blocks, *lines]), "utf-8")
    *_, file, same, version = run(installed, tmp_path, "python", "readme.py").splitlines()
    assert Path(file).is_relative_to(installed.parent)
    assert same == "True", "keras-nlp comes with the package and shows keras-hub's names"
    assert version == kt.__version__
    row = run(
        installed, tmp_path, "keras-transformers", "predict", "saved_models/mine", "--text", "Good."
    )
    assert '"label": ' in row


@pytest.mark.slow
def test_a_users_script_has_types(either, tmp_path):
    """mypy, as an editor does, knows the types of public names; none of them is `Any`."""
    (tmp_path / "script.py").write_text(SCRIPT + MISSPELT.lstrip())
    printed = run(either, tmp_path, "python", "-m", "mypy", "script.py", status=1)
    revealed = [line for line in printed.splitlines() if "Revealed type" in line]
    assert len(revealed) == SCRIPT.count("reveal_type"), printed
    assert not [line for line in revealed if 'is "Any"' in line], printed
    assert any('tagging.pipeline.Tagger"' in line for line in revealed), printed
    first = len(SCRIPT.splitlines()) + 1
    lines = {int(line) for line in re.findall(r"script.py:(\d+): error: ", printed)}
    assert lines == set(range(first, first + len(MISSPELT.splitlines()) - 1)), printed
    assert '"lod"' in printed
    assert 'did you mean "epochs"?' in printed


@pytest.mark.slow
def test_the_recipes_are_listed(either, tmp_path):
    listed = run(either, tmp_path, "keras-transformers", "train")
    assert [line.split()[0] for line in listed.splitlines()] == sorted(
        path.stem for path in (ROOT / "recipes").rglob("*.py")
    )


@pytest.mark.slow
def test_a_recipe_runs_from_the_wheel(installed, tmp_path):
    helped = run(installed, tmp_path, "keras-transformers", "train", "classification", "--help")
    assert "usage: keras-transformers train classification [-h] [OPTIONS]" in helped
    assert "--label-smoothing FLOAT" in helped
    rows = [
        f"a {label} film, {number}\t{label}\n" for number in range(20) for label in ("good", "bad")
    ]
    (tmp_path / "train.tsv").write_text("".join(rows), "utf-8")
    options = ("--train-file", "train.tsv", "--epochs", "2", "--export", "saved_models/fasttext")
    run(installed, tmp_path, "keras-transformers", "train", "fasttext_classification", *options)
    assert (tmp_path / "runs/fasttext_classification/metrics.json").is_file()
    assert (tmp_path / "saved_models/fasttext/1/saved_model.pb").is_file()
