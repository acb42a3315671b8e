"""Weights of labels and of examples, in `fit`'s training loss and nowhere else."""

import math

import keras
import numpy as np
import pytest
import tiny
from sklearn.metrics import f1_score
from sklearn.utils.class_weight import compute_class_weight
from test_every_task import DATA, LABELS, TEXTS, TRAINERS, bag_of_words, fresh, training

import keras_transformers as kt
from keras_transformers.data.text import QuestionBatches
from keras_transformers.data.weighting import class_weights
from keras_transformers.families.bert.model import bert
from keras_transformers.tasks.task import trainer_of

WEIGHTED = [task for task, trainer in TRAINERS.items() if trainer.takes_weights]
LABELLED = [task for task, trainer in TRAINERS.items() if trainer.labels is not None]
# Weights of rows, of words, of label sets, of two outputs, and of images.
QUICK = {
    "classification",
    "tagging",
    "multi_label_classification",
    "question_answering",
    "image_classification",
}
NAMES = ["no", "yes"]


def named(raised, *parts):
    """Asserts that the message has all of these parts."""
    message = str(raised.value)
    assert all(part in message for part in parts), message


def with_weights(task, weights):
    """The task's data as a mapping, with a column of weights."""
    data, *_ = DATA[task]
    if not isinstance(data, dict):
        pipeline = tiny.pipeline(task)
        names = [column.name for column in TRAINERS[task].columns(pipeline)]
        if isinstance(data, list) and isinstance(data[0], dict):
            data = {name: [row[name] for row in data] for name in data[0]}
        else:
            columns = data if isinstance(data, tuple) else zip(*data, strict=True)
            data = dict(zip(names, map(list, columns), strict=False))
    count = len(next(iter(data.values())))
    return data | {"weight": [weights[i % len(weights)] for i in range(count)]}


def batches_of(task, data, **options):
    """The task's batches in order, all rows in one."""
    pipeline = fresh(task)
    trainer = trainer_of(pipeline)
    (examples,) = trainer.read(pipeline, {"data": data}, {}, weighted=True)
    config = trainer.options(batch_size=256, **options)
    make = QuestionBatches if task == "question_answering" else trainer.batches
    batches = make(
        trainer.encoded(pipeline, examples), pipeline, **config.batching(), shuffle=False
    )
    return pipeline, trainer, config, examples, batches


def test_all_tasks_with_labels_take_weights():
    assert set(LABELLED) <= set(WEIGHTED)
    assert {"multiple_choice", "regression", "reranking", "question_answering"} <= set(WEIGHTED)


