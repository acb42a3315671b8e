"""What the rooms of this package show, and to whom."""

import subprocess
import sys
from pathlib import Path

import pytest

import keras_transformers as kt
import keras_transformers.serving
from keras_transformers.cli import stubs


def test_every_stub_is_up_to_date():
    """`make stubs` writes them."""
    found = dict(stubs.stubs())
    assert set(stubs.PACKAGE.rglob("__init__.pyi")) == set(found)
    for file, lines in found.items():
        assert file.read_text("utf-8").splitlines() == lines, f"{file}: run `make stubs`"


def test_the_package_shows_what_its_stub_says():
    stub = Path(kt.__file__).with_suffix(".pyi").read_text("utf-8")
    for name in dir(kt):
        assert name in stub, name


def test_a_room_shows_its_modules_and_their_names_and_those_of_its_sub_rooms():
    shown = dir(kt.layers)
    assert {"attention", "MultiHeadAttention", "recurrent", "LSTMCell"} <= set(shown)
    assert kt.layers.LSTMCell is kt.layers.recurrent.LSTMCell
    with pytest.raises(AttributeError, match=r"'NoSuchLayer'.* TokenEmbedding"):
        _ = kt.layers.NoSuchLayer


def test_nothing_is_imported_to_be_shown():
    code = (
        "import sys, keras_transformers as kt; assert 'corpus_bleu' in dir(kt.evaluation); "
        "assert not [m for m in sys.modules if m.startswith('keras_transformers.evaluation.')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_serving_shows_what_its_sub_rooms_have():
    names = (
        "ApiKeys BatchingOptions Client Code Gateway Limits ModelSettings RequestError Server Tls"
    )
    rooms = {"client", "gateway", "protocol", "server"}
    assert {*names.split(), *rooms} == set(dir(keras_transformers.serving))
