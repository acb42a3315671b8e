"""The page at /docs has every route and every field, and nothing from elsewhere."""

import dataclasses
import re

import pytest
from fastapi.testclient import TestClient

from keras_transformers.cli.gateway import Gateway
from keras_transformers.cli.serving import Serve
from keras_transformers.serving.gateway.application import application


@pytest.fixture(scope="module")
def client():
    return TestClient(application(None))


@pytest.fixture(scope="module")
def text(client):
    answer = client.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    return answer.text


@pytest.fixture(scope="module")
def description(client):
    return client.get("/openapi.json").json()


def test_nothing_runs_or_comes_from_elsewhere(text):
    assert not re.search(r"<script|<img|<link|<iframe|//|@import|url\(", text, re.IGNORECASE)


def test_every_route_and_field_is_there(text, description):
    for path, methods in description["paths"].items():
        for method in methods:
            assert f">{method.upper()} {path}<" in text
    for name, schema in description["components"]["schemas"].items():
        assert f'id="{name}"' in text
        for field in schema.get("properties", ()):
            assert f"<code>{field}</code>" in text


def test_options_that_the_page_names_are_those_of_both_commands(text):
    named = {name.replace("-", "_") for name in re.findall(r"--([a-z]+(?:-[a-z]+)+)", text)}
    assert "max_rows" in named
    for command in (Gateway, Serve):
        assert named <= {field.name for field in dataclasses.fields(command)}, command


def test_links_lead_somewhere(text):
    targets = set(re.findall(r'href="#([^"]*)"', text))
    assert targets
    assert targets <= set(re.findall(r'id="([^"]*)"', text))


def test_every_field_has_a_line(description):
    for name, schema in description["components"]["schemas"].items():
        for field, about in schema["properties"].items():
            assert about.get("description", "").endswith("."), (name, field)
            assert len(about["description"]) < 140, (name, field)


def test_names_of_types_are_plain(description):
    assert all(name.isalnum() for name in description["components"]["schemas"])
