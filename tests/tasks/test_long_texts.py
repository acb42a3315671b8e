"""Texts of any length: windows in calls, training and exports."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from checks import says

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.data.text import (
    Examples,
    LabelSetBatches,
    LabelSets,
    TextBatches,
    TextPairBatches,
    TextPairs,
)
from keras_transformers.dependencies.private_api import seed_generators
from keras_transformers.families.bert.model import bert
from keras_transformers.tasks.windows import pooled, real_windows
from keras_transformers.tokenizers import windows

TASKS = ("classification", "multi_label_classification", "regression", "embedding")
LONG = "good film . a bad film , long ! very " * 7
TEXTS = (LONG, "a good film", "", "bad " * 14, "bad " * 15, "very long film ! " * 11)


@functools.cache
def pipeline(task, pooling="mean", pair=False):
    """The tiny pipeline of a task that reads windows of 16 tokens: read only."""
    options = {"pair": pair} if task != "embedding" else {}
    return tiny.pipeline(task).with_options(
        long_texts="windows", window_pooling=pooling, window_overlap=3, **options
    )


def by_hand(pipeline, segments):
    """The model's output for one row of ids: that of each window, pooled."""
    first, *others = segments
    room = pipeline.max_sequence_length - pipeline.tokenizer.num_special_tokens(len(segments))
    others = [ids[: room // 2] for ids in others]
    room -= sum(map(len, others))
    step, outputs, start = room - pipeline.window_overlap, [], 0
    while True:
        rows = [
            tf.ragged.constant([ids], tf.int32) for ids in (first[start : start + room], *others)
        ]
        packed = pipeline.tokenizer.pack(rows, max_sequence_length=pipeline.max_sequence_length)
        inputs = {name: packed[name] for name in pipeline.token_inputs}
        (output,) = pipeline.model(inputs, training=False).values()
        outputs.append(output.numpy()[0])
        if start + room >= len(first):
            break
        start += step
    result = getattr(np, pipeline.window_pooling)(outputs, axis=0)
    return result / np.linalg.norm(result) if pipeline.task == "embedding" else result


@pytest.mark.one_case
@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize("task", TASKS)
def test_answers_are_of_pooled_windows(task, pooling):
    pipe = pipeline(task, pooling)
    ids = [row.tolist() for row in pipe.tokenizer.tokenize(tf.constant(TEXTS)).numpy()]
    outputs = np.stack([by_hand(pipe, [row]) for row in ids])
    wanted = pipe.interpret(tf.constant(outputs))
    answers = pipe.answer(text=tf.constant(TEXTS))
    decoded = pipe.decode(pipe.encode(tf.constant(TEXTS)))
    inputs = pipe.encode(tf.constant(TEXTS))
    (trained,) = pipe.training_model()(inputs, training=False).values()
    np.testing.assert_allclose(trained, outputs, atol=1e-5)
    for name, value in wanted.items():
        if value.dtype == tf.string:
            assert answers[name].numpy().tolist() == value.numpy().tolist()
        else:
            np.testing.assert_allclose(answers[name], value, atol=1e-5)
            np.testing.assert_allclose(decoded[name], value, atol=1e-5)
    alone = pipe.rows({"text": TEXTS}, batch_size=1)
    for one, other in zip(alone, pipe.rows({"text": TEXTS}), strict=True):
        for name, value in one.items():
            if isinstance(value, str | list) and name in ("label", "labels"):
                assert value == other[name]
            else:
                np.testing.assert_allclose(value, other[name], atol=1e-5)


def test_the_second_text_of_a_pair_is_whole_in_each_window():
    pipe = pipeline("regression", pair=True)
    pairs = [(LONG, "bad !"), ("a film", "good"), ("", ""), (LONG, LONG), ("good", LONG)]
    texts = [tf.constant(column) for column in zip(*pairs, strict=True)]
    segments = [pipe.tokenizer.tokenize(column) for column in texts]
    rows = zip(*(part.numpy().tolist() for part in segments), strict=True)
    wanted = [by_hand(pipe, row) for row in rows]
    scores = pipe.answer(text=texts[0], text_b=texts[1])["score"]
    np.testing.assert_allclose(scores, wanted, atol=1e-5)
    assert pipe.is_trimmed(segments).numpy().tolist() == [False, False, False, True, True]
    assert pipe.num_windows(segments).numpy()[[1, 2, 4]].tolist() == [1, 1, 1]


@pytest.mark.parametrize("overlap", [0, 3, 12])
def test_windows_cover_texts_and_overlap(overlap):
    tokenizer = tiny.wordpiece()
    ids = tf.ragged.constant([list(range(n)) for n in (0, 1, 13, 14, 15, 100)], tf.int32)
    plan, (parts,) = windows.cut_texts(tokenizer, [ids], max_sequence_length=16, overlap=overlap)
    for row, tokens in enumerate(ids.numpy()):
        of_row = [part.tolist() for part in parts.numpy()[plan.rows.numpy() == row]]
        assert of_row[0] == tokens[:14].tolist()
        joined = of_row[0]
        for before, after in itertools.pairwise(of_row):
            assert len(before) == 14
            assert len(after) > overlap
            assert before[len(before) - overlap :] == after[:overlap]
            joined = joined + after[overlap:]
        assert joined == tokens.tolist()


def test_no_row_is_an_answer_of_none():
    for task in TASKS:
        outputs = pipeline(task).answer(text=tf.constant([], tf.string))
        assert all(value.shape[0] == 0 for value in outputs.values())
        assert pipeline(task).encode(tf.constant([], tf.string))["token_ids"].shape[0] == 0


def _gradients(function, variables):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(function() ** 2)
    return [tf.convert_to_tensor(x).numpy() for x in tape.gradient(loss, variables)]


@pytest.mark.one_case
@pytest.mark.parametrize("in_graph", [False, True])
def test_gradients_of_chunks_are_those_of_all_windows_with_the_same_dropout(in_graph):
    model = tiny.lively(heads.classifier(tiny.encoder(), 2, dropout=0.3))
    pipe = kt.pipelines.TextClassifier(
        model, tiny.wordpiece(), ["x", "y"], long_texts="windows", window_overlap=3
    )
    inputs = pipe.encode(tf.constant(TEXTS))
    over = pipe.training_model(at_once=4)
    generators = seed_generators(model)
    states = [tf.identity(generator.state) for generator in generators]

    def set_states():
        for generator, state in zip(generators, states, strict=True):
            generator.state.assign(state)

    def plain():
        real = real_windows(inputs)
        count = len(real.rows)
        chunks = [
            model({name: x[i : i + 4] for name, x in real.inputs.items()}, training=True)["logits"]
            for i in range(0, count, 4)
        ]
        outputs = tf.concat(chunks, axis=0)
        return pooled(outputs, real.rows, len(TEXTS), pooling="mean", unit=False)

    wanted = _gradients(plain, model.trainable_variables)
    after = [generator.state.numpy() for generator in generators]
    set_states()

    def in_chunks():
        return over(inputs, training=True)["logits"]

    if in_graph:
        found = tf.function(
            lambda: tf.gradients(
                tf.reduce_sum(in_chunks() ** 2), [v.value for v in over.trainable_variables]
            )
        )()
        found = [tf.convert_to_tensor(x).numpy() for x in found]
    else:
        found = _gradients(in_chunks, over.trainable_variables)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * max(1, np.abs(other).max()))
    for generator, state in zip(generators, after, strict=True):
        np.testing.assert_array_equal(generator.state.numpy(), state)


@pytest.mark.parametrize("training", [False, True])
def test_the_model_never_reads_more_windows_at_once(training):
    pipe = pipeline("classification").with_options()
    sizes = []

    over = pipe.training_model(at_once=5)
    layer = over.get_layer("over_windows")
    model, inputs = layer.model, pipe.encode(tf.constant(TEXTS))
    call = model.call
    model.call = lambda rows, **options: (
        sizes.append(len(rows["token_ids"])),
        call(rows, **options),
    )[1]
    try:
        with tf.GradientTape() as tape:
            logits = layer(inputs, training=training)
        if training:
            assert tape.gradient(logits, model.trainable_variables)[-1] is not None
    finally:
        del model.call
    count = int(pipe.num_windows(pipe.tokenize(tf.constant(TEXTS))).numpy().sum())
    assert max(sizes) == 5
    assert sum(sizes) == count * (1 + training)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"long_texts": "slide"}, ["long_texts='slide'", "'cut'", "'windows'"]),
        ({"window_pooling": "sum"}, ["window_pooling='sum'", "'mean'", "'max'"]),
        ({"window_overlap": 14}, ["window_overlap=14", "0 to 13", "max_sequence_length=16"]),
        ({"window_overlap": -1}, ["window_overlap=-1", "0 to 13"]),
        ({"window_overlap": 7, "pair": True}, ["window_overlap=7", "0 to 6"]),
    ],
)
def test_wrong_options_are_refused(options, parts):
    with pytest.raises(ValueError, match="window|long_texts") as error:
        tiny.pipeline("classification").with_options(**options)
    assert says(str(error.value), " ... ".join(parts))


