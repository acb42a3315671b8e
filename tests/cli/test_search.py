"""The command that finds the texts nearest to a query."""

import io
import json

import numpy as np
import pytest
import tiny

import keras_transformers as kt
from keras_transformers.cli.main import main

TEXTS = ["a good film", "bad", "very long film", "a film !", "good"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    tiny.pipeline("embedding").save(folder / "saved")
    return folder


def found(capsys, *words):
    assert main(["search", *map(str, words)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def nearest(embed, text, **names):
    vectors = np.array([each.vector for each in embed(TEXTS, prompt_name=names.get("document"))])
    wanted = np.array(embed(text, prompt_name=names.get("query")).vector)
    scores = vectors @ wanted / np.linalg.norm(vectors, axis=1) / np.linalg.norm(wanted)
    return np.argsort(-scores, kind="stable"), scores


@pytest.mark.one_case
@pytest.mark.parametrize("kind", ["saved", "export"])
def test_the_nearest_come_first(kind, folder, capsys):
    path = folder / "saved" if kind == "saved" else tiny.exported("embedding")
    rows = found(capsys, path, "--texts", folder / "texts.txt", "--query", "good film", "--top", 3)
    order, scores = nearest(tiny.pipeline("embedding"), "good film")
    assert [row["line"] - 1 for row in rows] == order[:3].tolist()
    assert [row["rank"] for row in rows] == [1, 2, 3]
    np.testing.assert_allclose([row["score"] for row in rows], scores[order[:3]], atol=1e-5)
    assert all(row["text"] == TEXTS[row["line"] - 1] for row in rows)


def test_vectors_that_predict_wrote_and_queries_on_stdin(folder, capsys, monkeypatch):
    texts, vectors = folder / "texts.txt", folder / "vectors"
    export = tiny.exported("embedding")
    assert main(["predict", str(export), "--input", str(texts), "--output", str(vectors)]) == 0
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"good film\nbad\n")))
    rows = found(capsys, export, "--texts", texts, "--vectors", vectors / "texts.jsonl")
    assert [row["query"] for row in rows] == ["good film"] * 5 + ["bad"] * 5
    order, _ = nearest(tiny.pipeline("embedding"), "bad")
    assert [row["line"] - 1 for row in rows[5:]] == order.tolist()


def test_a_query_of_the_shell_that_is_not_utf8(folder, capsys):
    rows = found(capsys, folder / "saved", "--texts", folder / "texts.txt", "--query", "a \udcff")
    assert rows[0]["query"] == "a \ufffd"


@pytest.mark.one_case
@pytest.mark.parametrize("kind", ["saved", "export"])
def test_prompts(kind, folder, capsys, tmp_path):
    plain = tiny.pipeline("embedding")
    embed = kt.pipelines.Embedder(
        plain.model, plain.tokenizer, prompts={"query": "very ", "document": "bad bad "}
    )
    path = tmp_path / kind
    embed.save(path) if kind == "saved" else kt.export(embed, path, check=False)
    rows = found(capsys, path, "--texts", folder / "texts.txt", "--query", "good")
    order, scores = nearest(embed, "good", query="query", document="document")
    assert [row["line"] - 1 for row in rows] == order.tolist()
    np.testing.assert_allclose([row["score"] for row in rows], scores[order], atol=1e-5)


def error(capsys, *words):
    assert main(["search", *map(str, words)]) != 0
    return capsys.readouterr().err


def test_errors(folder, capsys, tmp_path):
    query = ("--texts", folder / "texts.txt", "--query", "good")
    classifier = tiny.exported("classification")
    assert "answers label, label_index, probabilities, not an embedding" in error(
        capsys, classifier, *query
    )
    few, wrong, narrow = (tmp_path / name for name in ("few", "wrong", "narrow"))
    few.write_text('{"embedding": [1, 2]}\n')
    wrong.write_text('{"label": "good"}\n')
    narrow.write_text('{"embedding": [1, 2]}\n' * 5)
    saved = folder / "saved"
    assert "few has 1 vectors for the 5 texts" in error(capsys, saved, *query, "--vectors", few)
    assert "wrong:1: no embedding" in error(capsys, saved, *query, "--vectors", wrong)
    assert "narrow has vectors of 2 numbers" in error(capsys, saved, *query, "--vectors", narrow)
    (tmp_path / "empty").write_text("")
    assert "empty: no texts" in error(capsys, saved, "--texts", tmp_path / "empty", "--query", "a")