@pytest.mark.parametrize("counts", [[3, 1], [400, 37, 1, 12], [5, 0, 2]])
def test_balanced_is_scikit_learn_s(counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    found = class_weights("balanced", dict(zip("abcd", counts, strict=False)))
    wanted = compute_class_weight("balanced", classes=np.unique(labels), y=labels)
    np.testing.assert_allclose(found[np.array(counts) > 0], wanted, rtol=1e-6)


@pytest.mark.one_case
@pytest.mark.usefixtures("untraced_steps")
@pytest.mark.parametrize(
    "task",
    [task if task in QUICK else pytest.param(task, marks=pytest.mark.slow) for task in WEIGHTED],
)
def test_the_loss_is_the_mean_by_the_weights_of_examples(task):
    """By hand: sum(weight * loss) / sum(weight), the loss of each row taken alone."""
    weights = [0.5, 3.0, 0.0, 1.0]  # so that the labels have others
    pipeline, trainer, config, examples, batches = batches_of(task, with_weights(task, weights))
    ((inputs, targets, found),) = batches.dataset()
    losses = trainer.losses(pipeline, examples, config)["loss"]
    outputs = trainer.model(pipeline, examples)(inputs)
    factor = 1 / len(losses)  # of a question's start and end, each half
    wanted = 0.0
    for name, loss in losses.items():
        rows = np.asarray(found[name], np.float64)
        values = np.asarray(loss.call(targets[name], outputs[name]), np.float64)
        assert rows.shape == values.shape
        assert set(rows.ravel()) <= {0.0, *weights}
        assert len(set(rows.ravel())) > 1
        wanted += factor * float((rows * values).sum() / rows.sum())
    options = {"epochs": 1, "batch_size": 256, "learning_rate": 1e-12, "quiet": True}
    if task == "image_classification":
        options["crop_padding"] = 0  # which changes the pixels
    history = kt.fit(without_dropout(pipeline), with_weights(task, weights), **options)
    assert history.history["loss"][0] == pytest.approx(wanted, rel=1e-4)


def without_dropout(pipeline):
    for layer in pipeline.model._flatten_layers():
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
        if hasattr(layer, "dropout_rate"):
            layer.dropout_rate = 0.0
    return pipeline


def test_class_weights_of_ids_are_those_of_their_labels():
    data = (TEXTS, LABELS)
    labels = tiny.pipeline("classification").labels
    *_, batches = batches_of("classification", data, class_weight={labels[1]: 3.0})
    ((_, targets, weights),) = batches.dataset()
    wanted = np.where(np.asarray(targets["logits"]) == 1, 3.0, 1.0)
    np.testing.assert_array_equal(weights["logits"], wanted)


def test_class_weights_of_words_leave_out_other_tokens():
    *_, batches = batches_of("tagging", DATA["tagging"][0], class_weight={"B-X": 3.0})
    ((_, targets, weights),) = batches.dataset()
    *_, plain = batches_of("tagging", DATA["tagging"][0])
    ((_, _, is_word),) = plain.dataset()
    label = tiny.pipeline("tagging").labels.index("B-X")
    wanted = np.where(np.asarray(targets["logits"]) == label, 3.0, 1.0) * is_word["logits"]
    np.testing.assert_array_equal(weights["logits"], wanted)


def test_class_weights_of_label_sets_weigh_having_and_not_having_a_label():
    data = DATA["multi_label_classification"][0]
    pipeline, *_, batches = batches_of("multi_label_classification", data, class_weight="balanced")
    ((_, targets, weights),) = batches.dataset()
    has, found = np.asarray(targets["logits"]), np.asarray(weights["logits"])
    assert found.shape == has.shape
    for label in range(len(pipeline.labels)):
        column = has[:, label].astype(int)
        if len(set(column)) == 2:
            wanted = compute_class_weight("balanced", classes=np.array([0, 1]), y=column)
            np.testing.assert_allclose(found[:, label], wanted[column], rtol=1e-6)
    one = {pipeline.labels[0]: 4.0}
    *_, batches = batches_of("multi_label_classification", data, class_weight=one)
    ((_, _, weights),) = batches.dataset()
    first = np.asarray(weights["logits"])[:, 0]
    np.testing.assert_array_equal(first, np.where(has[:, 0] > 0, 4.0, 1.0))


@pytest.mark.usefixtures("untraced_steps")
def test_the_loss_of_label_sets_is_the_mean_by_the_weights_of_labels():
    data = DATA["multi_label_classification"][0]
    weight = {tiny.pipeline("multi_label_classification").labels[0]: 4.0}
    pipeline, *_, batches = batches_of("multi_label_classification", data, class_weight=weight)
    ((inputs, targets, weights),) = batches.dataset()
    logits = np.asarray(pipeline.model(inputs)["logits"], np.float64)
    has, rows = (np.asarray(x["logits"], np.float64) for x in (targets, weights))
    losses = np.log1p(np.exp(-np.abs(logits))) + np.maximum(logits, 0) - logits * has
    wanted = (losses * rows).sum() / rows.sum()
    options = {"epochs": 1, "batch_size": 256, "learning_rate": 1e-12, "quiet": True}
    history = kt.fit(without_dropout(pipeline), data, class_weight=weight, **options)
    assert history.history["loss"][0] == pytest.approx(wanted, rel=1e-4)


def test_images_of_two_classes_have_the_mean_of_their_weights():
    *_, batches = batches_of("image_classification", DATA["image_classification"][0])
    mixed = np.array([[0.25, 0.75], [1.0, 0.0]], np.float32)
    found = batches.target_weights(mixed, np.array([1.0, 3.0], np.float32))
    np.testing.assert_allclose(found, [2.5, 1.0])


@pytest.mark.parametrize(  # the weights of the other tasks are computed by hand above
    "task",
    [
        task if task == "classification" else pytest.param(task, marks=pytest.mark.slow)
        for task in LABELLED
    ],
)
def test_every_task_with_labels_trains_balanced(task):
    data = with_weights(task, [1.0, 2.0])
    options = training(task) | {"epochs": 1}
    history = kt.fit(fresh(task), data, validation=data, class_weight="balanced", **options)
    assert math.isfinite(history.history["loss"][0])


@pytest.mark.slow
def test_equal_weights_make_static_shapes_and_parts_no_difference():
    """The weighted mean is over the whole batch, however it is divided or filled up."""
    data = with_weights("classification", [1.0, 2.0, 0.0])
    losses = []
    for options in ({}, {"static_shapes": 1}, {"batch_size": 16, "accumulate": 2}):
        pipeline = without_dropout(bag_of_words())
        chosen = {"epochs": 1, "batch_size": 32, "learning_rate": 1e-12, "quiet": True} | options
        losses.append(kt.fit(pipeline, data, class_weight="balanced", **chosen).history["loss"][0])
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)


