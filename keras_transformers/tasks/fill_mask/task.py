"""Describes filling masks, for `load`, `fit` and files of other libraries."""

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.tasks.fill_mask.answer import ANSWER
from keras_transformers.tasks.fill_mask.head import BOTH_HEADS, masked_lm, pretrainer
from keras_transformers.tasks.fill_mask.pipeline import MaskFiller
from keras_transformers.tasks.task import Task


class FillMaskTask(Task[MaskFiller]):
    """Fills masks in texts."""

    name = "fill_mask"
    answer = ANSWER
    pipeline = MaskFiller
    new_head_on = "embedding"
    classes = ("ForMaskedLM", "ForPreTraining")
    biases = (
        *("cls.predictions.bias", "lm_head.bias", "vocab_projector.bias"),
        "generator_lm_head.bias",
    )

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the head for masks, and BERT's other head if the weights have it."""
        make = pretrainer if {*weights.trained} >= BOTH_HEADS else masked_lm
        return make(encoder, **weights.masked_lm)


TASK = FillMaskTask()
