"""Folders of Model2Vec and of StaticEmbedding, as those libraries compute them."""

import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
from checks import says
from safetensors.numpy import load_file, save_file

import keras_transformers as kt

GOLDEN = Path(__file__).parents[2] / "golden"
MAKE = runpy.run_path(str(GOLDEN / "make_static.py"))
FROZEN = json.loads((GOLDEN / "static.json").read_text("utf-8"))
FOLDERS, TEXTS, TOKENS = MAKE["FOLDERS"], MAKE["TEXTS"], MAKE["TOKENS"]


def written(name, folder):
    FOLDERS[name][1](folder)
    return folder


def vectors(embed, texts=TEXTS):
    return np.array([answer.vector for answer in embed(texts)], np.float32)


def expected(name):
    return np.array(FROZEN[name], np.float32)


def close(found, wanted):
    """Within 1e-5, of the largest number if it is above 1; Model2Vec rounds float16 itself."""
    np.testing.assert_allclose(found, wanted, atol=1e-5 * max(1, np.abs(wanted).max()))


@pytest.mark.one_case
@pytest.mark.parametrize("name", FOLDERS)
def test_vectors_are_the_librarys(name, tmp_path):
    embed = kt.load(written(name, tmp_path / "folder"))
    found, wanted = vectors(embed), expected(name)
    if name == "float16":  # Model2Vec rounds its means to float16
        np.testing.assert_allclose(found, wanted, atol=2e-3)
    else:
        close(found, wanted)
    assert not found[TEXTS.index("")].any()
    zebras = found[TEXTS.index("zebra zebra")]
    assert zebras.any() == (FOLDERS[name][0] == "sentence-transformers")


@pytest.mark.reference
@pytest.mark.parametrize("name", FOLDERS)
def test_the_golden_vectors_are_the_librarys(name, tmp_path):
    library = FOLDERS[name][0]
    pytest.importorskip(library.replace("-", "_"))
    folder = written(name, tmp_path / "folder")
    close(MAKE["vectors_of"](library, folder, TEXTS), expected(name))


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["plain", "mapping", "whole texts", "module in the root"])
def test_what_is_written_comes_back(name, tmp_path):
    embed = kt.load(written(name, tmp_path / "folder"))
    kt.save(embed, tmp_path / "again", format="huggingface")
    again = kt.load(tmp_path / "again")
    close(vectors(again), vectors(embed))
    assert again.config() == embed.config()
    assert again.tokenizer.config() == embed.tokenizer.config()
    embed.save(tmp_path / "saved")
    np.testing.assert_array_equal(vectors(kt.load(tmp_path / "saved")), vectors(embed))


@pytest.mark.reference
@pytest.mark.parametrize("name", ["plain", "mapping", "module"])
def test_both_libraries_read_what_is_written(name, tmp_path):
    pytest.importorskip("model2vec")
    pytest.importorskip("sentence_transformers")
    embed = kt.load(written(name, tmp_path / "folder"))
    kt.save(embed, tmp_path / "again", format="huggingface")
    others = ("zebra", "long", "zero")  # unknown, or too long
    known = [text for text in TEXTS if not any(word in text for word in others)]
    wanted = vectors(embed, known)
    for library in ("model2vec", "sentence-transformers"):
        found = MAKE["vectors_of"](library, tmp_path / "again", known)
        if name == "module" and library == "model2vec":  # it has no Normalize of that folder
            found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
        close(found, wanted)


