"""Folders of MultiVectorEncoder, PyLate and ColBERT: the vectors and scores are theirs."""

import base64
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt

GOLDEN = Path(__file__).parents[2] / "golden" / "late_interaction.json.gz"
PACKED = json.loads(gzip.decompress(GOLDEN.read_bytes()))
QUERIES, DOCUMENTS = PACKED["texts"]
NATIVE = "multi_vector_unattended"


def unpack(name, folder):
    for path, blob in PACKED["folders"][name]["files"].items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(PACKED["blobs"][blob]))
    return folder


def edited(folder, file, **fields):
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


def vectors(rank, side, texts):
    """The vectors of a signature, computed eagerly, which takes less time than a graph."""
    outputs = rank.other_signatures([])[side].function(text=tf.constant(texts))
    counts = outputs["num_vectors"].numpy()
    return [rows[:count] for rows, count in zip(outputs["vectors"].numpy(), counts, strict=True)]


def same(rank, answers):
    for found, expected in (
        (vectors(rank, "query", QUERIES), answers["queries"]),
        (vectors(rank, "document", DOCUMENTS), answers["documents"]),
    ):
        assert [len(one) for one in found] == [len(one) for one in expected]
        scale = max(1.0, max(np.abs(one).max() for one in expected))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5 * scale)
    documents = tf.constant([DOCUMENTS] * len(QUERIES))
    found = rank.answer(text=tf.constant(QUERIES), documents=documents)["scores"]
    np.testing.assert_allclose(found, answers["scores"], rtol=1e-5)


@pytest.mark.parametrize("name", PACKED["folders"])
def test_vectors_and_scores_are_the_originals(name, tmp_path):
    rank = kt.load(unpack(name, tmp_path / "folder"))
    assert isinstance(rank, kt.pipelines.LateInteraction)
    same(rank, PACKED["folders"][name])


@pytest.mark.parametrize(
    "name",
    [
        name if name == "multi_vector_text" else pytest.param(name, marks=pytest.mark.slow)
        for name in PACKED["folders"]
    ],
)
def test_what_is_written_comes_back(name, tmp_path):
    rank = kt.load(unpack(name, tmp_path / "folder"))
    kt.save(rank, tmp_path / "again", format="huggingface")
    again = kt.load(tmp_path / "again")
    assert again.config() == rank.config()
    one, other = (vectors(each, "query", QUERIES[:1])[0] for each in (rank, again))
    np.testing.assert_array_equal(one, other)


