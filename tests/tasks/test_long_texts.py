"""Texts of any length: windows in calls, training and exports."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.dependencies.private_api import seed_generators
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
        for before, after in zip(of_row, of_row[1:], strict=False):
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
