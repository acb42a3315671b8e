"""Describes tasks, and finds the tasks that weights from other libraries serve.

A module in this folder registers its task by defining `TASK`; no list names it.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import keras

from keras_transformers import registry
from keras_transformers.convert.formats.huggingface import save_huggingface
from keras_transformers.convert.formats.weights import FoundWeights, Head, TrainedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task: its pipeline, how to make it, and the names of its models in other libraries.

    The type of its answer is in `pipelines.results`, where clients without TensorFlow find it.

    Attributes:
        name: the task's name in `load(pipeline=...)`.
        pipeline: the pipeline's class.
        make: makes the pipeline from model, tokenizers and options, if not the class itself.
        head: adds the task's head to a model without one; it also takes the number of labels if the
            task needs labels. None if the model without a head is enough.
        head_of: does the same from the model and the weights found, if the head depends on them.
        new_head_on: the task whose models can get a new head for this one, such as "embedding" for
            encoders of texts; "" if only weights with a head serve it.
        headless: whether a model without a head serves it.
        needs: the options that a new head requires.
        pooled: whether the head reads one vector per text.
        classes: the suffixes of transformers' classes that serve it; saving writes the first.
        second_in: the suffixes of classes that serve it as their second task, such as classes with
            two heads.
        problem_type: its name in config.json, where tasks share a class.
        by_default: whether it may be this task if config.json has no problem_type.
        num_outputs: how many outputs its head has, where tasks share a class or no class is named.
        biases: the tensors that identify its head if no class is named.
        read_options: reads the pipeline's options from a folder in Hugging Face's layout.
        config_fields: the fields of config.json for the pipeline's options.
        prepare: changes a pipeline so that other libraries can compute it, before saving it.
        write: saves that in Hugging Face's layout.
    """

    name: str
    pipeline: type[Any]
    make: Callable[..., Any] | None = None
    head: Callable[..., keras.Model] | None = None
    head_of: Callable[[keras.Model, FoundWeights], keras.Model] | None = None
    new_head_on: str = ""
    headless: bool = False
    needs: tuple[str, ...] = ()
    pooled: bool = False
    classes: tuple[str, ...] = ()
    second_in: tuple[str, ...] = ()
    problem_type: str | None = None
    by_default: bool = True
    num_outputs: Literal["one", "several"] | None = None
    biases: tuple[str, ...] = ()
    read_options: Callable[[Path], Mapping[str, Any]] = lambda folder: {}
    config_fields: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda options: {}
    prepare: Callable[[Any], Any] = lambda pipeline: pipeline
    write: Callable[[TrainedModel, Path], None] = save_huggingface

    def model(self, encoder: keras.Model, found: FoundWeights, num_labels: int) -> keras.Model:
        """Returns a model with the task's head, from a model without a head."""
        if self.head_of is not None:
            return self.head_of(encoder, found)
        if self.head is None:
            return encoder
        return self.head(encoder, *([num_labels] if "labels" in self.needs else []))

    def made(self, model: keras.Model, tokenizers: Sequence[Any], **options: Any) -> Any:
        """Makes the pipeline."""
        return (self.make or self.pipeline)(model, *tokenizers, **options)

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The arguments that make the pipeline."""
        return inspect.signature(self.make or self.pipeline).parameters

    def may_have(self, num_outputs: int) -> bool:
        """Returns whether its head can have this many outputs."""
        return self.num_outputs in (None, "one" if num_outputs == 1 else "several")


def all_tasks() -> Mapping[str, Task]:
    """Returns name -> task, the package's own first, in the order of their names."""
    return {task.name: task for task in registry.values("TASK")}


def with_trained(found: FoundWeights) -> FoundWeights:
    """Adds the tasks that a head serves to the weights found, if their files name only the head."""
    if found.head is None or found.trained:
        return found
    trained, undecided = _served(found.head, found.base)
    return dataclasses.replace(found, trained=trained, undecided=undecided)


def _served(head: Head, base: str) -> tuple[tuple[str, ...], str]:
    """Returns the tasks that a head serves, the main one first, or the reason why none does."""
    name = head.name.lower()  # Keras 2 changed the case of model names

    def ends_like(ends: Iterable[str]) -> bool:
        return name.endswith(tuple(end.lower() for end in ends))

    for end, own in head.own.items():
        if ends_like([end]):
            return own, ""
    tasks = all_tasks()
    with_heads = [task for task in tasks.values() if not task.headless]
    takes_heads = any(task.new_head_on == base for task in with_heads)
    if takes_heads:
        main = [task for task in with_heads if ends_like(task.classes)]
        if main:
            said = [task for task in main if task.name == head.written[0]]
            if said or len(main) == 1:
                chosen, undecided = (said or main)[:1], ""
            else:
                chosen, undecided = _by_loss(head, main)
            outputs = len(head.labels())
            second = [
                task
                for task in with_heads
                if ends_like(task.second_in) and task.may_have(outputs) and task not in chosen
            ]
            return tuple(task.name for task in [*chosen, *second]), undecided
    is_bare = not name or (name.endswith("model") and not name.endswith("lmheadmodel"))
    if not is_bare or not tasks[base].headless:
        return (), ""
    # Without a class, heads in the weights serve a task only if the user asks for it.
    may_serve = with_heads if takes_heads and not name else []
    unnamed = [task.name for task in may_serve if _has(head, task)]
    return (base, *unnamed), ""


def _has(head: Head, task: Task) -> bool:
    sizes = [head.shapes[bias] for bias in task.biases if bias in head.shapes]
    return any(task.may_have(size) for (size, *_) in sizes)


def _by_loss(head: Head, tasks: Sequence[Task]) -> tuple[list[Task], str]:
    """Returns which of the tasks that share a class fits its loss; or none, and why."""
    kind, num_outputs = head.config.get("problem_type"), len(head.labels())
    if kind is None:
        fitting = [task for task in tasks if task.by_default and task.may_have(num_outputs)]
        return fitting[:1], ""
    task = next((task for task in tasks if task.problem_type == kind), None)
    if task is None:
        raise ValueError(
            f"{head.file}: problem_type={kind!r:.100} is unknown: expected one of "
            f"{', '.join(sorted(task.problem_type for task in tasks if task.problem_type))}"
        )
    if task.may_have(num_outputs):
        return [task], ""
    return [], (
        f"{head.file.name} has problem_type={kind!r}, and its head has {num_outputs} outputs, "
        f"while {task.name} has {task.num_outputs}: pass pipeline='embedding' for the encoder "
        "alone, or another pipeline, such as 'classification' with labels=[...] or 'regression', "
        "which gets a new head to train"
    )
