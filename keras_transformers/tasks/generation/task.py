"""Describes generation, for `load`, `fit` and files of other libraries."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.chat_templates import read_chat_template
from keras_transformers.convert.formats.generation_config import read_sampling_options
from keras_transformers.data.tables.in_memory import TEXT, Wanted
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.files.errors import short_repr
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
        """Returns text, the prompt; or messages, if the pipeline answers conversations."""
        text = Wanted("text", ("prompt", *TEXT))
        if not isinstance(pipeline, TextGenerator) or pipeline.chat_template is None:
            return [[text]]
        return [[text], [Wanted("messages", ("conversations", "conversation"))]]

    def table_outputs(
        self, pipeline: TextGenerator, inputs: Collection[str], *, probabilities: bool
    ) -> Mapping[str, Kind]:
        """Returns generation, since the table has the column text, and the other outputs."""
        kinds = super().table_outputs(pipeline, inputs, probabilities=probabilities)
        return {_COLUMNS.get(name, name): kind for name, kind in kinds.items()}

    def table_rows(
        self, pipeline: TextGenerator, columns: Mapping[str, Sequence[Any]], *, batch_size: int
    ) -> Sequence[Mapping[str, Any]]:
        """Answers prompts with their continuations, and conversations with the next message."""
        rows: list[Mapping[str, Any]] = []
        if "messages" not in columns:
            prompts = {"prompt": columns["text"]}
            rows += super().table_rows(pipeline, prompts, batch_size=batch_size)
        for batch in _batched(columns.get("messages", ()), batch_size):
            rows += map(vars, pipeline.chat(batch))
        return [{_COLUMNS.get(name, name): cell for name, cell in row.items()} for row in rows]

    def cell_fault(self, name: str, value: Any) -> str:
        """Returns why a cell is neither a prompt nor a conversation, or ""."""
        if name != "messages":
            return super().cell_fault(name, value)
        is_list = isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
        return "" if is_list else f"{short_repr(value)}, expected a list of messages"


def _batched(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


TASK = GenerationTask()
