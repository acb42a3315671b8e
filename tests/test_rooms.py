"""What the rooms of this package show, and to whom."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import keras_transformers as kt
import keras_transformers.serving
from keras_transformers.cli import stubs

SCRIPT = """
import keras_transformers as kt
from keras_transformers.layers import MultiHeadAttention, TransformerBlock

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
reveal_type(kt.pipelines.Classification.label)
reveal_type(kt.serving.Client)
"""


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
    names = "BatchingOptions Client Code Limits ModelSettings RequestError Server Tls"
    assert {*names.split(), "client", "protocol", "server"} == set(dir(keras_transformers.serving))


@pytest.mark.slow
def test_a_users_script_has_types(tmp_path):
    """mypy, as an editor does, knows the types of public names; none of them is `Any`."""
    (tmp_path / "script.py").write_text(SCRIPT)
    # mypy cannot see through the import hook of an editable install: the package is copied.
    shutil.copytree(Path(kt.__file__).parent, tmp_path / "site" / "keras_transformers")
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "script.py"]
    environment = {**os.environ, "MYPYPATH": "site"}
    found = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    revealed = [line for line in found.stdout.splitlines() if "Revealed type" in line]
    assert len(revealed) == SCRIPT.count("reveal_type"), found.stdout
    assert not [line for line in revealed if 'is "Any"' in line], found.stdout
    assert any('tagging.Tagger"' in line for line in revealed), found.stdout
