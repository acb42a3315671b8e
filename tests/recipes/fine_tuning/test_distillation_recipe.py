"""Distillation: a student of half the layers and tokens learns a toy teacher's answers."""

import numpy as np
import pytest
from recipe_runs import OPINIONS, SENTENCE_WORDS, error_of, run, save_encoder, save_sentences

import keras_transformers as kt

UNUSED = [f"word{i}" for i in range(40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Writes an encoder, labelled sentences, more texts, and an export that knows the labels."""
    folder = tmp_path_factory.mktemp("distillation")
    letters = sorted({letter for word in SENTENCE_WORDS for letter in word} - {"a"})
    save_encoder(folder, [*SENTENCE_WORDS, *letters, *(f"##{x}" for x in [*letters, "a"]), *UNUSED])
    save_sentences(folder)
    texts = [f"{word} plot {'film ' * i}".strip() for word in OPINIONS for i in range(12)]
    (folder / "texts.txt").write_text("\n".join([*texts, *texts[:5], "", "a film"]) + "\n")
    run(
        "classification",
        **options(folder, texts=None, epochs=4, name="teacher", export=folder / "teacher/1"),
    )
    return folder


def options(folder, **changes):
    return {
        "train_file": folder / "train.tsv",
        "dev_file": folder / "dev.tsv",
        "texts": folder / "texts.txt",
        "weights": folder / "encoder",
        "learning_rate": 1e-2,
        "batch_size": 8,
        "max_sequence_length": 32,
        "runs_dir": folder / "runs",
    } | changes


@pytest.mark.slow
def test_a_small_student_learns_what_the_teacher_answers(folder):
    student = {"keep_layers": 0, "keep_tokens": 50, "least_words": 2, "epochs": 3}
    found = run(
        "distillation",
        **options(folder, teacher=folder / "teacher", export=folder / "student/1", **student),
    )
    metrics = found.metrics
    assert metrics["texts"] == 80 + 97  # the repeated and the empty ones left out
    assert metrics["dev_accuracy"] > 0.9
    assert found.json("report_dev.json")["figures"]["accuracy"] == metrics["dev_accuracy"]
    assert metrics["dev_accuracy of the teacher"] > 0.9
    teacher = kt.saved_model.describe(folder / "teacher")
    assert metrics["parameters"] < teacher["model"]["num_parameters"]
    assert (found.folder / "teacher.npy").is_file()
    [answer] = kt.saved_model.predict(folder / "student", {"text": ["good film"]})
    assert answer["label"] == "yes"


@pytest.mark.slow
def test_spans_are_texts_too(folder):
    changes = {"spans": 1, "shared_words": 5, "epochs": 1, "name": "spans"}
    metrics = run("distillation", **options(folder, teacher=folder / "teacher", **changes)).metrics
    assert metrics["spans"] > 40


@pytest.mark.slow
def test_two_teachers_answer_with_their_mean(folder):
    other = options(folder, texts=None, epochs=1, seed=1, name="other_teacher")
    run("classification", **other, export=folder / "other/1")
    answers = []
    for names in (["teacher"], ["other"], ["teacher", "other"]):
        teachers = [str(folder / name) for name in names]
        changes = {"epochs": 1, "least_words": 2, "name": "_".join(["of", *names])}
        found = run("distillation", "--teacher", *teachers, **options(folder, **changes))
        answers.append(np.load(found.folder / "teacher.npy"))
    one, other, both = answers
    assert np.abs(one - other).max() > 0.01
    np.testing.assert_allclose(both, (one + other) / 2, atol=1e-6)


@pytest.mark.slow
def test_static_shapes_change_no_figure(folder):
    found = {}
    for static_shapes in (None, 1):
        changes = {"dropout": 0.0, "epochs": 1, "name": f"shapes_{static_shapes}"}
        given = options(folder, teacher=folder / "teacher", static_shapes=static_shapes, **changes)
        [epoch] = run("distillation", **given).metrics["epochs"]
        found[static_shapes] = [epoch[name] for name in ("loss", "accuracy", "val_loss")]
    assert found[1] == pytest.approx(found[None], rel=1e-3)


@pytest.mark.slow
def test_a_teacher_with_other_labels_is_refused(folder, capsys):
    lines = (folder / "train.tsv").read_text().replace("\tyes", "\tmaybe")
    (folder / "other.tsv").write_text(lines)
    changes = {"train_file": folder / "other.tsv", "dev_file": None, "name": "other"}
    texts = {"texts": (folder / "texts.txt",), "teacher": (folder / "teacher",), "least_words": 2}
    error = error_of("distillation", capsys, **options(folder, **changes) | texts)
    assert "has labels ['no', 'yes'], the data ['maybe', 'no']" in error
