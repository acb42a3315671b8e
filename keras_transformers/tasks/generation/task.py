"""Describes generation, for `load`, `fit` and files of other libraries."""

from typing import Any

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.chat_templates import read_chat_template
from keras_transformers.convert.formats.generation_config import read_sampling_options
from keras_transformers.tasks.generation.answer import ANSWER
from keras_transformers.tasks.generation.pipeline import TextGenerator
from keras_transformers.tasks.task import Task


class GenerationTask(Task[TextGenerator]):
    """Continues texts."""

    name = "generation"
    answer = ANSWER
    pipeline = TextGenerator
    headless = True

    def read_options(self, folder: Folder) -> dict[str, Any]:
        """Returns the options of sampling and the chat template."""
        return {**read_sampling_options(folder), **read_chat_template(folder)}


TASK = GenerationTask()
