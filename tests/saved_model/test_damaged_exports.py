"""Damaged exports: `show`, `predict`, `check` and `warm-up` name the file in one line."""

import itertools
import json
import re
import shutil

import pytest
from checks import says
from tensorflow.core.protobuf.fingerprint_pb2 import FingerprintDef
from toy import export_doubling

from keras_transformers.cli.main import main
from keras_transformers.data.tables.reading import read_objects
from keras_transformers.files import read_json
from keras_transformers.saved_model import Predictor
from keras_transformers.saved_model.checks.trials import findings
from keras_transformers.saved_model.description import METADATA_FILE, describe, lines
from keras_transformers.saved_model.manifest import Provenance, record

DATA, INDEX = "variables/variables.data-00000-of-00001", "variables/variables.index"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return export_doubling(tmp_path_factory.mktemp("base"))


@pytest.fixture
def export(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model" / "1")


def change(export, *path, value):
    """Sets the field at `path` of the metadata; removes it if the value is None."""
    file = export / METADATA_FILE
    metadata = json.loads(file.read_text())
    place = metadata
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    file.write_text(json.dumps(metadata))


def only_line(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


SERVING = ("signatures", "serving_default")


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (SERVING, 5, "'serving_default' ... method_name, inputs and outputs"),
        ((*SERVING, "method_name"), None, "'serving_default' ... method_name, inputs and outputs"),
        ((*SERVING, "inputs"), [], "'serving_default' ... method_name, inputs and outputs"),
        ((*SERVING, "inputs", "x"), "float32", "'serving_default': inputs 'x' ... dtype and shape"),
        ((*SERVING, "outputs", "y", "shape"), 5, "outputs 'y' ... dtype and shape"),
        ((*SERVING, "outputs", "y", "shape"), ["?"], "['?'] ... integers"),
        (
            (*SERVING, "examples"),
            {"inputs": {}},
            "examples ... list",
        ),
        ((*SERVING, "examples"), [{"inputs": {}}], "examples ... list"),
        (("model", "name"), None, "model ... name ... number of parameters"),
        (("model",), "bert", "model ... name ... number of parameters"),
        (("model", "num_parameters"), "many", "model ... name ... number of parameters"),
        (("model", "configuration"), [{"class": "Dense"}], "configuration ... list of layers"),
        (("model", "configuration"), {}, "configuration ... list of layers"),
        (("scores",), [0.5], "scores ... object"),
        (("tolerance",), "1e-5", "tolerance '1e-5' ... number"),
        (("tolerance",), float("inf"), "tolerance inf ... number"),
    ],
)
def test_metadata_of_another_form(export, capsys, path, value, text):
    change(export, *path, value=value)
    for command in ("show", "check", "warm-up"):
        line = only_line(capsys, command, export)
        assert line.startswith(f"keras-transformers: {export / METADATA_FILE}: ")
        assert says(line, text)
        assert line.endswith("; export the model again")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("x",), {}),
        (("x",), 5),
        (("x", "values"), [1.0]),
        (("x", "values"), ["a", "b"]),
        (("x", "dtype"), "float33"),
        (("x", "shape"), [7]),
        (("z",), {"dtype": "float32", "shape": [1], "values": [0.0]}),
    ],
)
def test_examples_that_cannot_be_read(export, capsys, path, value):
    change(export, *SERVING, "examples", 0, "inputs", *path, value=value)
    for command in ("check", "warm-up"):
        line = only_line(capsys, command, export)
        assert f"{export / METADATA_FILE}: signature 'serving_default': a stored example" in line


def test_a_type_that_numpy_does_not_know(export):
    change(export, *SERVING, "examples", value=[])
    change(export, *SERVING, "inputs", "x", "dtype", value="float33")
    outcomes = {finding.trial: finding for finding in findings(str(export), 1)}
    assert outcomes["inputs"].outcome == "failed"
    assert "float33" in outcomes["inputs"].detail


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 5000, "\udcff"])
def test_metadata_that_python_cannot_parse(export, capsys, text):
    (export / METADATA_FILE).write_text(text, errors="surrogateescape")
    for command in ("show", "check"):
        line = only_line(capsys, command, export)
        assert re.search(rf"{re.escape(str(export / METADATA_FILE))}: (not JSON|JSON nested)", line)


@pytest.mark.parametrize("depth", [101, 500])
def test_json_that_python_parses_and_cannot_print(export, capsys, depth, tmp_path):
    change(export, "task", value=eval("[" * 90 + "]" * 90))
    assert main(["show", str(export), "--json"]) == 0
    capsys.readouterr()
    (export / METADATA_FILE).write_text('{"a":' * depth + "1" + "}" * depth)
    line = only_line(capsys, "show", export)
    assert f"{export / METADATA_FILE}: JSON nested more than 100 deep" in line
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        read_json(export / METADATA_FILE)


