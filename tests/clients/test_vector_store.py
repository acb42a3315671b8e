"""The client of Qdrant, unmodified, in docs/deployment; it searches a folder itself."""

import importlib.util
import json
from pathlib import Path

import pytest
import tiny

import keras_transformers as kt

pytest.importorskip("qdrant_client", reason="needs qdrant-client: make test-clients")

PATH = Path(__file__).parents[2] / "docs/deployment/vector_store.py"
TEXTS = {"a": "a good film", "b": "two dogs!", "c": "very bad"}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location(PATH.stem, PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return tiny.pipeline("embedding").save(tmp_path_factory.mktemp("models") / "dense")


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    return tiny.pipeline("sparse_embedding").save(tmp_path_factory.mktemp("models") / "sparse")


@pytest.fixture
def run(script, tmp_path, dense, capsys):
    def fill(texts: dict, *options) -> list[str]:
        lines = [json.dumps({"id": name, "text": text}) for name, text in texts.items()]
        file = tmp_path / "texts.jsonl"
        file.write_text("\n".join(lines), "utf-8")
        options = {"--store": tmp_path / "store", "--dense": dense} | dict(options)
        script.main([str(file), *(str(x) for pair in options.items() for x in pair)])
        return capsys.readouterr().out.splitlines()

    return fill


def test_a_store_is_filled_and_asked(run, sparse):
    printed = run(TEXTS, ("--sparse", sparse), ("--ask", "two dogs!"))
    assert printed[0] == "3 texts, 3 of them new"
    assert printed[2] == "  b: two dogs!"


def test_only_what_the_store_lacks_is_added(run):
    run(TEXTS)
    assert run(TEXTS) == ["3 texts, 0 of them new"]
    assert run(TEXTS | {"a": "a bad film", "d": "film"}) == ["4 texts, 2 of them new"]


def test_vectors_of_another_model_are_refused(run, dense, sparse, tmp_path):
    run(TEXTS)
    embed = kt.load(dense)
    embed.model.set_weights([2 * weight for weight in embed.model.get_weights()])
    other = embed.save(tmp_path / "other")
    with pytest.raises(ValueError, match="other models for the text 'a': choose another"):
        run(TEXTS, ("--dense", other))
    with pytest.raises(ValueError, match="other models for the text 'a': choose another"):
        run(TEXTS, ("--sparse", sparse))


def test_a_store_that_stops_answering(script, run, monkeypatch):
    monkeypatch.setattr(script, "BATCH", 2)
    add, calls = script.Store.add, []

    def once(store, corpus):
        if calls:
            raise script.ApiException("Connection refused")
        calls.append(corpus)
        return add(store, corpus)

    monkeypatch.setattr(script.Store, "add", once)
    with pytest.raises(SystemExit, match="stopped answering after 2 texts .*: they are stored"):
        run(TEXTS)
    monkeypatch.setattr(script.Store, "add", add)
    assert run(TEXTS)[-1] == "3 texts, 1 of them new"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": 2}', "bad.jsonl, line 3: .*expected a JSON object"),
        ('{"id": "1", "text": "b"}', "line 3: the id '1' is that of line 1 too"),
    ],
)
def test_a_bad_line_is_named(script, tmp_path, line, message):
    file = tmp_path / "bad.jsonl"
    file.write_text(f'{{"id": 1, "text": "a"}}\n\n{line}\n')
    with pytest.raises(ValueError, match=message):
        list(script.parts(file))


def test_a_file_that_does_not_exist(run, script, tmp_path, capsys):
    with pytest.raises(SystemExit):
        script.main([f"{tmp_path}/none.jsonl", "--store", f"{tmp_path}/s", "--dense", "d"])
    assert "none.jsonl is not a file" in capsys.readouterr().err
