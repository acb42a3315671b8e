"""The table of fields in docs/gateway.md is that of today, and its commands parse."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from keras_transformers.cli import main as cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fields():
    spec = importlib.util.spec_from_file_location("fields", ROOT / "docs" / "site" / "fields.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_fields_is_printed_from_the_types(fields):
    text = fields.PAGE.read_text("utf-8")
    assert fields.table().count("\n") > 20
    assert fields.printed(text) == text, "run python docs/site/fields.py"


def test_the_commands_parse(fields):
    text = re.sub(r"\\\n\s+", "", fields.PAGE.read_text("utf-8"))
    lines = re.findall(r"^    keras-transformers (.*)$", text, re.MULTILINE)
    assert lines
    for line in lines:
        assert callable(cli.parse(shlex.split(line, comments=True)).run)
