"""Describes search, for exports and their clients."""

from keras_transformers.tasks.search.answer import ANSWER
from keras_transformers.tasks.search.pipeline import Searcher
from keras_transformers.tasks.task import Task


class SearchTask(Task[Searcher]):
    """Finds the texts of a corpus that answer a query."""

    name = "search"
    answer = ANSWER
    pipeline = Searcher


TASK = SearchTask()
