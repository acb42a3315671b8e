"""`evaluate` returns a report beside its figures, of a pipeline and of its export."""

import copy
import json
import pickle
import shutil

import keras
import numpy as np
import pytest
import tiny
from checks import says
from test_every_task import DATA, TRAINERS

import keras_transformers as kt
from keras_transformers.cli import main as cli
from keras_transformers.saved_model.description import METADATA_FILE
from keras_transformers.saved_model.measuring import evaluate_export
from keras_transformers.tasks.training import FitOptions

REPORTED = [task for task in DATA if task != "generation"]
EXPORTED = REPORTED
QUICK = {"classification"}


def slow_but(tasks, quick):
    return [task if task in quick else pytest.param(task, marks=pytest.mark.slow) for task in tasks]


@pytest.fixture(scope="module")
def scores():
    return kt.evaluate(tiny.pipeline("classification"), DATA["classification"][0], batch_size=5)


def test_the_figures_are_a_dict(scores):
    assert scores == dict(scores)
    assert set(scores) == {"accuracy", "loss", "majority"}
    assert json.loads(json.dumps(scores)) == scores
    again = pickle.loads(pickle.dumps(scores))
    assert again == scores
    assert str(again.report) == str(scores.report)
    assert again.report.svg("confusion") == scores.report.svg("confusion")
    assert scores.report.figures["accuracy"] == pytest.approx(scores["accuracy"])


def test_the_report_says_which_classes_are_never_predicted(scores):
    assert says(scores.report.findings[0], 'All 24 answers are "negative" ... positive (12)')
    assert scores.report.tables["mistakes"].rows[0][4].startswith("a good film")


def test_a_model_that_answers_one_of_twelve_classes():
    """Uneven tickets, of which the accuracy alone looks like something."""
    names = ["billing", *(f"queue {i}" for i in range(1, 12))]
    model = kt.heads.classifier(tiny.encoder(), len(names))
    (bias,) = (weight for weight in model.weights if weight.shape == (len(names),))
    bias.assign(20.0 * np.eye(len(names))[0])
    classify = kt.pipelines.TextClassifier(model, tiny.pipeline("classification").tokenizer, names)
    labels = [name for i, name in enumerate(names) for _ in range(max(1, 12 - 2 * i))]
    found = kt.evaluate(classify, (["a film"] * len(labels), labels))
    assert found["accuracy"] == found["majority"] == pytest.approx(12 / len(labels))
    first, second, third, *_ = str(found.report).splitlines()
    assert says(first, f"{len(labels)} examples, 12 classes")
    assert says(second, f'All {len(labels)} answers are "billing" ... 11 of 12 classes are never')
    assert "queue 1 (10)" in second + third


@pytest.mark.parametrize(
    "task",
    slow_but(
        ["classification", "tagging", "multiple_choice", "image_classification", "generation"],
        {"classification", "tagging"},
    ),
)
def test_figures_are_those_of_keras(task):
    """The pass that answers also measures, over batches of different sizes."""
    pipeline, trainer, data = tiny.pipeline(task), TRAINERS[task], DATA[task][0]
    found = kt.evaluate(pipeline, data, batch_size=5)
    (examples,) = trainer.read(pipeline, {"data": data}, {})
    options = trainer.options(batch_size=5)
    batches = trainer.batches(
        trainer.encoded(pipeline, examples), pipeline, **{**options.batching(), "shuffle": False}
    )
    model = keras.Model(pipeline.model.input, pipeline.model.output)
    losses = trainer.losses(pipeline, examples, options)
    model.compile(weighted_metrics=trainer.metrics(pipeline), **losses)
    wanted = model.evaluate(batches.dataset(), return_dict=True, verbose=0)
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-6)


@pytest.mark.slow
def test_the_model_answers_each_batch_once(monkeypatch):
    sizes = []
    predict = keras.Model.predict_on_batch

    def counted(self, inputs):
        outputs = predict(self, inputs)
        sizes.append(len(outputs["logits"]))
        return outputs

    def forbidden(self, *args, **options):
        raise AssertionError("a second pass")

    monkeypatch.setattr(keras.Model, "predict_on_batch", counted)
    monkeypatch.setattr(keras.Model, "evaluate", forbidden)
    pipeline = tiny.pipeline("tagging")
    assert kt.evaluate(pipeline, DATA["tagging"][0], batch_size=7).report is not None
    assert sizes == [7, 7, 7, 3]


@pytest.mark.one_case
@pytest.mark.parametrize("task", slow_but(REPORTED, QUICK | {"regression", "embedding"}))
def test_reports_have_the_figures_that_trainers_name(task):
    """Those can choose an epoch, so every report has them, as finite numbers or NaN."""
    pipeline = tiny.pipeline(task)
    report = kt.evaluate(pipeline, DATA[task][0]).report
    named = TRAINERS[task].report_figures
    assert set(named) <= set(report.figures)
    assert all(isinstance(report.figures[name], float) for name in named)
    assert str(report).startswith(report.title)
    json.loads(report.to_json(), parse_constant=lambda name: pytest.fail(name))


