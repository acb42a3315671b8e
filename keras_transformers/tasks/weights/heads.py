"""Finds the tasks that a head in other libraries' weights was trained for."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from keras_transformers.convert.formats.weights import FoundWeights, Head
from keras_transformers.tasks.task import Task, all_tasks


def with_trained(weights: FoundWeights) -> FoundWeights:
    """Adds the tasks that a head serves to the weights found, where their files name only it."""
    if weights.head is not None and not weights.trained:
        trained, undecided = _served(weights.head, weights.base)
        if weights.serves is not None:
            trained = tuple(task for task in trained if task in weights.serves)
        weights = dataclasses.replace(weights, trained=trained, undecided=undecided)
    if weights.with_head is not None:  # a head for these tasks alone
        return weights
    also = [task.name for task in all_tasks().values() if task.head_of in weights.trained]
    return dataclasses.replace(weights, trained=tuple(dict.fromkeys([*weights.trained, *also])))


def for_task(weights: FoundWeights, wanted: str | None) -> FoundWeights:
    """Returns the weights found with the tasks that their head serves; see `with_trained`.

    Those of a model that writes texts become an encoder's for a task that its family serves so.

    Args:
        weights: what `find_weights` returns.
        wanted: the task; None for the one that the weights were trained for.
    """
    weights = with_trained(weights)
    if weights.as_encoder is None:
        return weights
    encoder = with_trained(weights.as_encoder())
    if wanted is not None:
        return encoder if wanted in (encoder.serves or ()) else weights
    has_head = encoder.trained or encoder.undecided
    return encoder if has_head and not weights.trained else weights


def _served(head: Head, base: str) -> tuple[tuple[str, ...], str]:
    """Returns the tasks that a head serves, the main one first, or the reason why none does."""
    name = head.name.lower()  # Keras 2 changed the case of model names

    def ends_like(ends: Iterable[str]) -> bool:
        return name.endswith(tuple(end.lower() for end in ends))

    for end, names in head.tasks.items():
        if ends_like([end]):
            return tuple(sorted(names, key=lambda task: task != head.written[0])), ""
    tasks = all_tasks()
    with_heads = [task for task in tasks.values() if not task.headless]
    takes_heads = any(task.new_head_on == base for task in with_heads)
    if takes_heads:
        main = [task for task in with_heads if ends_like(task.classes) and not task.head_of]
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


def _has(head: Head, task: Task[Any]) -> bool:
    sizes = [head.shapes[bias] for bias in task.biases if bias in head.shapes]
    return any(task.may_have(size) for (size, *_) in sizes)


def _by_loss(head: Head, tasks: Sequence[Task[Any]]) -> tuple[list[Task[Any]], str]:
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
