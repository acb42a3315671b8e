"""`temperature` and `abstain_below`: in calls, answers, saves and exports."""

import inspect

import numpy as np
import pytest
import tiny

import keras_transformers as kt
from keras_transformers.saved_model.description import read_metadata
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.task import all_tasks

OPTIONS = {"temperature", "abstain_below"}
TASKS = [
    task
    for task in tiny.TASKS
    if inspect.signature(type(tiny.pipeline(task))).parameters.keys() >= OPTIONS
]
BATCHES = {
    "multiple_choice": {"text": ["a film", "a"], "choices": [["good", "bad !"], []]},
    "next_sentence": {"text": ["a good film", "a"], "text_b": ["very long .", "bad"]},
}


def rows(pipeline):
    if pipeline.task == "image_classification":
        return pipeline.rows(pipeline.example_batches(None)[0])
    return pipeline.rows(BATCHES.get(pipeline.task, {"text": ["a good film", "very bad !"]}))


def confidences(row):
    """What the answer's confidence is, from the other outputs."""
    if "scores" in row:
        return row["scores"]
    if "probability" in row:
        return max(row["probability"], 1 - row["probability"])
    return max(row["probabilities"], default=0.0)


def test_all_tasks_that_fit_calibrates():
    tasks = {name for name, task in all_tasks().items() if (x := task.trainer()) and x.calibrates}
    assert set(TASKS) == tasks


@pytest.mark.one_case
@pytest.mark.parametrize("task", TASKS)
def test_a_pipeline_without_them_is_as_before(task):
    pipeline = tiny.pipeline(task)
    assert "abstained" not in pipeline.answer_specs()
    for name in ("temperature", "abstain_below"):
        assert name not in pipeline.config()
    for signature in pipeline.signatures(None).values():
        assert "abstained" not in signature.outputs
    answer = reading.typed(rows(pipeline)[0], reading.answer_type(task))
    assert answer.abstained is None
    assert "abstained" not in repr(answer)


@pytest.mark.one_case
@pytest.mark.parametrize("task", TASKS)
def test_a_temperature_changes_how_sure_answers_are_and_not_which(task):
    plain = tiny.pipeline(task)
    warm = plain.with_options(temperature=3.0)
    for one, other in zip(rows(plain), rows(warm), strict=True):
        assert one.keys() == other.keys()
        for name in ("label", "label_index", "choice", "choice_index"):
            assert one.get(name) == other.get(name)
        if task == "tagging":
            assert one["labels"] == other["labels"]
        if task == "multi_label_classification":
            p = np.array(one["probabilities"])
            logits = np.log(p / (1 - p))
            assert other["probabilities"] == pytest.approx(1 / (1 + np.exp(-logits / 3)), abs=1e-5)
        elif one.get("probabilities"):
            shares = kt.evaluation.at_temperature(one["probabilities"], 3.0)
            assert other["probabilities"] == pytest.approx(shares, abs=1e-5)


@pytest.mark.one_case
@pytest.mark.parametrize("task", TASKS)
def test_answers_below_the_limit_are_marked(task):
    pipeline = tiny.pipeline(task)
    plain = rows(pipeline)
    if task == "multi_label_classification":
        p = np.array([row["probabilities"] for row in plain])
        sure = np.where(p > pipeline.thresholds, p, 1 - p).min(axis=1).tolist()
    else:
        sure = [confidences(row) for row in plain]
    limit = float(np.mean(np.concatenate([np.atleast_1d(x) for x in sure])))
    strict = pipeline.with_options(abstain_below=limit)
    for one, other, expected in zip(plain, rows(strict), sure, strict=True):
        wanted = (np.array(expected) < limit).tolist()
        assert other == one | {"abstained": wanted}
    answer = reading.typed(rows(strict)[0], reading.answer_type(task))
    assert f"abstained={answer.abstained}" in repr(answer)
    if task == "tagging":
        text = "a good film , very bad !"
        tags = strict(text)
        assert [e.abstained for e in tags.entities] == [
            any(flag for flag, start in zip(tags.abstained, tags.starts, strict=True)
                if e.start <= start < e.end)
            for e in tags.entities
        ]  # fmt: skip
        found = strict.answer_entities(np.array([text], object))
        assert found["abstained"][0].numpy().tolist() == [e.abstained for e in tags.entities]
        assert tiny.pipeline(task)(text).entities[0].abstained is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", ["classification", *(pytest.param(x, marks=pytest.mark.slow) for x in TASKS[1:])]
)
def test_saves_and_exports_have_them(task, tmp_path):
    pipeline = tiny.pipeline(task).with_options(temperature=2.5, abstain_below=0.55)
    restored = kt.load(pipeline.save(tmp_path / "saved"))
    assert (restored.temperature, restored.abstain_below) == (2.5, 0.55)
    assert rows(restored) == rows(pipeline)
    folder = kt.export(pipeline, tmp_path / "export")  # which checks that it answers the same
    described = read_metadata(folder)
    assert (described["temperature"], described["abstain_below"]) == (2.5, 0.55)
    outputs = described["signatures"]["serving_default"]["outputs"]
    assert outputs["abstained"]["dtype"] == "bool"
    assert reading.answer_type(task).fits(outputs)
    if task == "classification":
        data = (["a good film", "very bad !"], ["negative", "positive"])
        figures = kt.saved_model.evaluate_export(folder, data).figures
        wanted = kt.evaluate(pipeline, data).report.figures
        assert figures == pytest.approx(wanted, abs=1e-5, nan_ok=True)
        assert figures["coverage"] < 1


@pytest.mark.parametrize("task", TASKS)
def test_values_out_of_range_are_refused(task):
    pipeline = tiny.pipeline(task)
    infinite, nan = float("inf"), float("nan")
    wrong = {
        "temperature": ("above 0", (0.0, -1.0, infinite, nan, "2", True)),
        "abstain_below": ("from 0 to 1", (-0.1, 1.1, nan, "0.5", True)),
    }
    for name, remedy, value in [(n, r, v) for n, (r, values) in wrong.items() for v in values]:
        with pytest.raises(ValueError) as raised:
            pipeline.with_options(**{name: value})
        assert f"{name}={value!r}" in str(raised.value)
        assert remedy in str(raised.value)


def test_a_call_may_have_its_own_limit():
    classify = tiny.pipeline("classification")
    assert classify("a good film", abstain_below=1.0).abstained is True
    assert classify("a good film").abstained is None


def test_a_folder_of_transformers_keeps_them_beside_its_own_files(tmp_path):
    pipeline = tiny.pipeline("classification").with_options(temperature=2.5, abstain_below=0.7)
    restored = kt.load(kt.save(pipeline, tmp_path / "hub", format="huggingface"))
    assert restored.config() == pipeline.config()