@pytest.mark.slow
def test_validation_counts_all_examples_the_same():
    data = with_weights("classification", [0.0, 1.0])
    plain = {name: column for name, column in data.items() if name != "weight"}
    options = {"epochs": 1, "batch_size": 8, "quiet": True}
    one, other = (
        kt.fit(bag_of_words(), data, validation=held_out, **options).history
        for held_out in (data, plain)
    )
    assert one["val_loss"] == other["val_loss"]
    assert one["val_accuracy"] == other["val_accuracy"]


@pytest.mark.parametrize(
    ("class_weight", "error", "parts"),
    [
        ({"maybe": 2.0}, ValueError, ["'maybe'", "no, yes"]),
        ({"yess": 2.0}, ValueError, ["'yess'", "did you mean 'yes'", "no, yes"]),
        ({1: 2.0}, ValueError, ["key 1", "pass the name", "'yes'"]),
        ({"yes": -1.0}, ValueError, ["class_weight['yes'] is -1.0", "from 0"]),
        ({"yes": math.nan}, ValueError, ["class_weight['yes'] is nan", "number from 0"]),
        ({"yes": "3"}, ValueError, ["class_weight['yes'] is '3'", "number from 0"]),
        ({"yes": 0.0, "no": 0}, ValueError, ["no example", "above 0"]),
        ("balance", TypeError, ["'balance'", "'balanced'", "mapping"]),
        ([1.0, 2.0], TypeError, ["[1.0, 2.0]", "'balanced'", "mapping"]),
    ],
)
def test_wrong_class_weights_are_named(class_weight, error, parts):
    with pytest.raises(error) as raised:
        class_weights(class_weight, {"no": 3, "yes": 1})
    named(raised, *parts)


@pytest.mark.parametrize(
    ("weights", "parts"),
    [
        ([1.0, -2.0], ["data, row 1", "-2.0", "from 0"]),
        ([1.0, "heavy"], ["data, row 1", "'heavy'", "rename"]),
        ([1.0, math.inf], ["data, row 1", "inf", "from 0"]),
        ([1.0, math.nan], ["data, row 1", "weight", "fill it in"]),
        ([0.0, 0.0], ["all 24 weights are 0", "above 0"]),
    ],
)
def test_wrong_weights_of_examples_are_named_before_the_first_step(weights, parts):
    pipeline = bag_of_words()
    with pytest.raises(ValueError, match="weight") as raised:
        kt.fit(pipeline, with_weights("classification", weights), quiet=True)
    named(raised, *parts)


def test_wrong_class_weights_stop_fit_before_the_first_step(tmp_path):
    pipeline = bag_of_words()
    with pytest.raises(ValueError, match="no_such") as raised:
        kt.fit(pipeline, (TEXTS, LABELS), class_weight={"no_such": 1.0}, folder=tmp_path / "run")
    named(raised, "no_such", *pipeline.labels)
    assert not (tmp_path / "run").exists()
    with pytest.raises(TypeError, match="class_weight") as raised:
        kt.fit(fresh("regression"), DATA["regression"][0], class_weight="balanced")
    named(raised, "class_weight", "no labels")


