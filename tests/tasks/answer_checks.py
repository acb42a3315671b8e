"""Checks of pipelines' answers."""

import numpy as np
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.tasks import answers as reading


def same_answers(found, wanted, *, tolerance=1e-5):
    """Checks that results have the same types, close floats, and equal other values."""
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other)
        for name, value in vars(one).items():
            if np.asarray(value).dtype.kind == "f":
                np.testing.assert_allclose(value, getattr(other, name), rtol=0, atol=tolerance)
            else:
                assert value == getattr(other, name), name


def typed_answers(outputs, pipeline):
    """Returns an export's arrays as results of the pipeline's type."""
    padded = [name for name, spec in pipeline.answer_specs().items() if None in spec.shape[1:]]
    answer = reading.answer_type(pipeline.task)
    return [reading.typed(row, answer) for row in reading.rows(outputs, padded, answer)]


def restored(pipeline, folder, *texts):
    """Saves and loads a pipeline, checks that nothing changed, and returns it."""
    pipeline.save(folder)
    other = kt.load(folder)
    assert type(other) is type(pipeline)
    assert other.config() == pipeline.config()
    assert other.model.name == pipeline.model.name
    weights = {variable.path: variable.numpy() for variable in pipeline.model.weights}
    assert [variable.path for variable in other.model.weights] == list(weights)
    for variable in other.model.weights:
        np.testing.assert_array_equal(variable.numpy(), weights[variable.path])
    for name, tokenizer in pipeline.tokenizers.items():
        again = other.tokenizers[name]
        assert type(again) is type(tokenizer)
        assert again.config() == tokenizer.config()
        assert again.vocabulary == tokenizer.vocabulary
    tensors = texts_by_name(pipeline, map(tf.constant, texts))
    answers = other.answer(**tensors)
    for name, value in pipeline.answer(**tensors).items():
        np.testing.assert_array_equal(answers[name], value)
    return other


def texts_by_name(pipeline, texts):
    """Returns name of a pipeline's input -> column of texts."""
    return dict(zip(pipeline.text_names, texts, strict=True))
