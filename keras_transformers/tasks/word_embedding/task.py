"""Describes word embedding, for `load`, `fit` and files of other libraries."""

from keras_transformers.tasks.task import Task
from keras_transformers.tasks.word_embedding.answer import ANSWER
from keras_transformers.tasks.word_embedding.pipeline import WordEmbedder


class WordEmbeddingTask(Task[WordEmbedder]):
    """Turns the words of texts into vectors."""

    name = "word_embedding"
    answer = ANSWER
    pipeline = WordEmbedder
    headless = True


TASK = WordEmbeddingTask()
