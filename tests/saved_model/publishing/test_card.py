"""Model cards: what they say, where they lie, and that exports with one stay as good as before."""

import json
import re
import shutil
from pathlib import Path

import pytest
import tiny
import yaml
from checks import says

from keras_transformers.cli.main import main
from keras_transformers.saved_model import Predictor, publishing, write_card
from keras_transformers.saved_model.description import METADATA_FILE
from keras_transformers.saved_model.manifest import Provenance, read, record, verify

SAVED_MODELS = Path(__file__).parents[3] / "saved_models"
FROM = Provenance(
    command="python recipes/a.py; python recipes/b.py --export saved_models/toy/1",
    commit="1" * 40,
    scores={"F1 on dev": 0.5},
    training_data="a toy | with a bar",
    data_licence="CC0",
    notes="A toy.",
)


@pytest.fixture
def version(exported, tmp_path):
    return Path(shutil.copytree(exported, tmp_path / "saved" / "toy" / "1"))


def parts(card):
    """Returns the front matter, and title -> text of each section."""
    _, front, text = card.read_text("utf-8").split("---\n", 2)
    sections = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)[1:]
    return yaml.safe_load(front), dict(zip(sections[::2], sections[1::2], strict=True))


def test_the_card_of_an_export_says_what_its_files_know(version, classify):
    card = write_card(version.parent)
    assert card == version / "README.md"
    front, text = parts(card)
    assert front == {
        "license": "unknown",
        "library_name": "keras-transformers",
        "tags": ["tensorflow", "saved-model", "tf-serving", "classification"],
        "metrics": ["accuracy"],
    }
    assert list(text) == ["What it is", "Data", "Scores", "Licence", "Limits", "How to use it"]
    assert f"| {classify.model.count_params():,} |" in text["What it is"]
    assert "| labels | negative, positive |" in text["What it is"]
    assert "`label` string (?,); `probabilities` float32 (?, 2)" in text["What it is"]
    assert "| Classify |" in text["What it is"]
    assert "| 0.91 | accuracy on SST-2 dev |" in text["Scores"]
    assert "- Length: at most 16 tokens." in text["Limits"]
    assert "Vocabulary: 14 tokens; SHA-256" in text["Limits"]


def test_a_card_says_plainly_what_is_not_given(version):
    _, text = parts(write_card(version))
    assert text["Data"].strip() == "Not given: what it was trained on."
    assert "Not given: the command that measured them." in text["Scores"]
    assert "Of the weights: not given." in text["Licence"]
    assert "Of the training data: not given." in text["Licence"]
    assert "Languages: not given." in text["Limits"]
    assert "Not given: what it should not be used for." in text["Limits"]


def test_the_request_in_a_card_is_one_that_the_export_answers(version):
    _, text = parts(write_card(version))
    (body,) = re.findall(
        r"curl -d '(.*)' http://127.0.0.1:8501/v1/models/toy:predict", text["How to use it"]
    )
    (row,) = json.loads(body)["instances"]
    assert Predictor(version)({name: [value] for name, value in row.items()})[0]["label"]


def test_what_the_manifest_says_is_in_the_card_and_the_card_in_the_manifest(version):
    manifest = record(version, FROM)
    before = read(manifest)["toy/1"]
    _, text = parts(write_card(version))
    assert "a toy | with a bar" in text["Data"]
    assert "| 0.5 | F1 on dev |" in text["Scores"]
    assert "\npython recipes/a.py\npython recipes/b.py --export" in text["Scores"]
    assert "Of the training data: CC0" in text["Licence"]
    assert verify(manifest.parent) == {"toy/1": []}
    after = read(manifest)["toy/1"]
    assert after["files"].pop("README.md")
    assert after == before
    (version / "saved_model.pb").write_bytes(b"changed since")
    write_card(version, limits="none", overwrite=True)
    (problem,) = verify(manifest.parent)["toy/1"]
    assert "saved_model.pb has SHA-256" in problem


