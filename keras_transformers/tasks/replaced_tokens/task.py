"""Describes replaced tokens, for `load`, `fit` and files of other libraries."""

import functools
from collections.abc import Callable

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.tasks.replaced_tokens.head import (
    replaced_token_detector,
    replaced_token_tagger,
)
from keras_transformers.tasks.tagging.answer import ANSWER
from keras_transformers.tasks.tagging.pipeline import Tagger
from keras_transformers.tasks.task import Task


class ReplacedTokensTask(Task[Tagger]):
    """Tags the words that a generator has replaced."""

    name = "replaced_tokens"
    answer = ANSWER
    pipeline = Tagger

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds ELECTRA's discriminator, as a tagger."""
        return replaced_token_tagger(replaced_token_detector(encoder))

    @property
    def make(self) -> Callable[..., Tagger]:
        """Makes a tagger with the two labels."""
        return functools.partial(Tagger, labels=["original", "replaced"])


TASK = ReplacedTokensTask()
