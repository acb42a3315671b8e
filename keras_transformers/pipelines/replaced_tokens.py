"""Detects the words of a text that a generator has replaced, with ELECTRA's discriminator."""

import functools

import keras

from keras_transformers.models import heads
from keras_transformers.pipelines.tagging import Tagger
from keras_transformers.pipelines.tasks import Task


def _head(encoder: keras.Model) -> keras.Model:
    return heads.replaced_token_tagger(heads.replaced_token_detector(encoder))


TASK = Task(
    name="replaced_tokens",
    pipeline=Tagger,
    make=functools.partial(Tagger, labels=["original", "replaced"]),
    head=_head,
)
