"""OpenNMT-tf's Transformers, with its own predictions by its own search."""

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from left_behind import VARIABLE

import keras_transformers as kt

DESCRIPTION = """
import opennmt
raise SystemExit("nobody runs this")
model = lambda: opennmt.models.Transformer(num_layers=2, num_heads=2{})
"""


@pytest.fixture(autouse=True)
def _untraced() -> None:
    """Graphs, as searches over many texts take longer without."""


@pytest.fixture
def folder(left_behind, tmp_path):
    """The averaged checkpoint of a run, which made its predictions, with the files beside."""
    if os.environ.get(VARIABLE):
        return of_run("transformer", left_behind, tmp_path, checkpoint="transformer/avg")
    copy = shutil.copytree(left_behind("onmt/transformer"), tmp_path / "run")
    (copy / "model_description.py").write_text(DESCRIPTION.format(""))
    return copy


def of_run(name, left_behind, tmp_path, *, checkpoint=None, more=""):
    copy = shutil.copytree(left_behind(f"onmt/{checkpoint or name}"), tmp_path / "run")
    for file in (f"{name}.yml", "src.vocab", "tgt.vocab"):
        shutil.copy(left_behind(f"onmt/{file}"), copy)
    (copy / "model_description.py").write_text(DESCRIPTION.format(more))
    return copy


def lines(left_behind, name):
    return left_behind(f"onmt/{name}").read_text("utf-8").splitlines()


@pytest.mark.slow
def test_predictions_are_opennmts_from_strings_in_the_export_too(folder, left_behind, tmp_path):
    translate = kt.load(folder)
    assert (translate.task, translate.num_beams) == ("translation", 4)
    assert (translate.rules, translate.length_penalty) == ("opennmt", 0.6)
    sources, wanted = lines(left_behind, "val.de"), lines(left_behind, "transformer.pred")
    assert translate.translate_all(sources) == wanted
    path = kt.export(translate, tmp_path / "saved_models/translate")
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    found = served(text=tf.constant(sources))["translation"].numpy()
    assert [text.decode() for text in found] == wanted
    kt.save(translate, tmp_path / "saved")
    assert kt.load(tmp_path / "saved").translate_all(sources) == wanted


@pytest.mark.slow
def test_other_searches_are_options(folder, left_behind):
    greedy = kt.load(folder, num_beams=1)
    wider = kt.load(folder, num_beams=5, rules="gnmt")
    sources = lines(left_behind, "val.de")
    assert greedy.translate_all(sources) != wider.translate_all(sources)
    assert greedy("").text == wider("").text == kt.load(folder)("").text == ""


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("transformer", ""),
        ("postnorm", ""),
        pytest.param("swiglu", ", ffn_activation=tf.nn.gelu", marks=pytest.mark.slow),
    ],
)
def test_logits_are_opennmts(name, more, left_behind, tmp_path):
    translate = kt.load(of_run(name, left_behind, tmp_path, more=more))
    with np.load(left_behind(f"onmt/{name}.npz")) as file:
        arrays = dict(file)
    inputs = {"source_token_ids": arrays["ids"], "target_token_ids": arrays["tin"]}
    found = translate.model({key: ids.astype("int32") for key, ids in inputs.items()})["logits"]
    real = np.arange(arrays["tin"].shape[1]) < arrays["tlen"][:, None]
    scale = np.abs(arrays["logits"]).max()
    np.testing.assert_allclose(
        found.numpy()[real], arrays["logits"][real], atol=1e-5 * scale, rtol=0
    )
    if name != "transformer":  # whose predictions an average made
        wanted = lines(left_behind, f"{name}.pred")
        assert translate.translate_all(lines(left_behind, "val.de")) == wanted


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("relative", "relative positions .*: serve its SavedModel"),
        ("lstm", "another OpenNMT-tf model"),
    ],
)
def test_other_models_are_refused_by_name(name, message, left_behind, tmp_path):
    with pytest.raises(ValueError, match=message):
        kt.load(of_run(name, left_behind, tmp_path))


@pytest.mark.parametrize(
    ("file", "text", "error", "message"),
    [
        (
            "model_description.py",
            None,
            ValueError,
            "how many heads .* 16 .*copy .*model_d",
        ),
        ("model_description.py", "num_heads = 0", ValueError, "num_heads=0; expected a number"),
        (
            "model_description.py",
            "\nx = f(\n  num_heads=0.5)",
            ValueError,
            r"model_description\.py:3: num_heads=0\.5; expected a number",
        ),
        ("model_description.py", "num_heads = (", ValueError, "py:1: not a description in Python"),
        ("model_description.py", f"x = {'-' * 60_000}1", ValueError, "how many heads"),
        (
            "model_description.py",
            f"f(ffn_activation={'.'.join('a' * 3000)})",
            ValueError,
            r"model_description\.py:1: ffn_activation=a\.a\.a.*; expected one of",
        ),
        (
            "model_description.py",
            "f(ffn_activation=partial(tf.nn.gelu, approximate=True))",
            ValueError,
            r"py:1: ffn_activation=partial\(tf\.nn\.gelu",
        ),
        ("model_description.py", "#" * 2**19, ValueError, "bytes, too many for a description"),
        (
            "model_description.py",
            "f(ffn_activation=elu)",
            ValueError,
            "ffn_activation=elu; expected one of",
        ),
        ("transformer.yml", None, FileNotFoundError, "no configuration .* source_vocabulary: copy"),
        (
            "transformer.yml",
            "beam_width: many",
            ValueError,
            "beam_width: many.*number",
        ),
        ("tgt.vocab", None, FileNotFoundError, "tgt.vocab is missing: copy the vocabulary data/"),
        ("tgt.vocab", "a\nb\n", ValueError, "tgt.vocab: the vocabulary starts with"),
        (
            "tgt.vocab",
            "<blank>\n<s>\n</s>\na\n",
            ValueError,
            "5 words with <unk>,.* has 20",
        ),
    ],
)
def test_missing_and_wrong_files_are_named(file, text, error, message, folder):
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    with pytest.raises(error, match=message):
        kt.load(folder)
