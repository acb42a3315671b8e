"""Installs the newest version of every dependency, beyond setup.cfg's bounds, and runs the tests.

    make test-newest PYTHON=python3.13         # with release candidates; PRE= leaves them out
    python tests/runtimes/newest.py --python python3.13 --folder build/newest --pre

Packages in `LATE` each need a certain TensorFlow, and would keep pip from a newer one. They come
last and without their dependencies: where tensorflow-text then does not load, the tests run with
core ops.

It prints the versions that setup.cfg does not allow yet, and the files whose tests failed. The exit
status is 1 if any did, or if pip found no set of versions. Run it nightly: then a release that
breaks something is known the day after.
"""

import argparse
import configparser
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = "keras-transformers"
# keras-hub is what keras-nlp needs.
LATE = ("keras-hub", "keras-nlp", "tensorflow-serving-api", "tensorflow-text")


def requirements(config: configparser.ConfigParser, extra: str = "") -> Iterator[Requirement]:
    """Returns what the project needs, or one of its extras, those that the extra names among it."""
    section, key = ("options.extras_require", extra) if extra else ("options", "install_requires")
    for line in config[section][key].splitlines():
        if line.strip() and not line.strip().startswith("#"):
            requirement = Requirement(line.strip())
            if requirement.name == PROJECT:
                for each in sorted(requirement.extras):
                    yield from requirements(config, each)
            else:
                yield requirement


def without_upper_bounds(requirement: Requirement) -> str:
    """Returns the requirement for pip, with its lower bounds alone."""
    lower = [str(each) for each in requirement.specifier if each.operator in (">=", ">", "!=")]
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{','.join(sorted(lower))}"


def beyond(needed: Sequence[Requirement], installed: dict[str, str]) -> list[str]:
    """Returns a line for each installed version that its requirement does not allow."""
    return [
        f"{each.name} {version}: setup.cfg allows {each.specifier}"
        for each in needed
        if (version := installed.get(each.name.lower().replace("_", "-")))
        and not each.specifier.contains(version, prereleases=True)
    ]


def broken(report: Path) -> dict[str, list[str]]:
    """Returns the failed tests of each file from pytest's XML."""
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            found.setdefault(case.get("classname", ""), []).append(case.get("name", ""))
    return found


def in_turn(needed: Sequence[Requirement]) -> tuple[list[str], list[str]]:
    """Returns what pip installs with all that it needs, and then what it installs alone."""
    late = {each.name.replace("_", "-") for each in needed} & set(LATE)
    first = [without_upper_bounds(each) for each in needed if each.name not in late]
    return first, sorted({*late, *(["keras-hub"] if "keras-nlp" in late else [])})


def install(python: str, folder: Path, needed: Sequence[Requirement], *, pre: bool) -> Path:
    """Makes an environment with the newest of everything, and returns its interpreter."""
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    made = folder / "bin" / "python"
    first, late = in_turn(needed)
    pip = [made, "-m", "pip", "install", "--quiet"]
    upgrade = [*pip, "--upgrade", *(["--pre"] if pre else [])]
    subprocess.run([*upgrade, *first], check=True)
    subprocess.run([*upgrade, "--no-deps", *late], check=True)
    subprocess.run([*pip, "--no-deps", "-e", ROOT], check=True)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--python", default=sys.executable, help="the interpreter to test with")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "newest")
    parser.add_argument("--pre", action="store_true", help="release candidates too")
    parser.add_argument("tests", nargs="*", help="what pytest runs; all default tests if left out")
    arguments = parser.parse_args()
    if shutil.which(arguments.python) is None:
        parser.error(f"--python {arguments.python}: no such interpreter")
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    needed = [*requirements(config), *requirements(config, "dev")]
    folder = arguments.folder.absolute()
    python = install(arguments.python, folder, needed, pre=arguments.pre)
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format", "json"], check=True, capture_output=True
    )
    installed = {
        each["name"].lower().replace("_", "-"): each["version"]
        for each in json.loads(listed.stdout)
    }
    for line in beyond(needed, installed):
        print(line, flush=True)
    report = folder / "report.xml"
    options = ["-q", "-n", "2", "--dist", "loadfile", f"--junitxml={report}"]
    status = subprocess.run(
        [python, "-m", "pytest", *options, *arguments.tests], cwd=ROOT, check=False
    )
    for file, tests in sorted(broken(report).items()):
        print(f"{file}: {len(tests)} failed, such as {tests[0]}")
    return status.returncode


if __name__ == "__main__":
    sys.exit(main())
