"""Describes sentence order, for `load`, `fit` and `save`."""

import keras

from acme.sentence_order.answer import ANSWER
from acme.sentence_order.head import orderer
from acme.sentence_order.pipeline import SentenceOrderer
from keras_transformers.convert import FoundWeights
from keras_transformers.tasks import Task


class SentenceOrderTask(Task[SentenceOrderer]):
    """Says whether two sentences are in their order."""

    name = "acme_sentence_order"
    answer = ANSWER
    pipeline = SentenceOrderer
    new_head_on = "embedding"
    pooled = True
    classes = ("ForSentenceOrder",)
    biases = ("order.bias",)

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the head."""
        return orderer(encoder)


TASK = SentenceOrderTask()