def test_the_same_report_from_batches_in_order():
    """What chooses an epoch during training."""
    trainer, pipeline = TRAINERS["classification"], tiny.pipeline("classification")
    data = DATA["classification"][0]
    (examples,) = trainer.read(pipeline, {"data": data}, {})
    options = FitOptions(batch_size=4).batching()
    batches = trainer.batches(examples, pipeline, **options).of(examples)
    found = trainer.reported(pipeline, batches, examples)
    assert found.to_dict() == kt.evaluate(pipeline, data, batch_size=4).report.to_dict()


@pytest.mark.slow
def test_a_task_without_a_report_says_none():
    found = kt.evaluate(tiny.pipeline("generation"), DATA["generation"][0])
    assert found.report is None
    assert found["perplexity"] > 1


# Exports.


@pytest.mark.parametrize("task", slow_but(EXPORTED, QUICK))
def test_an_export_has_the_report_of_its_pipeline(task):
    data = DATA[task][0]
    found = evaluate_export(tiny.exported(task), data)
    wanted = kt.evaluate(tiny.pipeline(task), data).report
    assert found.title == wanted.title
    assert found.figures == pytest.approx(wanted.figures, abs=1e-5, nan_ok=True)


@pytest.mark.slow
def test_an_export_without_a_report_names_those_that_have_one():
    with pytest.raises(ValueError) as error:
        evaluate_export(tiny.exported("generation"), DATA["generation"][0])
    assert says(str(error.value), "generation ... classification ... tagging")


def test_an_export_without_labels_says_so(tmp_path):
    export = tmp_path / "1"
    shutil.copytree(tiny.exported("classification"), export)
    metadata = json.loads((export / METADATA_FILE).read_text("utf-8"))
    del metadata["labels"]
    (export / METADATA_FILE).write_text(json.dumps(metadata), "utf-8")
    with pytest.raises(ValueError) as error:
        evaluate_export(export, DATA["classification"][0])
    assert says(str(error.value), f"{export} ... labels ... export the model again")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A CSV file whose columns have names of its own."""
    path = tmp_path_factory.mktemp("tables") / "tickets.csv"
    texts, labels = DATA["classification"][0]
    names = tiny.pipeline("classification").labels
    lines = [f"{text},{names[label]}" for text, label in zip(texts, labels, strict=True)]
    path.write_text("\n".join(["body,queue", *lines, ""]), "utf-8")
    return path


def run(capsys, *arguments):
    status = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command_prints_and_writes_the_report(table, scores, tmp_path, capsys):
    export = tiny.exported("classification")
    columns = ("--columns", "text=body", "label=queue")
    status, out, _ = run(
        capsys, "evaluate", export, table, *columns, "--output", tmp_path / "report"
    )
    assert status == 0
    assert says(out, 'All 24 answers are "negative" ... macro mean')
    assert max(map(len, out.splitlines())) <= 100
    written = json.loads((tmp_path / "report" / "report.json").read_text("utf-8"))
    assert written["findings"] == list(scores.report.findings)
    status, out, _ = run(capsys, "evaluate", export, table, *columns, "--json")
    assert json.loads(out)["figures"] == pytest.approx(written["figures"])


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--columns", "body"), "body ... NAME=COLUMN ... text=body"),
        (("--columns", "text=bdy", "label=queue"), "bdy ... queue"),
        (("--columns", "txt=body"), "txt ... text"),
    ],
)
def test_the_command_refuses_wrong_columns(options, parts, table, capsys):
    status, _, err = run(capsys, "evaluate", tiny.exported("classification"), table, *options)
    assert status == 2
    assert says(err, parts)
    assert "Traceback" not in err


def test_the_command_refuses_what_is_no_export(table, tmp_path, capsys):
    status, _, err = run(capsys, "evaluate", tmp_path / "nothing", table)
    assert (status, "nothing" in err) == (2, True)
    status, _, err = run(capsys, "evaluate", tiny.exported("classification"), tmp_path / "no.tsv")
    assert (status, "no.tsv" in err) == (2, True)


@pytest.mark.slow
def test_the_command_measures_a_saved_pipeline(table, scores, tmp_path, capsys):
    kt.save(copy.copy(tiny.pipeline("classification")), tmp_path / "saved")
    status, out, err = run(
        capsys, "evaluate", tmp_path / "saved", table, "--columns", "text=body", "label=queue"
    )
    assert status == 0, err
    assert out.rstrip("\n") == str(scores.report)


def test_predictions_are_those_of_the_pipeline():
    """The report's classes are the labels that users get."""
    pipeline = tiny.pipeline("classification")
    texts, labels = DATA["classification"][0]
    answers = [answer.label_index for answer in pipeline(texts)]
    matrix = kt.evaluate(pipeline, (texts, labels)).report.tables["confusion"].rows
    counts = np.zeros((2, 2), int)
    np.add.at(counts, (labels, answers), 1)
    assert [row[1:] for row in matrix] == list(map(tuple, counts.tolist()))
