"""Requests to the explorer: what it answers, and what it refuses."""

import json

import httpx
import pytest
import tiny

from keras_transformers.explorer import explorer_server, open_subjects, subjects


@pytest.fixture(scope="module")
def server():
    found = [subjects.of_pipeline("sentiment", tiny.pipeline("classification"))]
    with explorer_server(found, host="127.0.0.1", port=0) as server:
        yield f"http://127.0.0.1:{server.rest_port}"


def post(server, path, body, **headers):
    headers = {"content-type": "application/json"} | headers
    return httpx.post(f"{server}{path}", content=json.dumps(body), headers=headers, timeout=60)


def test_the_page_may_load_and_ask_nothing_elsewhere(server):
    for path in ("/", "/main.js", "/style.css"):
        found = httpx.get(server + path)
        assert found.status_code == 200
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "connect-src 'self'" in policy
        assert "http:" not in found.text.replace("http://www.w3.org", "")
        assert "https:" not in found.text


def test_models_and_views(server):
    (model,) = httpx.get(f"{server}/explore/models").json()
    assert model["name"] == "sentiment"
    assert model["labels"] == ["negative", "positive"]
    answer = post(server, "/explore/sentiment/answer", {"text": "a good film"}).json()
    expected = tiny.pipeline("classification")("a good film")
    assert answer["outputs"]["label"] == [expected.label]


def test_choices_are_lists():
    pipeline, export = tiny.pipeline("multiple_choice"), tiny.exported("multiple_choice")
    subject = subjects.of_pipeline("choices", pipeline)
    example = subject.about["example"]
    assert [type(example[name]) for name in ("text", "choices")] == [str, list]
    assert open_subjects([export])[0].about["example"] == example
    given = {"text": "a good film", "choices": ["good", "two dogs"]}
    answer = subject.views["answer"](given)["outputs"]
    assert answer["choice"] == [pipeline(*given.values()).choice]
    (attention,) = subject.views["attention"](given).values()
    assert attention["keys"][:6] == ["[CLS]", "a", "good", "film", "[SEP]", "good"][:6]
    assert subject.views["tokens"](given)["tokens"] == ["a", "good", "film"]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "said"),
    [
        ("/explore/nobody/answer", {}, {}, 404, "no such model"),
        ("/explore/sentiment/beams", {}, {}, 404, "no such view"),
        ("/explore/sentiment/answer", {}, {}, 400, "text"),
        *(
            (
                f"/explore/sentiment/{view}",
                {"text": "a \ud83d"},
                {},
                400,
                "half of a surrogate pair",
            )
            for view in ("answer", "tokens", "attention", "shares")
        ),
        (
            "/explore/sentiment/answer",
            {"text": {"review": ["a"]}},
            {},
            400,
            "text[0] is {'review': ['a']}, a",
        ),
        ("/explore/sentiment/answer", {"text": ["a"]}, {}, 400, "text[0] is ['a'], a list"),
        ("/explore/sentiment/answer", {"text": "a"}, {"content-type": "text/plain"}, 415, "json"),
        ("/explore/sentiment/answer", {"text": "a"}, {"host": "evil.example"}, 403, "Host"),
        ("/explore/sentiment/answer", {"text": "a" * 9_000_000}, {}, 413, "larger"),
    ],
)
def test_wrong_requests_are_refused(server, path, body, headers, status, said):
    found = post(server, path, body, **headers)
    assert found.status_code == status
    assert said in found.json()["error"]


def test_a_nested_body_is_refused(server):
    headers = {"content-type": "application/json"}
    body = "[" * 5000 + "]" * 5000
    found = httpx.post(f"{server}/explore/sentiment/answer", content=body, headers=headers)
    assert found.status_code == 400
    assert "nested" in found.json()["error"]


def test_no_file_outside_the_page_is_served(server):
    for path in ("/../subjects.py", "/%2e%2e/subjects.py", "/..%2fsubjects.py"):
        assert httpx.get(server + path).status_code == 404


@pytest.mark.slow
def test_folders_become_subjects(tmp_path):
    tiny.pipeline("tagging").save(tmp_path / "tagger")
    found = open_subjects([tmp_path / "tagger", tiny.exported("fill_mask")])
    assert [each.about["kind"] for each in found] == ["weights", "export"]
    assert found[1].about["inputs"] == ["text"]
    assert found[1].name == tiny.exported("fill_mask").parent.name


def test_wrong_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing: no such folder"):
        open_subjects([tmp_path / "nothing"])
    tiny.pipeline("tagging").save(tmp_path / "a/tagger")
    tiny.pipeline("tagging").save(tmp_path / "b/tagger")
    with pytest.raises(ValueError, match="two .*'tagger'"):
        open_subjects([tmp_path / "a/tagger", tmp_path / "b/tagger"])
    (tmp_path / "export/1").mkdir(parents=True)
    (tmp_path / "export/1/saved_model.pb").touch()
    with pytest.raises(ValueError, match="no export of keras_transformers"):
        open_subjects([tmp_path / "export"])