def test_what_the_options_say(version, capsys):
    arguments = ["card", str(version), "--data", "reviews", "--licence", "Apache-2.0"]
    arguments += ["--limits", "Not for\nlaw.", "--language", "no", "--language", "pt-BR"]
    arguments += ["--command", "python a.py", "--score", "a=b F1=0.25"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{version}/README.md\n"
    front, text = parts(version / "README.md")
    assert (front["license"], front["language"]) == ("apache-2.0", ["no", "pt-BR"])
    assert front["metrics"] == ["accuracy", "f1"]
    assert "| 0.25 | a=b F1 |" in text["Scores"]
    assert "Not for law." in text["Limits"]
    front, _ = parts(write_card(version, licence='mine: "all"', overwrite=True))
    assert (front["license"], front["license_name"]) == ("other", 'mine: "all"')


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--language", "English"], "language 'English': pass an ISO 639 code"),
        (["--score", "0.9"], "--score '0.9': pass NAME=VALUE"),
        (["--score", "F1=high"], "--score 'F1=high': pass NAME=VALUE"),
        (["--score", "F1=nan"], "score 'F1': nan: expected finite numbers"),
        (["--score", "F1 on dev=0.6"], "score 'F1 on dev': "),
        (["--data", "other data"], "training data 'other data': the manifest beside"),
    ],
)
def test_options_that_cannot_be_are_refused(version, capsys, options, message):
    record(version, FROM)
    assert main(["card", str(version), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (version / "README.md").exists()


def test_a_card_is_never_overwritten_unasked(version, capsys):
    card = version / "README.md"
    card.write_text("mine")
    assert main(["card", str(version)]) == 2
    assert "README.md exists: --overwrite" in capsys.readouterr().err
    assert card.read_text() == "mine"
    assert main(["card", str(version), "--overwrite"]) == 0
    assert card.read_text() != "mine"


def test_a_card_is_published_with_its_version(version, tmp_path):
    write_card(version)
    published = publishing.publish(version, tmp_path / "models" / "toy")
    assert (published / "README.md").read_bytes() == (version / "README.md").read_bytes()


def test_the_card_of_a_saved_pipeline(classify, tmp_path):
    folder = classify.save(tmp_path / "toy")
    front, text = parts(write_card(folder, languages=["en"]))
    assert front["tags"] == ["tensorflow", "keras", "classification"]
    assert f"| {classify.model.count_params():,} |" in text["What it is"]
    assert "`text` string (?,)" in text["What it is"]
    assert "Not given: its scores." in text["Scores"]
    assert "Vocabulary: 14 tokens; SHA-256" in text["Limits"]
    (code,) = re.findall(r"```python\n(.*?)```", text["How to use it"], re.DOTALL)
    assert 'pipeline = kt.load("toy")\npipeline("' in code


QUICK = ("image_classification", "question_answering")


@pytest.mark.parametrize(
    "task", [pytest.param(t, marks=() if t in QUICK else pytest.mark.slow) for t in tiny.TASKS]
)
def test_every_task_has_a_card(task, tmp_path):
    pipeline = tiny.pipeline(task)
    front, text = parts(write_card(pipeline.save(tmp_path / task)))
    assert task.replace("_", "-") in front["tags"]
    assert f"| parameters, exact | {pipeline.model.count_params():,} |" in text["What it is"]
    for name in pipeline.text_names:
        assert f'"{name}": ' in text["How to use it"]


def test_without_examples_a_request_has_gaps(version):
    file = version / METADATA_FILE
    metadata = json.loads(file.read_text("utf-8"))
    metadata["signatures"]["serving_default"]["examples"] = []
    file.write_text(json.dumps(metadata), "utf-8")
    assert '{"instances": [{"text": "..."}]}' in write_card(version).read_text("utf-8")


def test_nothing_and_other_peoples_models_get_no_card(version, tmp_path, capsys):
    assert main(["card", str(tmp_path / "none")]) == 2
    assert "no export at" in capsys.readouterr().err
    (version / METADATA_FILE).unlink()
    assert main(["card", str(version)]) == 2
    assert says(capsys.readouterr().err, "not an export")


def test_no_value_breaks_out_of_its_place(version):
    file = version / METADATA_FILE
    metadata = json.loads(file.read_text("utf-8"))
    metadata["model"]["name"] = "a|b\n## Data\n"
    file.write_text(json.dumps(metadata), "utf-8")
    card = write_card(version)
    assert list(parts(card)[1])[:2] == ["What it is", "Data"]
    assert "| model | a\\|b ## Data |" in card.read_text("utf-8")


@pytest.mark.parametrize("name", read(SAVED_MODELS / "manifest.json"))
def test_the_committed_cards_say_what_the_metadata_say(name):
    entry = read(SAVED_MODELS / "manifest.json")[name]
    metadata = json.loads((SAVED_MODELS / name / METADATA_FILE).read_text("utf-8"))
    front, text = parts(SAVED_MODELS / name / "README.md")
    (count,) = re.findall(r"parameters, exact \| ([\d,]+) \|", text["What it is"])
    assert int(count.replace(",", "")) == metadata["model"]["num_parameters"]
    rows = re.findall(r"^\| ([\d.]+) \| (.*) \|$", text["Scores"], re.MULTILINE)
    assert {what: float(value) for value, what in rows} == entry["scores"]
    for signature in metadata["signatures"]:
        assert f"| `{signature}` |" in text["What it is"]
    assert entry["training_data"] in text["Data"]
    assert front["language"]
    assert "Not given" not in text["Limits"]
