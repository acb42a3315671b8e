import configparser

import newest
from packaging.requirements import Requirement

CONFIG = configparser.ConfigParser()
CONFIG.read_string("""
[options]
install_requires =
    keras>=3.13,<3.16
    # A comment.
    numpy>=1.26,<2.5
[options.extras_require]
beam =
    keras-transformers[urls]
    apache-beam>=2.72,<2.78
urls =
    fsspec>=2024.6,<2027
""")


def test_requirements_and_extras_of_extras():
    assert [each.name for each in newest.requirements(CONFIG)] == ["keras", "numpy"]
    assert [each.name for each in newest.requirements(CONFIG, "beam")] == ["fsspec", "apache-beam"]


def test_upper_bounds_go():
    requirement = Requirement("mkdocstrings[python]>=1,<2,!=1.3")
    assert newest.without_upper_bounds(requirement) == "mkdocstrings[python]!=1.3,>=1"


def test_what_keeps_pip_from_a_newer_tensorflow_comes_last():
    names = ("keras>=3.13", "tensorflow>=2.20,<2.22", "tensorflow-text>=2.20", "keras-nlp>=0.20")
    first, late = newest.in_turn([Requirement(name) for name in names])
    assert first == ["keras>=3.13", "tensorflow>=2.20"]
    assert late == ["keras-hub", "keras-nlp", "tensorflow-text"]


def test_versions_beyond_the_bounds_are_named():
    needed = [*newest.requirements(CONFIG), Requirement("tensorflow_text>=2.20,<2.22")]
    installed = {"keras": "3.16.0rc1", "numpy": "2.4.1", "tensorflow-text": "2.22.0"}
    assert newest.beyond(needed, installed) == [
        "keras 3.16.0rc1: setup.cfg allows <3.16,>=3.13",
        "tensorflow_text 2.22.0: setup.cfg allows <2.22,>=2.20",
    ]


def test_failed_tests_are_listed_by_file(tmp_path):
    (tmp_path / "report.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.a" name="passes"/>'
        '<testcase classname="tests.a" name="fails"><failure/></testcase>'
        '<testcase classname="tests.b" name="breaks"><error/></testcase></testsuite></testsuites>'
    )
    assert newest.broken(tmp_path / "report.xml") == {"tests.a": ["fails"], "tests.b": ["breaks"]}
