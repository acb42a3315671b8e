"""The commands that show, check and publish exports."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformers.cli import main as cli
from keras_transformers.saved_model.checks import audit as audits
from keras_transformers.saved_model.checks.trials import Finding

SAVED_MODELS = Path(__file__).parents[2] / "saved_models"


def run(capsys, *arguments):
    status = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("name", ["fill_mask_en", "sentiment_en", "translate_de_en"])
def test_show_the_exports_in_the_repository(capsys, name):
    status, out, _ = run(capsys, "show", SAVED_MODELS / name / "1")
    assert status == 0
    assert f"{name}/1: " in out.splitlines()[0]
    assert "parameters" in out
    assert "score " in out
    assert "stored examples" in out
    assert " 1 stored examples" not in out
    status, out, _ = run(capsys, "show", SAVED_MODELS / name / "1", "--json")
    told = json.loads(out)
    assert told["signatures"]["serving_default"]["examples"] >= 3
    assert len(told["provenance"]["commit"]) == 40


def test_show_says_what_is_missing(capsys, tmp_path):
    status, _, err = run(capsys, "show", tmp_path)
    assert (status, "no version folder" in err) == (2, True)


@pytest.mark.parametrize(("outcome", "status"), [("passed", 0), ("refused", 0), ("failed", 1)])
def test_check_ends_with_the_verdict(capsys, monkeypatch, exported, outcome, status):
    def trials(folder, max_batch_size):
        assert (folder, max_batch_size) == (exported, 5)
        return [Finding("calls", "serving_default", outcome, "a detail")]

    monkeypatch.setattr(audits, "_trials", trials)
    arguments = ("check", exported.parent, "--max-batch-size", 5)
    found, out, _ = run(capsys, *arguments)
    assert found == status
    assert f"{outcome:<8} serving_default: calls (a detail)" in out
    found, out, _ = run(capsys, *arguments, "--json")
    assert (found, json.loads(out)["passed"]) == (status, status == 0)


def test_publish_label_prune_and_roll_back(capsys, exported, tmp_path):
    pytest.importorskip("tensorflow_serving", reason="needs tensorflow-serving-api")
    base = tmp_path / "models" / "sentiment"
    for _ in range(2):
        assert run(capsys, "publish", exported, base)[0] == 0
    status, out, _ = run(capsys, "publish", exported, base, "--label", "canary", "--keep", 1)
    assert (status, out.splitlines()) == (0, [f"{base}/3: published", f"{base}/1: removed"])
    status, out, _ = run(capsys, "rollback", base, "--label", "canary")
    assert (status, out) == (0, f"{base}/3: withdrawn; {base}/2 is served instead\n")
    status, out, _ = run(capsys, "warm-up", base / "2", "--batch-sizes", 1, 2)
    assert (status, ": 8 requests" in out) == (0, True)
    status, out, _ = run(capsys, "publish", exported, base, "--warm-up", 1)
    assert (base / "4" / "assets.extra" / "tf_serving_warmup_requests").is_file()
    status, out, _ = run(capsys, "serving-config", tmp_path, base, "--batch-sizes", 1, 2)
    assert (status, len(out.splitlines())) == (0, 2)
    assert f"{tmp_path}/batching.config: tensorflow_model_server --enable_batching" in out
    status, _, err = run(capsys, "publish", exported, base / "4")
    assert (status, "never overwritten" in err) == (2, True)


def test_what_programs_read_of_publishing(capsys, exported, tmp_path):
    pytest.importorskip("tensorflow_serving", reason="needs tensorflow-serving-api")
    base = tmp_path / "models" / "sentiment"

    def told(*arguments):
        status, out, _ = run(capsys, *arguments, "--json")
        assert status == 0
        return json.loads(out)

    assert told("publish", exported, base) == {"published": f"{base}/1", "removed": []}
    found = told("publish", exported, base, "--keep", 1)
    assert found == {"published": f"{base}/2", "removed": [f"{base}/1"]}
    told("publish", exported, base)
    assert told("rollback", base) == {"withdrawn": f"{base}/3", "served": f"{base}/2"}
    found = told("warm-up", base / "2")
    assert (Path(found["file"]).is_file(), found["requests"]) == (True, 4)
    (file,) = told("serving-config", tmp_path, base)
    assert (Path(file["file"]).is_file(), file["flag"].split("=")[0]) == (
        True,
        "--model_config_file",
    )


def test_what_programs_read_of_verify(capsys, tmp_path):
    (tmp_path / "manifest.json").write_text('{"a/1": {"files": {}, "bytes": 0}}', "utf-8")
    status, out, _ = run(capsys, "verify", tmp_path, "--json")
    found = json.loads(out)
    assert (status, list(found)) == (1, ["a/1"])
    assert found["a/1"]


def test_an_installed_command_publishes_without_tensorflow(exported, tmp_path):
    """Copying folders must not take the seconds of importing TensorFlow."""
    code = (
        "import sys; from keras_transformers.cli.main import main\n"
        "status = main(['publish', *sys.argv[1:]])\n"
        "print(status, 'tensorflow' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(exported), str(tmp_path / "base")],
        env=os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert result.stdout.splitlines()[-1] == "0 False", result.stderr
