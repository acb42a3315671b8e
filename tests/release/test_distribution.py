"""What is published: the wheel, installed outside the checkout, does what the README says."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from checks import copy_checkout

import keras_transformers as kt

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
NAME = f"keras_transformers-{kt.__version__}"


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
def installed(release) -> Path:
    """The commands of an environment into which the README's lines installed the wheel.

    It shares what is installed beside the package that the tests run, but not that package. Without
    an index, pip fails if one of the wheel's requirements is missing there.
    """
    shared = release / "shared"
    shared.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if (
            "keras_transformers" not in entry.name
        ):  # the package, and the links of editable installs
            (shared / entry.name).symlink_to(entry)
    environment = release / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(f"{shared}\n", "utf-8")
    lines = re.findall(r"^    pip install ('?keras-transformers\S*)", README, re.M)
    assert "'keras-transformers[serving]'" in lines
    for line in lines:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--python", str(environment), "install"),
                *("--no-index", "--find-links", str(release / "dist"), line.strip("'")),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return environment / "bin"


def run(installed: Path, folder: Path, *command: str) -> str:
    """Runs a command of the environment in a folder, with nothing that points to the checkout."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(installed / command[0]), *command[1:]],
        cwd=folder,
        env=kept | {"PATH": f"{installed}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_the_readmes_lines_run_from_the_wheel(installed, minilm_dir, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "minilm").symlink_to(minilm_dir)
    (tmp_path / "readme.py").write_text(
        "\n".join([*blocks, "import importlib.metadata", "print(kt.__file__)"])
        + "\nprint(importlib.metadata.version('keras-transformers'))\n",
        "utf-8",
    )
    *_, file, version = run(installed, tmp_path, "python", "readme.py").splitlines()
    assert Path(file).is_relative_to(installed.parent)
    assert version == kt.__version__
    row = run(
        installed, tmp_path, "keras-transformers", "predict", "saved_models/mine", "--text", "Good."
    )
    assert '"label": ' in row


@pytest.mark.slow
def test_a_recipe_runs_from_the_wheel(installed, tmp_path):
    listed = run(installed, tmp_path, "keras-transformers", "train")
    assert [line.split()[0] for line in listed.splitlines()] == sorted(
        path.stem for path in (ROOT / "recipes").rglob("*.py")
    )
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
