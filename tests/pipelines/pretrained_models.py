"""Tiny models for the tests of exports, with weights far from zero so that every input matters."""

import keras
import numpy as np

from keras_transformers.models import bert, heads


def lively_encoder(*, vocabulary_size=14, seed=3):
    """A BERT of one layer and 16 positions."""
    encoder = bert.bert(
        vocabulary_size=vocabulary_size,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        max_sequence_length=16,
    )
    return enlivened(encoder, seed)


def lively_pretrainer(**arguments):
    """Both pretraining heads on it."""
    return enlivened(heads.pretrainer(lively_encoder(**arguments)), seed=4)


def enlivened(model: keras.Model, seed: int) -> keras.Model:
    """The model, its matrices redrawn; vectors move a little too."""
    generator = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        scale = 0.7 if len(variable.shape) == 2 else 0.1
        variable.assign_add(generator.normal(0.0, scale, variable.shape))
    return model