@pytest.mark.reference
@pytest.mark.parametrize("name", PACKED["folders"])
def test_multi_vector_encoder_reads_what_is_written(name, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers", minversion="6")
    rank = kt.load(unpack(name, tmp_path / "folder"))
    for part in ("folder", "again"):
        if part == "again":
            kt.save(rank, tmp_path / part, format="huggingface")
        theirs = sentence_transformers.MultiVectorEncoder(str(tmp_path / part), device="cpu")
        queries = theirs.encode_query(QUERIES, convert_to_numpy=True)
        documents = theirs.encode_document(DOCUMENTS, convert_to_numpy=True)
        same(
            rank,
            {
                "queries": queries,
                "documents": documents,
                "scores": theirs.similarity(queries, documents).numpy(),
            },
        )


def test_the_kinds_of_folders(tmp_path):
    config = kt.load(unpack("colbert", tmp_path / "colbert")).config()
    assert (config["query_prefix"], config["query_expansion"]) == ("[unused0] ", "unattended")
    config = kt.load(unpack("pylate", tmp_path / "pylate")).config()
    assert (config["query_prefix"], config["query_expansion"]) == ("[Q] ", "attended")
    assert "prefix_as_text" not in config
    config = kt.load(unpack("multi_vector_text", tmp_path / "text")).config()
    assert config["prefix_as_text"]
    assert (config["query_length"], config["document_length"]) == (16, 48)


def test_other_tasks_use_the_encoder(tmp_path):
    for name in ("colbert", NATIVE):
        embed = kt.load(unpack(name, tmp_path / name), pipeline="embedding")
        assert embed.answer_specs()["embedding"].shape[1] == 16


def test_a_bare_encoder_gets_a_new_projection(tmp_path):
    embed = tiny.pipeline("embedding")
    kt.save(embed, tmp_path / "bert", format="huggingface")
    rank = kt.load(tmp_path / "bert", pipeline="late_interaction", width=4)
    assert vectors(rank, "document", ["a film"])[0].shape == (4, 4)
    (tmp_path / "bert" / "modules.json").unlink()
    rank = kt.load(tmp_path / "bert", pipeline="late_interaction")
    assert vectors(rank, "query", ["a"])[0].shape == (3, 128)


DENSE, MASK = "1_Dense/config.json", "2_MultiVectorMask/config.json"
SETTINGS, LENGTHS = "config_sentence_transformers.json", "sentence_bert_config.json"


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        (SETTINGS, {"similarity_fn_name": "meanmaxsim"}, "'meanmaxsim'; only 'maxsim'"),
        (SETTINGS, {"prompts": {"query": 3}}, "3 before a query; expected a text"),
        (SETTINGS, {"prompts": [1]}, r"prompts=\[1\]"),
        (LENGTHS, {"transformer_task": "retrieval"}, "'retrieval'; only 'feature-extraction'"),
        (LENGTHS, {"processing_kwargs": {"text": {"padding": False}}}, "processing_kwargs"),
        (LENGTHS, {"query_expansion": {"strategy": "all"}}, "strategy 'fixed' or 'min'"),
        (LENGTHS, {"query_expansion": {"strategy": "fixed"}}, "query_expansion has no length"),
        (LENGTHS, {"document_length": "20"}, "document_length='20'; expected a number above 0"),
        (
            LENGTHS,
            {"query_expansion": {"strategy": "fixed", "length": 2}},
            "query_length=2: expected at least 4",
        ),
        (
            LENGTHS,
            {"query_expansion": {"strategy": "fixed", "length": 9, "token": "[Z]"}},
            r"expansion_token='\[Z\]' is not a token",
        ),
        (DENSE, {"in_features": 17}, "17 to 8 dimensions, but its weights have shape"),
        (DENSE, {"module_input_name": "sentence_embedding"}, "'sentence_embedding'; only"),
        (MASK, {"skiplist_tasks": ["query"]}, r"skiplist_tasks=\['query'\]"),
        (MASK, {"keep_only_token_ids": [3]}, "keep_only_token_ids is for images"),
        (MASK, {"skiplist_words": "."}, "skiplist_words='.'; expected a list"),
    ],
)
def test_what_cannot_be_reproduced(file, fields, message, tmp_path):
    folder = edited(unpack(NATIVE, tmp_path / "folder"), file, **fields)
    with pytest.raises(ValueError, match=message) as raised:
        kt.load(folder)
    assert str(tmp_path / "folder") in str(raised.value)


def test_other_modules(tmp_path):
    folder = unpack(NATIVE, tmp_path / "folder")
    modules = json.loads((folder / "modules.json").read_text())
    name = "sentence_transformers.multi_vector_encoder.modules.HierarchicalTokenPooling"
    (folder / "modules.json").write_text(json.dumps([*modules, {**modules[-1], "type": name}]))
    with pytest.raises(ValueError, match=r"Normalize, HierarchicalTokenPooling; only Transformer"):
        kt.load(folder)


def test_a_projection_of_another_width(tmp_path):
    folder = unpack("multi_vector_attended", tmp_path / "folder")
    for file in ("config.json", "model.safetensors"):
        (folder / "1_Dense" / file).write_bytes((folder / "2_Dense" / file).read_bytes())
    with pytest.raises(ValueError, match="takes 12 dimensions, but gets 16"):
        kt.load(folder)
    folder = unpack("colbert", tmp_path / "colbert")
    edited(folder, "artifact.metadata", query_maxlen=3)
    with pytest.raises(ValueError, match="query_length=3: expected at least 4"):
        kt.load(folder)