def test_the_default_overlap_follows_the_length():
    pipe = tiny.pipeline("classification").with_options(long_texts="windows")
    assert pipe.window_overlap == 2
    pipe.max_sequence_length = 8
    assert pipe.window_overlap == 1
    pipe.window_overlap = 3
    pipe.max_sequence_length = 16
    assert pipe.window_overlap == 3


def test_texts_may_be_cut_for_one_call():
    pipe = pipeline("classification")
    cut = tiny.pipeline("classification")
    assert pipe(LONG, long_texts="cut") == cut(LONG) != pipe(LONG)
    assert cut(LONG, long_texts="windows", window_overlap=3).label_index == pipe(LONG).label_index


@pytest.mark.one_case
@pytest.mark.parametrize("task", TASKS)
def test_saved_pipelines_read_windows_again(task, tmp_path):
    pipe = pipeline(task, "max")
    restored = kt.load(pipe.save(tmp_path / "saved"))
    assert restored.config() == pipe.config()
    assert restored.rows({"text": TEXTS}) == pipe.rows({"text": TEXTS})
    assert "long_texts" not in tiny.pipeline(task).config()  # as older versions wrote it


def test_other_libraries_formats_do_not_lose_the_windows(tmp_path):
    pipe = pipeline("embedding")
    with pytest.raises(ValueError, match="options") as error:
        kt.save(pipe, tmp_path / "theirs", format="huggingface")
    assert says(str(error.value), "not written ... options ... 'keras_transformers'")


