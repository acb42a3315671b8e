"""Defines the answer of image classification: a label."""

from keras_transformers.pipelines.results.classification import Classification
from keras_transformers.pipelines.results.reading import AnswerType

ANSWER = AnswerType("image_classification", Classification, inputs=())
