"""What a person meets first: help with examples, one line for an error, statuses, completion."""

import dataclasses
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from keras_transformers.cli import main as cli
from keras_transformers.cli.models import List
from keras_transformers.dependencies.extras import MissingExtraError

PAGE = (Path(__file__).parents[2] / "docs/command_line.md").read_text("utf-8")
by_name = pytest.mark.parametrize("command", cli.COMMANDS, ids=cli.command_name)


def options(command):
    return {field.name for field in dataclasses.fields(command)}


@by_name
def test_the_help_has_examples_that_parse(command, capsys):
    examples = cli.examples(command)
    with pytest.raises(SystemExit, match="0"):
        cli.main([cli.command_name(command), "--help"])
    shown = capsys.readouterr().out
    assert examples
    for example in examples:
        assert f"\n  {example}\n" in shown
        program, name, *_ = words = shlex.split(example)
        assert (program, name) == ("keras-transformers", cli.command_name(command))
        assert type(cli.parse(words[1:])) is command


def test_the_list_of_commands_has_no_examples(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    shown = capsys.readouterr().out
    assert "Examples" not in shown
    assert all(f"• {cli.command_name(command)} " in shown for command in cli.COMMANDS)
    assert "run an export on files" not in shown  # a command's further paragraphs


def test_the_page_has_every_command_its_purpose_and_its_json():
    expected = []
    for command in cli.COMMANDS:
        purpose = command.__doc__.splitlines()[0].removesuffix(".")
        has = (
            "always"
            if "JSON lines" in purpose
            else "`--json`"
            if "json" in options(command)
            else ""
        )
        expected.append(f"| `{cli.command_name(command)}` | {purpose} | {has} |")
    assert re.findall(r"^\| `[a-z-]+` \|.*$", PAGE, re.MULTILINE) == expected


@by_name
def test_every_command_takes_debug(command):
    assert "debug" in options(command)


def fail(error):
    def run(self):
        raise error

    return run


STATUSES = {
    0: (["list", "bert_base"], None),
    1: (["verify", "FOLDER"], None),
    2: (["list", "nothing*"], None),
    3: (["list"], ZeroDivisionError("division by zero")),
    130: (["list"], KeyboardInterrupt()),
}


@pytest.mark.parametrize("status", STATUSES)
def test_statuses(status, monkeypatch, tmp_path, capsys):
    (tmp_path / "manifest.json").write_text(
        '{"gone/1": {"files": {"saved_model.pb": "0"}, "bytes": 1}}', "utf-8"
    )
    words, error = STATUSES[status]
    if error:
        monkeypatch.setattr(List, "run", fail(error))
    assert cli.main([str(tmp_path) if word == "FOLDER" else word for word in words]) == status
    assert len(capsys.readouterr().err.splitlines()) == (status > 1)


def test_the_page_has_every_status():
    assert set(map(int, re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE))) == set(STATUSES)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("bad value"), 2),
        (OSError("no disk"), 2),
        (MissingExtraError("this needs x"), 2),
        (TypeError("a mistake\nof ours"), 3),
    ],
)
def test_a_traceback_comes_only_with_debug(error, status, monkeypatch, capsys):
    monkeypatch.setattr(List, "run", fail(error))
    assert cli.main(["list", "bert *"]) == status
    said = capsys.readouterr().err
    assert said.startswith("keras-transformers: ")
    assert (said.count("\n"), "Traceback" in said) == (1, False)
    if status == 3:
        assert "unexpected TypeError: a mistake\\nof ours: please report it" in said
        assert "`keras-transformers list 'bert *' --debug`" in said
    with pytest.raises(type(error)):
        cli.main(["list", "bert *", "--debug"])


@pytest.mark.parametrize("words", [["--help"], ["list", "--help"], ["list"]])
def test_a_reader_that_leaves_is_no_error(words, monkeypatch, capfd):
    class Gone:
        encoding = "utf-8"

        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

        def isatty(self):
            return False

        def fileno(self):
            return 1

    monkeypatch.setattr(cli, "_drop_output", lambda: None)
    monkeypatch.setattr("sys.stdout", Gone())
    assert cli.main(words) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(shell, tmp_path):
    (line,) = re.findall(
        rf"^    keras-transformers (--tyro-write-completion {shell} .*?)(?:  #.*)?$",
        PAGE,
        re.MULTILINE,
    )
    *words, _ = shlex.split(line)
    script = tmp_path / "completion"
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, str(script)])
    assert not ended.value.code
    text = script.read_text("utf-8")
    assert all(cli.command_name(command) in text for command in cli.COMMANDS)
    if shutil.which(shell):
        subprocess.run([shell, "-n", script], check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_and_values(tmp_path):
    script = tmp_path / "completion"
    with pytest.raises(SystemExit):
        cli.main(["--tyro-write-completion", "bash", str(script)])
    code = f"""
source {script}
try() {{
  COMP_WORDS=(keras-transformers "$@"); COMP_CWORD=$#; COMPREPLY=()
  _tyro_keras_transformers; echo "${{COMPREPLY[*]}}"
}}
try warm; try plot --le; try plot --level ""
"""
    found = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["warm-up", "--level", "block layer"]
