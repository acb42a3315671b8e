"""The commands in these documents parse, and the rest runs as printed."""

import ast
import dataclasses
import doctest
import re
import shlex
import shutil
from pathlib import Path

import httpx
import pytest

from keras_transformers import pipelines
from keras_transformers.cli import main as cli
from keras_transformers.cli.serving import Serve
from keras_transformers.saved_model.models_config import VersionPolicy
from keras_transformers.serving import ModelSettings, Server
from keras_transformers.serving.gateway.configuration import read_configuration
from keras_transformers.serving.server.keys import read_keys

ROOT = Path(__file__).parents[2]
SERVING, EXPORTS, OPERATIONS = (
    ROOT / "docs" / name for name in ("serving.md", "exports.md", "operations.md")
)
URL = "http://127.0.0.1:8501"  # in the documents


def commands(document, program):
    """Returns the lines in a document's indented blocks that call a program, as lists of words."""
    text = re.sub(r"\\\n\s+", "", document.read_text("utf-8"))
    found = re.findall(rf"^    ({re.escape(program)} .*)$", text, re.MULTILINE)
    assert found, f"{document} has no {program} any more"
    return [shlex.split(line, comments=True) for line in found]


@pytest.mark.parametrize("document", [SERVING, EXPORTS, OPERATIONS], ids=lambda path: path.stem)
def test_the_commands_parse(document):
    for _, *arguments in commands(document, "keras-transformers"):
        assert callable(cli.parse(arguments).run)


def test_the_table_has_every_option_of_serve():
    names = {field.name for field in dataclasses.fields(Serve)} - {"base_paths", "debug"}
    options = {f"--{name.replace('_', '-')}" for name in names}
    rows = re.findall(r"^\| (`.*?) \|", SERVING.read_text("utf-8"), re.MULTILINE)
    assert {option for row in rows for option in re.findall(r"--[a-z-]+", row)} == options


def test_the_table_of_pipelines_has_every_one_and_every_field_of_its_answers():
    row = r"^\| `(\w+)` \| .* \| `(\w+)\((.*)\)` \|$"
    rows = re.findall(row, EXPORTS.read_text("utf-8"), re.MULTILINE)
    shown = (getattr(pipelines, name) for name in dir(pipelines))
    tasks = {cls.__name__ for cls in shown if isinstance(cls, type) and hasattr(cls, "task")}
    assert {pipeline for pipeline, _, _ in rows} == tasks
    for _, result, fields in rows:
        found = [field.name for field in dataclasses.fields(getattr(pipelines, result))]
        assert fields.split(", ") == found


def test_the_benchmarks_are_there():
    for _, script, *_ in commands(SERVING, "python"):
        assert (ROOT / script).is_file()


def test_the_files_of_settings_are_read(tmp_path, certificate):
    blocks = re.findall(r"```toml\n(.*?)```", OPERATIONS.read_text("utf-8"), re.DOTALL)
    settings, keys = blocks
    for name in ("server", "clients", "servers", "gateway"):
        shutil.copy(certificate.certificate, tmp_path / f"{name}.pem")
        shutil.copy(certificate.key, tmp_path / f"{name}.key")
    (tmp_path / "servers.api-key").write_text("secret\n")
    (tmp_path / "keys.toml").write_text(keys)
    (tmp_path / "gateway.toml").write_text(settings)
    read = read_configuration(tmp_path / "gateway.toml")
    assert read.groups[0].models["chat"] == "smollm2@stable"
    (alice,) = read_keys(tmp_path / "keys.toml").values()
    assert (alice.name, alice.max_requests) == ("alice", 8)


class Shown(ast.NodeTransformer):
    """Passes the value of each expression statement to `show`."""

    def visit_Expr(self, node):
        call = ast.Call(ast.Name("show", ast.Load()), [node.value], [])
        return ast.copy_location(ast.Expr(call), node)


@pytest.mark.slow
def test_the_clients_python_gives_what_its_comments_say(translator):
    # The second is of an export with explanations (saved_model/test_explaining_exports.py), the
    # third of a language model (test_served_streams.py).
    block, _, _ = re.findall(r"```python\n(.*?)```", SERVING.read_text("utf-8"), re.DOTALL)
    tree = ast.fix_missing_locations(Shown().visit(ast.parse(block.replace(URL, translator))))
    shown = []
    exec(compile(tree, str(SERVING), "exec"), {"show": lambda value: shown.append(repr(value))})
    comments = re.sub(r"\n +#  ", " ", block)  # that go on in the next line
    expected = re.findall(r"^ +# (.*)$", comments, re.MULTILINE)
    assert len(shown) == len(expected) == 2
    same = doctest.OutputChecker().check_output
    for found, wanted in zip(shown, expected, strict=True):
        assert same(wanted, found, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), found


@pytest.mark.slow
def test_asked_from_the_shell(translator, capsys):
    (ask,) = (words[1:] for words in commands(SERVING, "keras-transformers") if words[1] == "ask")
    assert cli.main([word.replace(URL, translator) for word in ask]) == 0
    assert '"translation": "A man is riding a bike."' in capsys.readouterr().out
    predictions = asked_by_curl(translator, "translate_de_en:predict")["predictions"]
    assert predictions[0]["translation"] == "A man is riding a bike."


@pytest.mark.slow
def test_classified_from_the_shell():
    published = VersionPolicy("specific", versions=(1,))
    export = ROOT / "saved_models/sentiment_en"
    settings = [ModelSettings(export.name, export, published)]
    with Server(settings, rest_port=0, grpc_port=None) as running:
        assert running.wait_until_loaded(120)
        url = f"http://127.0.0.1:{running.rest_port}"
        (scores,) = asked_by_curl(url, "sentiment_en:classify")["results"]
    assert {label for label, _ in scores} == {"0", "1"}
    assert max(scores, key=lambda score: score[1])[0] == "1"  # positive


def asked_by_curl(url, ending):
    """Returns the answer to the document's `curl` whose address has this ending."""
    calls = commands(SERVING, "curl")
    (call,) = (words for words in calls if words[-1].endswith(ending))
    _, flag, body, address = call
    assert flag == "-d"
    answer = httpx.post(address.replace(URL, url), content=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()
