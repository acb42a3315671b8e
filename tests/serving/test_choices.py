"""Inputs that hold a list of texts per row, through both protocols and the command."""

import io
import json
import shutil
import sys

import httpx
import pytest
import tiny

from keras_transformers.cli.main import main
from keras_transformers.results import Choice
from keras_transformers.saved_model.graphs import rewriting
from keras_transformers.serving import Client, ModelSettings, Server

TEXTS = ["two dogs", "a film", "good"]
CHOICES = [["a film", "good", "very bad"], ["good"], ["bad", "two"]]


@pytest.fixture(scope="module")
def served():
    folder = tiny.exported("multiple_choice").parent
    with Server([ModelSettings("choices", folder)], rest_port=0, grpc_port=0) as server:
        assert server.wait_until_loaded(120)
        yield server


@pytest.fixture(scope="module", params=["rest", "grpc"])
def target(request, served):
    port = served.rest_port if request.param == "rest" else served.grpc_port
    return f"http://127.0.0.1:{port}" if request.param == "rest" else f"127.0.0.1:{port}"


def expected():
    return tiny.pipeline("multiple_choice").rows({"text": TEXTS, "choices": CHOICES})


def same(rows, wanted):
    for found, row in zip(rows, wanted, strict=True):
        assert found["choice"] == row["choice"]
        assert found["probabilities"] == pytest.approx(row["probabilities"], abs=1e-5)


def test_a_client_gives_lists(target):
    with Client(target, batch_size=2, timeout_s=120) as client:
        same(client.rows(TEXTS, CHOICES, model="choices"), expected())
        (answer,) = client.ask(TEXTS[:1], CHOICES[:1], model="choices")
        assert isinstance(answer, Choice)
        assert client.ask(TEXTS[0], CHOICES[0], model="choices").choice == answer.choice
        with pytest.raises(ValueError, match="choices .*list of strings"):
            client.ask(TEXTS, TEXTS, model="choices")
        with pytest.raises(ValueError, match=r"^choices\[1\]\[0\] .*surrogate"):
            client.ask(TEXTS[:2], [["a", "b"], ["\ud83d"]], model="choices")
        with pytest.raises(ValueError, match="takes .*choices.*, not 1 arguments"):
            client.ask(TEXTS, model="choices")


@pytest.mark.one_case
def test_an_export_says_its_task_or_its_outputs_do(tmp_path, target):
    """Two exports in saved_models lack the signature that says it; other tasks have any outputs."""
    with Client(target) as client:
        said = client.signatures("choices")["__task"]
        assert (said.method_name, said.inputs, said.outputs) == ("multiple_choice", {}, {})
    for task, answers in ((None, Choice), ("another", dict), ("next_sentence", dict)):
        folder = tmp_path / str(task)
        shutil.copytree(tiny.exported("multiple_choice"), folder / "1")
        with rewriting(folder / "1") as graph:
            del graph.signature_def["__task"]
            if task:
                graph.signature_def["__task"].method_name = task
        with Server([ModelSettings("copy", folder)], rest_port=0, grpc_port=None) as server:
            assert server.wait_until_loaded(120)
            with Client(f"http://127.0.0.1:{server.rest_port}", timeout_s=120) as client:
                (answer,) = client.ask(TEXTS[:1], CHOICES[:1], model="copy")
                assert type(answer) is answers


def test_the_command_too(target, capsys, monkeypatch):
    options = ("--choice", "a film", "--choice", "good", "--choice", "very bad")
    assert main(["ask", target, "two dogs", *options, "--model", "choices"]) == 0
    same([json.loads(capsys.readouterr().out)], expected()[:1])
    lines = ["\t".join([text, *choices]) for text, choices in zip(TEXTS, CHOICES, strict=True)]
    data = io.BytesIO("\n".join(lines).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
    assert main(["ask", target, "--model", "choices"]) == 0
    same([json.loads(line) for line in capsys.readouterr().out.splitlines()], expected())


def test_rows_of_json(served):
    url = f"http://127.0.0.1:{served.rest_port}/v1/models/choices:predict"
    instances = [
        {"text": text, "choices": [*choices, "", ""][:3]}
        for text, choices in zip(TEXTS, CHOICES, strict=True)
    ]
    rows = httpx.post(url, json={"instances": instances}, timeout=120).json()["predictions"]
    for row in rows:
        row["probabilities"] = row["probabilities"][: row["num_choices"]]
    same(rows, expected())
    ragged = [{**row, "choices": list(filter(None, row["choices"]))} for row in instances]
    refused = httpx.post(url, json={"instances": ragged}, timeout=120)
    assert (refused.status_code, "element: 1 key: choices" in refused.text) == (400, True)
