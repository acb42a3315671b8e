"""`fit(few_shot=True)`: pairs train the encoder, the head is a logistic regression on it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from sklearn.linear_model import LogisticRegression
from test_fit import StopAfter

import keras_transformers as kt
from keras_transformers.data.text import Examples
from keras_transformers.families.bert.model import bert
from keras_transformers.tasks.classification.head import last_dense

TEXTS = ["a good film", "good film !", "a very good film .", "very good",
         "a bad film", "bad film !", "a very bad film .", "very bad"]  # fmt: skip
ONE = ["positive"] * 4 + ["negative"] * 4
SEVERAL = [["joy"], ["joy", "surprise"], ["joy"], ["joy", "surprise"],
           ["anger"], ["anger", "surprise"], ["anger"], ["anger", "surprise"]]  # fmt: skip
LABELS = {"classification": ONE, "multi_label_classification": SEVERAL}
OPTIONS = {"few_shot": True, "epochs": 12, "batch_size": 8, "learning_rate": 1e-2, "quiet": True}
SHORT = OPTIONS | {"epochs": 2}


def made(task="classification", **options):
    keras.utils.set_random_seed(0)
    encoder = kt.heads.with_mean_pooling(
        bert(
            vocabulary_size=len(tiny.VOCABULARY),
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            max_sequence_length=16,
            dropout=0.0,
            attention_dropout=0.0,
        )
    )
    labels = ["negative", "positive"] if task == "classification" else ["joy", "anger", "surprise"]
    model = kt.heads.classifier(encoder, len(labels), dropout=0.0)
    classes = {"classification": kt.pipelines.TextClassifier,
               "multi_label_classification": kt.pipelines.MultiLabelClassifier}  # fmt: skip
    return classes[task](model, tiny.wordpiece(), labels, **options)


def vectors(pipeline):
    reader = keras.Model(pipeline.model.input, last_dense(pipeline.model).vectors)
    return np.array(reader(pipeline.encode(tf.constant(TEXTS)), training=False))


def cosines(pipeline):
    """The mean cosine of texts of one label, and of texts of two."""
    rows = vectors(pipeline)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found, same = rows @ rows.T, np.equal.outer(ONE, ONE)
    return found[same].mean(), found[~same].mean()


@pytest.fixture(scope="module")
def trained():
    """A pipeline of each task, trained once."""
    found = {}
    for task, labels in LABELS.items():
        found[task] = made(task)
        kt.fit(found[task], (TEXTS, labels), **OPTIONS)
    return found


def test_texts_of_a_label_come_together(trained):
    before, after = cosines(made()), cosines(trained["classification"])
    assert after[0] > before[0]
    assert after[0] - after[1] > 0.7 > before[0] - before[1]


@pytest.mark.parametrize("task", LABELS)
def test_few_texts_are_learned(trained, task):
    answers = trained[task](TEXTS)
    if task == "classification":
        assert [answer.label for answer in answers] == ONE
    else:
        truth = [[float(x in row) for x in trained[task].labels] for row in SEVERAL]
        found = np.array([answer.probabilities for answer in answers])
        assert np.mean(np.round(found) == truth) > 0.8


def test_the_head_is_scikit_learns_on_vectors_of_mean_length_one(trained):
    rows = vectors(trained["classification"]).astype("float64")
    rows /= np.linalg.norm(rows, axis=1).mean()
    head = LogisticRegression(tol=1e-10, max_iter=5000).fit(rows, ONE)
    found = [answer.probabilities for answer in trained["classification"](TEXTS)]
    np.testing.assert_allclose(found, head.predict_proba(rows), atol=1e-5)


@pytest.mark.slow
def test_a_seed_decides_all_bits(trained):
    again, other = made(), made()
    kt.fit(again, (TEXTS, ONE), **OPTIONS)
    kt.fit(other, (TEXTS, ONE), **OPTIONS, seed=1)
    ours, same, others = (x.model.get_weights() for x in (trained["classification"], again, other))
    assert all(np.array_equal(a, b) for a, b in zip(ours, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(ours, others, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("task", LABELS)
def test_an_export_answers_texts_as_python_does(trained, task, tmp_path):
    kt.export(trained[task], tmp_path / "1")
    serve = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    found = serve(text=tf.constant(TEXTS))
    answers = trained[task](TEXTS)
    np.testing.assert_allclose(
        found["probabilities"], [answer.probabilities for answer in answers], atol=1e-6
    )
    if task == "classification":
        labels = [answer.label for answer in answers]
        assert [label.decode() for label in found["label"].numpy()] == labels
    else:
        rows = found["labels"].numpy().tolist()
        assert [[x.decode() for x in row if x] for row in rows] == [[*x.labels] for x in answers]


def test_a_saved_pipeline_answers_the_same(trained, tmp_path):
    kt.save(trained["classification"], tmp_path / "saved")
    assert kt.load(tmp_path / "saved")(TEXTS) == trained["classification"](TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("task", LABELS)
def test_validation_measures_each_epoch_with_its_head(task, capsys):
    pipeline, data = made(task), (TEXTS, LABELS[task])
    history = kt.fit(pipeline, data, validation=data, calibrate=True, **SHORT)
    name = "accuracy" if task == "classification" else "mean_average_precision"
    measured = history.history[f"val_{name}"]
    assert len(measured) == 2
    assert kt.evaluate(pipeline, data)[name] == pytest.approx(max(measured))
    assert not capsys.readouterr().out


@pytest.mark.slow
def test_a_stopped_training_goes_on_bit_for_bit(tmp_path):
    options = SHORT | {"batch_size": 4, "checkpoint_every": 2, "validation": (TEXTS, ONE)}
    whole, stopped, again = made(), made(), made()
    expected = kt.fit(whole, (TEXTS, ONE), **options).history
    with pytest.raises(KeyboardInterrupt):
        kt.fit(stopped, (TEXTS, ONE), folder=tmp_path / "run", callbacks=[StopAfter(13)], **options)
    history = kt.fit(again, (TEXTS, ONE), folder=tmp_path / "run", **options).history
    assert history["loss"] == expected["loss"]
    assert history["val_accuracy"] == expected["val_accuracy"]
    for one, other in zip(whole.model.get_weights(), again.model.get_weights(), strict=True):
        assert np.array_equal(one, other)
    with pytest.raises(ValueError, match="another configuration"):
        kt.fit(made(), (TEXTS, ONE), folder=tmp_path / "run", **options, pairs=9)


@pytest.mark.slow
def test_low_rank_updates_are_trained_under_the_head():
    pipeline = made()
    before = vectors(pipeline)
    kt.fit(pipeline, (TEXTS, ONE), lora=2, **OPTIONS)
    assert pipeline.adapter is not None
    assert not np.allclose(before, vectors(pipeline))
    assert [answer.label for answer in pipeline(TEXTS)] == ONE


@pytest.mark.slow
def test_the_first_updates_are_whole():
    """After a few updates, 1e-6 would be most of what Adam divides small gradients by."""
    assert kt.tasks.FewShotOptions().optimizer(made().model, 9).epsilon == 1e-8


def test_pairs_of_texts():
    pipeline = made(pair=True)
    kt.fit(pipeline, (TEXTS, ["a film"] * 8, ONE), **OPTIONS)
    assert [x.label for x in pipeline(TEXTS, ["a film"] * 8)] == ONE


def test_the_head_alone():
    pipeline = made()
    below = vectors(pipeline)
    kt.fitting.fit_head(pipeline, Examples(TEXTS, None, ONE))
    assert np.array_equal(below, vectors(pipeline))
    assert [answer.label for answer in pipeline(TEXTS)] == ONE


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"data": (TEXTS[:5], ONE[:5])}, ValueError, "data: 1 text has the label 'negative'; .* 2"),
        ({"data": (TEXTS[:4], ONE[:4])}, ValueError, "data: 0 texts have the label 'negative'"),
        ({"validation": 0.01}, ValueError, "data: the dev split is empty: 8 examples .* 0.01"),
        ({"pairs": 0}, ValueError, "pairs"),
        ({"class_weight": "balanced"}, TypeError, "class_weight='balanced': few-shot .* leave it"),
        ({"strategy": "mirrored"}, TypeError, "strategy='mirrored': few-shot training does not"),
        ({"label_smoothing": 0.1}, TypeError, "label_smoothing=0.1: few-shot training does not"),
        ({"metrics": ["accuracy"]}, TypeError, "metrics: few-shot .* monitor="),
        ({"monitor": "val_loss", "validation": (TEXTS, ONE)}, ValueError, "val_loss"),
        ({"few_shots": True}, TypeError, "fit has no option 'few_shots': did you mean few_shot?"),
    ],
)
def test_wrong_calls(given, error, message):
    with pytest.raises(error, match=message):
        kt.fit(made(), **{"data": (TEXTS, ONE), **OPTIONS} | given)


def test_pairs_need_few_shot():
    with pytest.raises(TypeError, match="fit has no option 'pairs'"):
        kt.fit(made(), (TEXTS, ONE), pairs=9)


def test_all_texts_with_a_label():
    with pytest.raises(ValueError, match="data: all 8 texts have the label 'joy'; .* without it"):
        kt.fit(
            made("multi_label_classification"),
            (TEXTS, [["joy", "anger"]] * 4 + [["joy", "surprise"]] * 4),
            **OPTIONS,
        )


def test_pipelines_that_cannot():
    regression = tiny.pipeline("regression")
    message = "few_shot=True: regression .* classification or multi_label_classification"
    with pytest.raises(TypeError, match=message):
        kt.fit(regression, (TEXTS, TEXTS, [0.0] * 8), few_shot=True)
    with pytest.raises(ValueError, match=r"long_texts='windows': .* pipeline.long_texts = 'cut'"):
        kt.fit(made(long_texts="windows"), (TEXTS, ONE), few_shot=True)
    frozen = made()
    frozen.model.trainable = False
    with pytest.raises(ValueError, match="has nothing to train below its last layer, 'logits'"):
        kt.fit(frozen, (TEXTS, ONE), few_shot=True)
    model = kt.heads.classifier(tiny.encoder(), 2)
    logits = keras.layers.Identity(name="more")(model.output["logits"])
    other = keras.Model(model.input, {"logits": logits}, name="other")
    classify = kt.pipelines.TextClassifier(other, tiny.wordpiece(), ["negative", "positive"])
    with pytest.raises(ValueError, match="model 'other' .* 'more', a Identity; expected a Dense"):
        kt.fit(classify, (TEXTS, ONE), few_shot=True)
