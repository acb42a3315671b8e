"""Detects the words of a text that a generator has replaced, with ELECTRA's discriminator."""

import functools

import keras

from keras_transformers.tasks.replaced_tokens.head import (
    replaced_token_detector,
    replaced_token_tagger,
)
from keras_transformers.tasks.tagging.pipeline import Tagger
from keras_transformers.tasks.task import Task


def _head(encoder: keras.Model) -> keras.Model:
    return replaced_token_tagger(replaced_token_detector(encoder))


TASK = Task(
    name="replaced_tokens",
    pipeline=Tagger,
    make=functools.partial(Tagger, labels=["original", "replaced"]),
    head=_head,
)
