"""Says what a task is: its pipeline and answer, and its models in other libraries."""

import abc
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import keras

from keras_transformers import registry
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.huggingface import save_huggingface
from keras_transformers.convert.formats.weights import FoundWeights, TrainedModel
from keras_transformers.data.tables.in_memory import TEXT, TEXT_A, TEXT_B, Wanted
from keras_transformers.data.tables.kinds import Kind, kind_of
from keras_transformers.files.errors import short_repr
from keras_transformers.tasks.answers import AnswerType
from keras_transformers.tasks.pipeline import Pipeline

if TYPE_CHECKING:
    from keras_transformers.tasks.training import Trainer

__all__ = ["Task"]

# How to make the one vector that a new head for whole texts reads.
Pooling = Literal["mean", "normalized_mean", "cls", "lasttoken", "pooler"]

PipelineT = TypeVar("PipelineT", bound=Pipeline)


class Task(abc.ABC, Generic[PipelineT]):
    """A task; each task's task.py defines one as `TASK`, and `register` takes others.

    Attributes:
        name: the task's name in `load(pipeline=...)`.
        pipeline: the pipeline's class.
        answer: how to read its answers, which clients without TensorFlow do too.
        new_head_on: the task whose models can get a new head for this one, such as "embedding" for
            encoders of texts; "" if only weights with a head serve it.
        headless: whether a model without a head serves it.
        needs: the options that a new head requires.
        pooled: whether the head reads one vector per text.
        classes: the suffixes of transformers' classes that serve it; saving writes the first.
        second_in: the suffixes of classes that serve it as their second task, such as classes with
            two heads.
        head_of: another task whose trained head serves it too; "" for none.
        problem_type: its name in config.json, where tasks share a class.
        by_default: whether it may be this task if config.json has no problem_type.
        num_outputs: how many outputs its head has, where tasks share a class or no class is named.
        biases: the tensors that identify its head if no class is named.
        made_by: what makes its pipelines, if `load` does not.
    """

    name: ClassVar[str]
    answer: ClassVar[AnswerType]
    pipeline: type[PipelineT]

    new_head_on: ClassVar[str] = ""
    headless: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()
    pooled: ClassVar[bool] = False
    classes: ClassVar[tuple[str, ...]] = ()
    second_in: ClassVar[tuple[str, ...]] = ()
    head_of: ClassVar[str] = ""
    problem_type: ClassVar[str | None] = None
    by_default: ClassVar[bool] = True
    num_outputs: ClassVar[Literal["one", "several"] | None] = None
    biases: ClassVar[tuple[str, ...]] = ()
    made_by: ClassVar[str] = ""

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the task's head to a model without one; by default a model needs none.

        Args:
            encoder: a model for the task `new_head_on`, or of the weights.
            weights: the weights that the model is for.
            num_labels: how many labels the head has; 0 if the task has no labels.
        """
        return encoder

    @property
    def make(self) -> Callable[..., PipelineT]:
        """What makes the pipeline from a model, its tokenizers and options: its class."""
        return self.pipeline

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The arguments that make the pipeline."""
        return inspect.signature(self.make).parameters

    @property
    def options(self) -> Mapping[str, inspect.Parameter]:
        """The options of `load` for the task, beside `pipeline` and `adapter`."""
        options = {
            name: parameter
            for name, parameter in self.parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY or name in self.needs
        }
        if self.pooled:
            kind = inspect.Parameter.KEYWORD_ONLY
            options["pooling"] = inspect.Parameter("pooling", kind, annotation=Pooling)
        return options

    def trainer(self) -> "Trainer[Any, Any] | None":
        """Returns how `fit` trains the task and `evaluate` measures it; None if they cannot.

        It is the `TRAINER` of training.py beside the task's own file, imported only now, since a
        served pipeline needs no readers of training data.
        """
        package = type(self).__module__.rpartition(".")[0]
        module = f"{package}.training"
        if not package or importlib.util.find_spec(module) is None:
            return None
        trainer: Trainer[Any, Any] = importlib.import_module(module).TRAINER
        return trainer

    def table_inputs(self, pipeline: PipelineT) -> Sequence[Sequence[Wanted]]:
        """Returns the columns that `predict` reads: sets, of which a table must have one.

        By default the pipeline's inputs, under the names that training data has for them.

        Args:
            pipeline: the pipeline, or an export with the attributes of its pipeline.
        """
        trainer, names = self.trainer(), pipeline.text_names
        usual = {"text": TEXT_A if "text_b" in names else TEXT, "text_b": TEXT_B}
        columns = {name: Wanted(name, usual.get(name, ())) for name in names}
        if trainer is not None:
            columns |= {x.name: x for x in trainer.columns(pipeline) if x.name in columns}
        return [list(columns.values())]

    def table_outputs(
        self, pipeline: PipelineT, inputs: Collection[str], *, probabilities: bool
    ) -> Mapping[str, Kind]:
        """Returns the columns that `predict` adds: name -> the type of a cell, such as `list[str]`.

        By default the pipeline's outputs.

        Args:
            pipeline: see `table_inputs`.
            inputs: the names of the columns that are read.
            probabilities: whether to add the probability of each label, for tasks with labels.
        """
        specs = pipeline.answer_specs()
        return {name: kind_of(spec) for name, spec in specs.items() if name != self.answer.count}

    def table_rows(
        self, pipeline: PipelineT, columns: Mapping[str, Sequence[Any]], *, batch_size: int
    ) -> Sequence[Mapping[str, Any]]:
        """Answers rows of a table: for each row, at least the cells of `table_outputs`.

        Args:
            pipeline: see `table_inputs`.
            columns: name in `table_inputs` -> a cell per row.
            batch_size: rows in one call of the graph.

        Raises:
            ValueError: the pipeline refuses a row.
        """
        return pipeline.rows(columns, batch_size=batch_size)

    def file_rows(self, path: Path) -> Iterator[dict[str, Any]] | None:
        """Returns the rows of a file in a format of the task: name of a column -> cell.

        None, as by default, if the file is a table, or has one row per line.
        """
        return None

    def cell_fault(self, name: str, value: Any) -> str:
        """Returns why the pipeline cannot read a cell of a table, or "".

        By default a cell must be a string or, for `answer.lists`, a list of them.
        """
        if name not in self.answer.lists:
            return "" if isinstance(value, str) else f"{short_repr(value)}, expected a string"
        are_texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
        return "" if are_texts else f"{short_repr(value)}, expected a list of strings"

    def may_have(self, num_outputs: int) -> bool:
        """Returns whether its head can have this many outputs."""
        return self.num_outputs in (None, "one" if num_outputs == 1 else "several")

    def read_options(self, folder: Folder) -> Mapping[str, Any]:
        """Returns the pipeline's options from a folder in Hugging Face's layout."""
        return {}

    def config_fields(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the fields of config.json for the pipeline's options."""
        return {}

    def prepare(self, pipeline: PipelineT) -> PipelineT:
        """Returns the pipeline in a form that other libraries can compute, before saving it."""
        return pipeline

    def write(self, trained: TrainedModel, folder: Path) -> None:
        """Saves a pipeline as other libraries read it."""
        save_huggingface(trained, folder)

    def registered_as(self) -> Iterator[tuple[str, Any]]:
        """Yields (constant, value) for all that registering it registers."""
        yield "TASK", self
        yield "ANSWER", self.answer

    def check(self) -> None:
        """Raises ValueError unless the task, its answer and its pipeline have one name."""
        if not self.name == self.answer.task == self.pipeline.task:
            raise ValueError(
                f"task {self.name!r} has answers of {self.answer.task!r} and a pipeline for "
                f"{self.pipeline.task!r}: give them one name"
            )


def all_tasks() -> Mapping[str, Task[Any]]:
    """Returns name -> task, the package's own first, in the order of their names."""
    return {task.name: task for task in registry.values("TASK")}


def trainer_of(pipeline: object) -> "Trainer[Any, Any]":
    """Returns what trains and measures a pipeline.

    Raises:
        TypeError: it is not a pipeline, or its task cannot be trained in one call.
    """
    name, tasks = getattr(pipeline, "task", ""), all_tasks()
    trainer = tasks[name].trainer() if name in tasks else None
    if trainer is None:
        what = f"a pipeline for {name}" if name else f"a {type(pipeline).__name__}"
        trained = [task.name for task in tasks.values() if task.trainer()]
        raise TypeError(
            f"{what} cannot be trained in one call: pass a pipeline from load for "
            f"{', '.join(trained)}; recipes/ has scripts for other models"
        )
    return trainer
