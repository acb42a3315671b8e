"""A tiny pipeline of each text task and its export, each made once and only on demand."""

import functools
import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow as tf
from pretrained_models import PIPELINES, VOCABULARY

import keras_transformers as kt
from keras_transformers.tokenizers import WordPieceTokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY)


@pytest.fixture(scope="session")
def pipelines(tokenizer):
    """Name in `PIPELINES` -> the pipeline: read only."""

    @functools.cache
    def make(name):
        random.seed(0)  # for the initializers, in any order of tests
        return PIPELINES[name](tokenizer)

    return make


@pytest.fixture(scope="session")
def exports(pipelines, tmp_path_factory):
    """Name in `PIPELINES` -> its unchecked export: read only."""

    @functools.cache
    def make(name):
        return kt.export(pipelines(name), tmp_path_factory.mktemp(name), check=False)

    return make


@pytest.fixture(scope="session")
def run(exports):
    """Runs a signature of an export: name in `PIPELINES`, tensors -> arrays."""

    @functools.cache
    def loaded(name):
        return tf.saved_model.load(str(exports(name)))

    def call(name, signature="serving_default", **inputs):
        outputs = loaded(name).signatures[signature](**inputs)
        return {key: value.numpy() for key, value in outputs.items()}

    return call
