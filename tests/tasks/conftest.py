"""A tiny pipeline of each text task and its export, each made once and only on demand."""

import functools
import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
from graph_checks import signatures_in_graphs
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
def run(pipelines):
    """Runs a signature in the graph that an export stores: name in `PIPELINES`, tensors -> arrays.

    Exports themselves are compared with it in `test_text_pipelines.py`.
    """

    @functools.cache
    def graphs(name):
        return signatures_in_graphs(pipelines(name))

    def call(name, signature="serving_default", **inputs):
        return graphs(name)(signature, **inputs)

    return call
