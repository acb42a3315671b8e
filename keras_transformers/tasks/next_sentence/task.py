"""Describes next sentence, for `load`, `fit` and files of other libraries."""

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.tasks.fill_mask.head import BOTH_HEADS, pretrainer
from keras_transformers.tasks.next_sentence.answer import ANSWER
from keras_transformers.tasks.next_sentence.pipeline import NextSentenceClassifier
from keras_transformers.tasks.task import Task
from keras_transformers.tasks.token_inputs import part


class NextSentenceTask(Task[NextSentenceClassifier]):
    """Says whether one text follows another."""

    name = "next_sentence"
    answer = ANSWER
    pipeline = NextSentenceClassifier
    pooled = True
    classes = ("ForNextSentencePrediction",)
    second_in = ("ForPreTraining",)
    biases = ("cls.seq_relationship.bias",)

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds both of BERT's heads, or only this task's if the weights lack the one for masks."""
        model = pretrainer(encoder, **weights.masked_lm)
        both = {*weights.trained} >= BOTH_HEADS
        return model if both else part(model, ("next_sentence_logits",))


TASK = NextSentenceTask()
