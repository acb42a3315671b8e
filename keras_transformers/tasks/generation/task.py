"""Describes generation, for `load`, `fit` and files of other libraries."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.chat_templates import read_chat_template
from keras_transformers.convert.formats.generation_config import read_sampling_options
from keras_transformers.data.tables.in_memory import TEXT, Wanted
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.tasks.generation.answer import ANSWER
from keras_transformers.tasks.generation.pipeline import TextGenerator
from keras_transformers.tasks.task import Task

_COLUMNS = {"text": "generation"}  # output -> column


class GenerationTask(Task[TextGenerator]):
    """Continues texts."""

    name = "generation"
    answer = ANSWER
    pipeline = TextGenerator
    headless = True

    def read_options(self, folder: Folder) -> dict[str, Any]:
        """Returns the options of sampling and the chat template."""
        return {**read_sampling_options(folder), **read_chat_template(folder)}

    def table_inputs(self, pipeline: TextGenerator) -> Sequence[Sequence[Wanted]]:
        """Returns text, the prompt."""
        return [[Wanted("text", ("prompt", *TEXT))]]

    def table_outputs(
        self, pipeline: TextGenerator, inputs: Collection[str], *, probabilities: bool
    ) -> Mapping[str, Kind]:
        """Returns generation, since the table has the column text, and the other outputs."""
        kinds = super().table_outputs(pipeline, inputs, probabilities=probabilities)
        return {_COLUMNS.get(name, name): kind for name, kind in kinds.items()}

    def table_rows(
        self, pipeline: TextGenerator, columns: Mapping[str, Sequence[Any]], *, batch_size: int
    ) -> Sequence[Mapping[str, Any]]:
        """Answers prompts with their continuations."""
        prompts = {"prompt": columns["text"]}
        rows = super().table_rows(pipeline, prompts, batch_size=batch_size)
        return [{_COLUMNS.get(name, name): cell for name, cell in row.items()} for row in rows]


TASK = GenerationTask()