def test_sentence_transformers_gets_zeros_for_what_model2vec_drops(tmp_path):
    embed = kt.load(written("plain", tmp_path / "folder"))
    kt.save(embed, tmp_path / "again", format="huggingface")
    table = load_file(tmp_path / "again/model.safetensors")["embeddings"]
    assert not table[TOKENS.index("[UNK]")].any()
    np.testing.assert_array_equal(table[2:], MAKE["table"]()[2:])
    modules = json.loads((tmp_path / "again/modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == [
        "StaticEmbedding",
        "Normalize",
    ]


def test_prompts_and_other_tasks(tmp_path):
    folder = written("module", tmp_path / "folder")
    settings = {"prompts": {"query": "good "}, "default_prompt_name": "query", "truncate_dim": 3}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    embed = kt.load(folder)
    assert vectors(embed).shape == (len(TEXTS), 3)
    plain = kt.load(written("module", tmp_path / "plain"))
    np.testing.assert_allclose(
        vectors(embed, ["film"])[0], vectors(plain, ["good film"])[0, :3], atol=1e-6
    )
    classify = kt.load(folder, pipeline="classification", labels=["bad", "good"])
    answers = classify(["a good film", ""])
    assert all(0 < answer.probabilities[0] < 1 for answer in answers)


def _edit_config(folder, **fields):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def _edit_tensors(folder, **tensors):
    file = folder / "model.safetensors"
    found = {**load_file(file), **tensors}
    save_file({name: x for name, x in found.items() if x is not None}, file)


def _edit_tokenizer(folder, edit):
    file = folder / "tokenizer.json"
    contents = json.loads(file.read_text("utf-8"))
    edit(contents["model"])
    file.write_text(json.dumps(contents))


def _nan():
    table = MAKE["table"]()
    table[3, 2] = np.nan
    return table


def _pop(model):
    model["vocab"].pop("films")


BAD = {
    "a mapping beyond the table": (
        "mapping",
        lambda f: _edit_tensors(f, mapping=np.full(len(TOKENS), 9)),
        "mapping has 9 ... rows 0 to 8 ... download",
    ),
    "a mapping below it": (
        "mapping",
        lambda f: _edit_tensors(f, mapping=np.full(len(TOKENS), -1)),
        "mapping has -1",
    ),
    "a mapping that is no integers": (
        "mapping",
        lambda f: _edit_tensors(f, mapping=np.zeros(len(TOKENS), "float32")),
        "mapping is float32 ... expected integers",
    ),
    "weights of another number of tokens": (
        "weights",
        lambda f: _edit_tensors(f, weights=np.ones(3)),
        "weights is (3,) ... each of 22 tokens",
    ),
    "NaN": (
        "plain",
        lambda f: _edit_tensors(f, embeddings=_nan()),
        "with NaN or infinity: ... 1 of 110",
    ),
    "a tokenizer of another size": (
        "plain",
        lambda f: _edit_tokenizer(f, _pop),
        "tokenizer.json has 21 tokens ... vectors for 22 ... copy the tokenizer",
    ),
    "ids with a gap": (
        "plain",
        lambda f: _edit_tokenizer(f, lambda model: model["vocab"].update(films=30)),
        "ids of its tokens are not 0, 1, 2",
    ),
    "a model of words": (
        "plain",
        lambda f: _edit_tokenizer(f, lambda model: model.update(type="WordLevel")),
        "'WordLevel' ... expected WordPiece, BPE or Unigram",
    ),
    "two tables": (
        "plain",
        lambda f: _edit_tensors(f, **{"embedding.weight": MAKE["table"]()}),
        "expected one table",
    ),
    "no table": (
        "plain",
        lambda f: _edit_tensors(f, embeddings=None, weights=np.ones(len(TOKENS))),
        "no table",
    ),
    "a table of rank 1": (
        "plain",
        lambda f: _edit_tensors(f, embeddings=np.ones(len(TOKENS))),
        "expected (tokens, width)",
    ),
    "another tensor": (
        "plain",
        lambda f: _edit_tensors(f, other=np.ones(3)),
        "other are not part",
    ),
    "max_length": ("plain", lambda f: _edit_config(f, max_length=0), "max_length=0 ... above 0"),
    "normalize": ("plain", lambda f: _edit_config(f, normalize="yes"), "normalize='yes' ... true"),
    "another module": (
        "module",
        lambda f: (f / "modules.json").write_text(
            json.dumps(
                [
                    {"type": "sentence_transformers.models.StaticEmbedding", "path": ""},
                    {"type": "sentence_transformers.models.Dense", "path": "1_Dense"},
                ]
            )
        ),
        "StaticEmbedding, Dense ... only Normalize",
    ),
    "no tokenizer": ("plain", lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json"),
    "no weights": ("plain", lambda f: (f / "model.safetensors").unlink(), "model.safetensors"),
    "half a module": (
        "module",
        lambda f: shutil.rmtree(f / "0_StaticEmbedding"),
        "0_StaticEmbedding",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_folders(case, tmp_path):
    name, damage, message = BAD[case]
    folder = written(name, tmp_path / "folder")
    damage(folder)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        kt.load(folder)
    assert says(str(caught.value), message), str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_what_neither_library_computes_is_not_written(tmp_path):
    embed = kt.load(written("plain", tmp_path / "folder"))
    encoder = kt.families.static.static_vectors(vocabulary_size=len(TOKENS), embedding_dim=3)
    options = {"max_sequence_length": 6}
    cases = {
        "add no layers": kt.pipelines.Embedder(encoder, embed.tokenizer, pooling="max", **options),
        "no truncate_dim": kt.pipelines.Embedder(
            encoder, embed.tokenizer, truncate_dim=2, **options
        ),
        "another options": embed.with_options(max_sequence_length=5),
    }
    for message, pipeline in cases.items():
        with pytest.raises(ValueError, match=message):
            kt.save(pipeline, tmp_path / "again", format="huggingface")
        assert not (tmp_path / "again").exists()
