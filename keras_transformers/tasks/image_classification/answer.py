"""Defines the answer of image classification: a label."""

from keras_transformers.tasks.answers import AnswerType
from keras_transformers.tasks.classification.answer import Classification

ANSWER = AnswerType("image_classification", Classification, inputs=())
