"""Describes translation, for `load`, `fit` and files of other libraries."""

from typing import Any

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.generation_config import read_generation_options
from keras_transformers.tasks.task import Task
from keras_transformers.tasks.translation.answer import ANSWER
from keras_transformers.tasks.translation.pipeline import Translator


class TranslationTask(Task[Translator]):
    """Translates texts, or summarizes them."""

    name = "translation"
    answer = ANSWER
    pipeline = Translator
    headless = True

    def read_options(self, folder: Folder) -> dict[str, Any]:
        """Returns the options of the search."""
        return read_generation_options(folder)


TASK = TranslationTask()