def test_weights_are_read_from_a_tuple_and_a_file(tmp_path):
    weights = [float(i % 3) for i in range(24)]
    names = [tiny.pipeline("classification").labels[label] for label in LABELS]
    table = tmp_path / "train.tsv"
    rows = zip(TEXTS, names, weights, strict=True)
    table.write_text("text\tlabel\tw\n" + "".join(f"{t}\t{n}\t{w}\n" for t, n, w in rows))
    trainer, pipeline = TRAINERS["classification"], tiny.pipeline("classification")
    columns_of_file = {"text": "text", "label": "label", "weight": "w"}
    for data, columns in (((TEXTS, LABELS, weights), {}), (table, columns_of_file)):
        (examples,) = trainer.read(pipeline, {"data": data}, columns, weighted=True)
        assert examples.weights == weights
    (examples,) = trainer.read(pipeline, {"data": table}, columns_of_file)  # to measure
    assert examples.weights is None
    train, held_out = trainer.split(
        trainer.read(pipeline, {"d": table}, columns_of_file, weighted=True)[0], 0.5
    )
    for part in (train, held_out):
        of_row = dict(zip(range(24), weights, strict=True))
        assert len(part.weights) == len(part)
        assert set(part.weights) <= set(of_row.values())
    table.write_text("text\tlabel\tw\na film\tno\t1\nbad\tyes\tmuch\n")
    with pytest.raises(ValueError, match="much") as raised:
        kt.data.text.load(table, text_column="text", label_column="label", weight_column="w")
    named(raised, f"{table}:3", "'much'", "from 0")


@pytest.mark.usefixtures("untraced_steps")
def test_the_summary_counts_labels_and_warns_of_rare_ones(capsys, caplog):
    data = ([*TEXTS, "a bad film"], [1] * 24 + [0])
    bad, good = tiny.pipeline("classification").labels
    kt.fit(bag_of_words(), data, epochs=1, batch_size=25)
    assert f"{good} 24, {bad} 1" in capsys.readouterr().out
    (warning,) = [x.getMessage() for x in caplog.records if "fewer than 10" in x.getMessage()]
    assert f": {bad} 1;" in warning
    kt.fit(bag_of_words(), (TEXTS, LABELS), epochs=1, batch_size=24, quiet=True)
    assert f"{good} 12" not in capsys.readouterr().out


def uneven_tickets(count):
    """Texts of 12 classes, from half of all rows to one in a hundred; a word tells each class."""
    words = ["a", "film", "good", "bad", "long", "very", ".", "!"]
    cues = [(first, second) for first in words[:4] for second in words[4:7]]
    shares = 0.6 ** np.arange(12)
    random = np.random.default_rng(0)
    labels = random.choice(12, count, p=shares / shares.sum())
    labels[:12] = np.arange(12)
    texts = []
    for label in labels:
        noise = list(random.choice(["a", "film", "!"], 4))
        texts.append(" ".join([*cues[label], *noise]))
    return texts, labels.tolist()


@pytest.mark.slow
def test_balanced_weights_find_the_rare_of_twelve_uneven_classes():
    names = [f"class {i}" for i in range(12)]
    train, test = uneven_tickets(400), uneven_tickets(200)
    macro, predicted = {}, {}
    for class_weight in (None, "balanced"):
        keras.utils.set_random_seed(0)
        sizes = {"num_layers": 1, "num_heads": 4, "hidden_dim": 32, "max_sequence_length": 16}
        rates = {"dropout": 0.0, "attention_dropout": 0.0}
        encoder = bert(vocabulary_size=len(tiny.VOCABULARY), **sizes, **rates)
        model = kt.heads.classifier(kt.heads.with_mean_pooling(encoder), 12, dropout=0.0)
        classify = kt.pipelines.TextClassifier(model, tiny.wordpiece(), names)
        options = {"epochs": 3, "batch_size": 16, "learning_rate": 1e-2, "quiet": True}
        kt.fit(classify, train, class_weight=class_weight, **options)
        answers = [names.index(answer.label) for answer in classify(test[0])]
        macro[class_weight] = f1_score(test[1], answers, average="macro", zero_division=0.0)
        predicted[class_weight] = len(set(answers))
    # Measured: 0.20 with 3 classes, and 0.62 with 9.
    assert macro[None] < 0.35
    assert macro["balanced"] > 0.5
    assert predicted["balanced"] >= 2 * predicted[None]