def examples(task):
    """Examples of a task with texts of one to several windows, and their batches' class."""
    texts = [*TEXTS, LONG * 2, "film"]
    if task == "multi_label_classification":
        return LabelSets(texts, None, [["joy"]] * 4 + [[]] * 4), LabelSetBatches
    if task == "embedding":
        return TextPairs(texts, [f"{text} ." for text in texts]), TextPairBatches
    labels = ["positive", "negative"] * 4
    return Examples(texts, None, labels, weights=[1.0, 0.0] * 4), TextBatches


@pytest.mark.one_case
@pytest.mark.parametrize("task", ["classification", "multi_label_classification", "embedding"])
def test_batches_are_bucketed_by_windows(task):
    data, make = examples(task)
    pipe = pipeline(task)
    batches = make(data, pipe, batch_size=2, shuffle=False)
    counts = pipe.num_windows(pipe.tokenize(tf.constant(data.texts))).numpy()
    assert counts.max() > 2 * counts.min() == 2
    assert batches.lengths.argmax() == counts.argmax() == 6
    shuffled = make(data, pipe, batch_size=2, seed=1)
    for inputs, *_ in shuffled.dataset().take(4):
        mask = inputs["padding_mask"].numpy()
        assert mask.ndim == (4 if task == "embedding" else 3)
        real = mask.any(axis=-1).sum(axis=-1)
        assert real.max() == mask.shape[-2]
    longest = next(iter(make(data, pipe, batch_size=8, shuffle=False).dataset()))[0]
    assert longest["token_ids"].shape[-2] == counts.max()


def test_a_weight_is_of_a_row_and_not_of_a_window():
    data, make = examples("classification")
    pipe = pipeline("classification")
    batches = make(data, pipe, batch_size=8, shuffle=False, class_weight={"positive": 3.0})
    inputs, targets, weights = next(iter(batches.dataset()))
    assert inputs["token_ids"].shape[0] == targets["logits"].shape[0] == 8
    assert weights["logits"].numpy().tolist() == [3.0, 0.0] * 4


def test_static_shapes_are_refused():
    data, make = examples("classification")
    with pytest.raises(ValueError, match="static_shapes=1") as error:
        make(data, pipeline("classification"), batch_size=2, static_shapes=1)
    assert says(str(error.value), "static_shapes=1 ... windows ... long_texts='cut'")


def test_lost_tokens_are_counted():
    data, make = examples("classification")
    cut = make(data, tiny.pipeline("classification"), batch_size=2).statistics
    read = make(data, pipeline("classification"), batch_size=2).statistics
    assert (cut.num_trimmed, cut.num_windows) == (4, 8)
    assert read.num_trimmed == 0
    assert read.num_windows > 16
    assert f"8 examples in {read.num_windows} windows" in str(read)


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """A checked export of the classifier that reads windows, with texts of several lengths."""
    base = tmp_path_factory.mktemp("export") / "long"
    return kt.export(pipeline("classification"), base, examples=list(TEXTS))