@pytest.mark.slow
def test_words_and_reranking(folder, capsys, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join([TEXTS[0], "", *TEXTS[1:]]) + "\n")
    tiny.pipeline("reranking").save(tmp_path / "rank")
    options = ("--texts", tmp_path / "texts.txt", "--words", "--rerank", tmp_path / "rank")
    rows = found(capsys, folder / "saved", *options, "--query", "good film", "--top", 2)
    search = kt.pipelines.Searcher.of(
        *(tiny.pipeline("embedding"), TEXTS), words=True, rerank=tiny.pipeline("reranking"), top_k=2
    )
    assert [row["text"] for row in rows] == search("good film").texts
    lines = {text: i + 1 + (i > 0) for i, text in enumerate(TEXTS)}
    assert [row["line"] for row in rows] == [lines[row["text"]] for row in rows]
    message = error(capsys, folder / "saved", *options, "--vectors", tmp_path, "--query", "a")
    assert "leave out --vectors" in message


@pytest.mark.slow
def test_an_export_with_its_own_texts(folder, capsys, tmp_path):
    search = kt.pipelines.Searcher.of(tiny.pipeline("embedding"), TEXTS, ids="abcde")
    export = kt.export(search, tmp_path / "search", check=False)
    rows = found(capsys, export, "--query", "good film", "--query", "bad", "--top", 9)
    assert [row["id"] for row in rows[:5]] == search("good film").ids
    assert [row["query"] for row in rows] == ["good film"] * 5 + ["bad"] * 5
    assert "holds no texts: pass --texts" in error(capsys, folder / "saved", "--query", "a")
    assert "are for --texts" in error(capsys, export, "--words", "--query", "a")


@pytest.mark.parametrize(
    ("lines", "messages"),
    [
        ("", ("vectors: no vectors", "predict --output")),
        ('{"embedding": [1, NaN]}\n', ("vectors:1: ", "nan", "predict --output")),
        ('{"embedding": [1, 1e39]}\n', ("vectors:1: ", "1e+39", "predict --output")),
        (f'{{"embedding": [1{"0" * 400}]}}\n', ("vectors:1: ", "inf", "predict --output")),
        ('{"embedding": [true, false]}\n', ("vectors:1: ", "[True, False]")),
        ('{"embedding": [1, 2]}\n{"embedding": []}\n', ("vectors:2: ", "[]")),
        ('{"embedding": [1, 2]}\n{"embedding": [[1], [2]]}\n', ("vectors:2: ", "[[1], [2]]")),
        ('{"embedding": [1, 2]}\n{"embedding": [1]}\n', ("vectors:2: 1 numbers", "has 2")),
        (f'{{"embedding": {"[" * 5000}1{"]" * 5000}}}\n', ("vectors:1: ", "100 deep")),
        ("[1, 2]\n", ("vectors:1: ", "None")),
    ],
)
def test_vectors_are_finite_numbers_of_one_length(lines, messages, folder, capsys, tmp_path):
    (tmp_path / "vectors").write_text(lines)
    query = ("--texts", folder / "texts.txt", "--query", "good")
    found = error(capsys, folder / "saved", *query, "--vectors", tmp_path / "vectors")
    assert all(message in found for message in messages), found


def test_large_vectors_have_an_angle(folder, capsys, tmp_path):
    vectors = np.full((5, 8), 1.0, "float32")
    vectors[1:, 0] = -30
    scores = []
    for scale in (1.0, 1e30):
        lines = (json.dumps({"embedding": (scale * row).tolist()}) for row in vectors)
        (tmp_path / "vectors").write_text("\n".join(lines))
        query = ("--texts", folder / "texts.txt", "--query", "good")
        rows = found(capsys, folder / "saved", *query, "--vectors", tmp_path / "vectors")
        scores.append([row["score"] for row in rows])
    assert scores[1] == pytest.approx(scores[0], abs=1e-5)