@pytest.mark.parametrize("value", ["[" * 100_000, "1" * 5000])
def test_a_line_of_json_that_python_cannot_parse(value, tmp_path):
    (tmp_path / "data.jsonl").write_text(f'{{"text": "a"}}\n{value}\n')
    with pytest.raises(ValueError, match=r"data\.jsonl:2: (not JSON|JSON nested)"):
        list(read_objects(tmp_path / "data.jsonl"))


def test_an_export_does_not_say_where_it_lies_or_whence_it_comes(export):
    for name, value in {
        "path": "/elsewhere",
        "num_bytes": 1,
        "warm_up": True,
        "provenance": {"commit": "0" * 40},
    }.items():
        change(export, name, value=value)
    told = describe(export)
    assert (told["path"], told["warm_up"]) == (str(export), False)
    assert told["num_bytes"] > 1
    assert "provenance" not in told
    assert "\n".join(lines(told))


def test_scores_of_a_manifest_are_an_object(export, capsys):
    manifest = record(export, Provenance("make it", "0" * 40, {}, "data", "licence"))
    entries = json.loads(manifest.read_text())
    entries["model/1"]["scores"] = [0.5]
    manifest.write_text(json.dumps(entries))
    line = only_line(capsys, "show", export)
    assert f"{manifest}: entry 'model/1': scores that are not an object" in line


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file):
    file.write_bytes(b"")


def remove(file):
    file.unlink()


def flip(file):
    file.write_bytes(bytes([byte ^ 0xFF for byte in file.read_bytes()]))


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        *itertools.product((cut, empty, remove, flip), (INDEX, DATA)),
        *itertools.product((cut, empty, flip), ("saved_model.pb",)),
    ],
)
def test_damaged_graphs_and_variables(export, capsys, damage, name):
    damage(export / name)
    if name != "saved_model.pb":  # our exports say in their metadata what is in it
        assert f"{export / name}" in only_line(capsys, "show", export)
    line = only_line(capsys, "predict", export, "--text", "a")
    assert f"{export / name}" in line
    assert "{{" not in line  # no node of TensorFlow's graph
    if name == "saved_model.pb":
        assert f"{export / name}" in only_line(capsys, "check", export)
        return
    found = list(findings(str(export), 1))
    assert [finding.outcome for finding in found] == ["failed", "failed"]
    for finding in found:
        assert str(export / name) in finding.detail
        assert "\n" not in finding.detail


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_fingerprint(export, capsys, damage):
    fingerprint = FingerprintDef(saved_model_checksum=2**60)
    # Exports of today have none; those of earlier versions do.
    (export / "fingerprint.pb").write_bytes(fingerprint.SerializeToString())
    damage(export / "fingerprint.pb")
    for words in (("predict", export, "--text", "a"), ("check", export)):
        assert f"{export / 'fingerprint.pb'} is damaged (" in only_line(capsys, *words)


def test_metadata_that_the_graph_does_not_have(export, capsys):
    signature = json.loads((export / METADATA_FILE).read_text())["signatures"]["serving_default"]
    change(export, "signatures", "other", value=signature)
    text = f"{export / METADATA_FILE}: signature 'other' is not in the graph, which has serving_def"
    for command in ("check", "warm-up"):
        assert text in only_line(capsys, command, export)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("inputs", "z"), {"dtype": "float32", "shape": [None]}),
        (("outputs", "y"), None),
        (("outputs", "y", "dtype"), "int32"),
    ],
)
def test_tensors_that_the_graph_does_not_have(export, capsys, path, value):
    change(export, *SERVING, *path, value=value)
    for command in ("check", "warm-up"):
        line = only_line(capsys, command, export)
        assert f"{export / METADATA_FILE}: signature 'serving_default': {path[0]} {{" in line
        assert "but the graph has {'" in line


def test_folders_nested_too_deeply(export, capsys, tmp_path):
    inside = export
    for _ in range(102):
        inside /= "d"
        inside.mkdir()
    for words in (("show",), ("publish", tmp_path / "base")):
        line = only_line(capsys, words[0], export, *words[1:])
        assert f"{export}: folders nested more than 100 deep" in line
    assert not (tmp_path / "base").exists()


def test_a_graph_that_refuses_its_input(whole, monkeypatch):
    predictor = Predictor(whole)

    def refuse(**_):
        import tensorflow as tf

        raise tf.errors.InvalidArgumentError(None, None, "not\nthis")

    monkeypatch.setattr(predictor, "_function", refuse)
    with pytest.raises(ValueError, match="/1: rows 1.*2: not"):
        predictor({"x": [1.0, 2.0]})