def test_an_export_reads_windows_and_says_so(export):
    facts = kt.saved_model.describe(export)
    assert (facts["long_texts"], facts["window_pooling"]) == ("windows", "mean")
    assert facts["window_overlap"] == 3
    tokens = facts["signatures"]["tokens"]["inputs"]["token_ids"]
    assert tokens["shape"] == [None, None, None]  # batch, windows, length
    assert facts["signatures"]["windows"]["outputs"] == {
        "num_windows": {"dtype": "int32", "shape": [None]}
    }
    pipe = pipeline("classification")
    signatures = tf.saved_model.load(str(export)).signatures
    for texts in (TEXTS, TEXTS[:1], TEXTS[::-1], ()):
        column = tf.constant(texts, tf.string)
        served = signatures["serving_default"](text=column)
        probabilities = served["probabilities"].numpy()
        wanted = [answer.probabilities for answer in pipe(list(texts))]
        np.testing.assert_allclose(probabilities, np.reshape(wanted, (-1, 2)), atol=1e-5)
        inputs = pipe.encode(column)
        of_tokens = signatures["tokens"](**inputs)["probabilities"]
        np.testing.assert_allclose(of_tokens, probabilities, atol=1e-5)
        counts = signatures["windows"](text=column)["num_windows"].numpy()
        assert counts.tolist() == pipe.num_windows(pipe.tokenize(column)).numpy().tolist()
    card = (kt.saved_model.write_card(export)).read_text()
    assert "any, in windows of 16 tokens" in card


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("weights_dtype", ["float32", "bfloat16"])
def test_every_export_repeats_the_answers(task, weights_dtype, tmp_path):
    pipe = pipeline(task, "max")
    path = kt.export(pipe, tmp_path / "model", examples=list(TEXTS), weights_dtype=weights_dtype)
    assert kt.saved_model.describe(path)["window_pooling"] == "max"


@pytest.mark.slow
def test_int8_reads_windows(tmp_path):
    encoder = bert(
        vocabulary_size=len(tiny.VOCABULARY),
        num_layers=1,
        num_heads=2,
        hidden_dim=64,
        max_sequence_length=16,
    )
    model = tiny.lively(heads.classifier(encoder, 2))
    pipe = kt.pipelines.TextClassifier(
        model, tiny.wordpiece(), ["a", "b"], long_texts="windows", window_overlap=3
    )
    path = kt.export(pipe, tmp_path / "m", examples=list(TEXTS), weights_dtype="int8")
    assert kt.saved_model.describe(path)["weights_dtype"] == "int8"


@pytest.mark.slow
def test_reports_on_exports_are_those_on_pipelines(export):
    texts, labels = list(TEXTS), ["positive", "negative"] * 3
    report = kt.saved_model.evaluate_export(export, (texts, labels))
    scores = kt.evaluate(pipeline("classification"), (texts, labels))
    assert report.figures == pytest.approx(scores.report.figures, rel=1e-4)
    assert report.figures["accuracy"] == pytest.approx(scores["accuracy"])


def long_text(label, num_tokens):
    """A text whose last word alone says its label."""
    return " ".join([*["film"] * (num_tokens - 1), label])


def learned(num_tokens, max_sequence_length, *, long_texts, epochs):
    """The accuracy on shorter texts of a classifier that was trained on texts this long."""
    labels = ["good", "bad"] * 16
    train, test = (
        [long_text(label, num_tokens - i) for i, label in enumerate(labels, first)]
        for first in (0, len(labels))
    )
    keras.utils.set_random_seed(1)
    encoder = bert(
        vocabulary_size=len(tiny.VOCABULARY),
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        max_sequence_length=max_sequence_length,
        dropout=0.0,
    )
    model = tiny.lively(heads.classifier(heads.with_mean_pooling(encoder), 2))
    options = {"long_texts": long_texts, "window_pooling": "max"}
    classify = kt.pipelines.TextClassifier(model, tiny.wordpiece(), ["good", "bad"], **options)
    options = {"epochs": epochs, "batch_size": 8, "learning_rate": 0.02, "quiet": True}
    kt.fit(classify, (train, labels), **options)
    return kt.evaluate(classify, (test, labels))["accuracy"]


@pytest.mark.slow
def test_windows_learn_what_stands_at_the_end():
    assert learned(60, 16, long_texts="windows", epochs=8) >= 0.95


@pytest.mark.slow
def test_windows_learn_from_5000_tokens_what_cutting_cannot():
    assert learned(5000, 64, long_texts="cut", epochs=8) == 0.5  # all texts are the same
    assert learned(5000, 64, long_texts="windows", epochs=8) >= 0.95
