"""Describes search, for `predict`."""

from keras_transformers.tasks.search.answer import ANSWER
from keras_transformers.tasks.search.pipeline import NOT_SAVED, Searcher
from keras_transformers.tasks.task import Task


class SearchTask(Task[Searcher]):
    """Finds the texts of a corpus that answer a query."""

    name = "search"
    answer = ANSWER
    pipeline = Searcher
    made_by = "pipelines.Searcher with a corpus and its indexes"

    def prepare(self, pipeline: Searcher) -> Searcher:
        """Raises ValueError: no other library reads a search."""
        raise ValueError(NOT_SAVED)


TASK = SearchTask()
