"""Answers and attention of pipelines on DeBERTa, which has distances and no segments."""

import deberta_toy
import family_tasks
import numpy as np
import pytest

import keras_transformers as kt
from keras_transformers.families.deberta.model import deberta


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return deberta_toy.tokenizer(tmp_path_factory.mktemp("deberta"))


@pytest.fixture(scope="module")
def encoder(tokenizer):
    encoder = deberta(
        vocabulary_size=tokenizer.vocabulary_size + 3,  # published models pad their matrices
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        max_sequence_length=24,
        max_distance=12,
        num_buckets=6,
    )
    return family_tasks.lively(encoder)


def test_answers(encoder, tokenizer, tmp_path):
    embed = family_tasks.TASKS["embedding"](encoder, tokenizer)
    family_tasks.answers_do_not_depend_on_the_batch(embed)
    family_tasks.it_comes_back(embed, tmp_path)


def test_attention_is_shown(encoder, tokenizer):
    """The last block computes the first position alone; the view shows all."""
    classify = kt.pipelines.TextClassifier(kt.heads.classifier(encoder, 2), tokenizer, ["a", "b"])
    shares = np.asarray(kt.inspection.attention(classify, "two dogs run")["encoder"].probabilities)
    assert shares.shape[-2] == shares.shape[-1] > 2
    np.testing.assert_allclose(shares.sum(-1), 1.0, atol=1e-5)
