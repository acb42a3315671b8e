"""What the export tests share: a tiny BERT classifier with lively weights, and its tokenizer."""

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest
from keras_transformers.export import classifier

from keras_transformers.models import bert, heads
from keras_transformers.tokenizers import WordPieceTokenizer

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "film", "good", "bad", "long", "very", "##s", ".", "!"),
]


@pytest.fixture(scope="session")
def make_classifier():
    """Makes a BERT of one layer, weights far from zero so that every input matters."""

    def make(num_classes=2, *, vocabulary_size=14, seed=25):
        encoder = bert.bert(
            vocabulary_size=vocabulary_size,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            max_sequence_length=16,
        )
        model = heads.classifier(encoder, num_classes)
        generator = np.random.default_rng(seed)
        for variable in model.trainable_variables:
            if len(variable.shape) == 2:  # the vectors stay 0 and 1
                variable.assign(generator.normal(0.0, 0.7, variable.shape))
        return model

    return make


@pytest.fixture(scope="session")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY)


@pytest.fixture(scope="session")
def model(make_classifier):
    return make_classifier()


@pytest.fixture(scope="session")
def exported(model, tokenizer, tmp_path_factory) -> Path:
    """A checked export of one-text classification: read only."""
    return classifier(model, tokenizer, ["negative", "positive"], tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def exported_pair(make_classifier, tokenizer, tmp_path_factory) -> Path:
    """An export of pair classification in three classes, not yet checked: read only."""
    return classifier(
        make_classifier(3),
        tokenizer,
        ["entailment", "neutral", "contradiction"],
        tmp_path_factory.mktemp("base") / "7",
        pair=True,
        max_sequence_length=9,
        examples=[("a film", "a good film"), ("bad films", "very good!")],
        check=False,
    )
