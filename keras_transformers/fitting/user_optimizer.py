"""Checks and makes the optimizer that a user passes to `fit`."""

import difflib
import json
from collections.abc import Callable
from typing import Any

import keras


class UserOptimizer:
    """An optimizer of a user's own, for one training.

    Args:
        source: a name that `compile` takes, for Keras' optimizer with its defaults; an optimizer
            that has not trained yet; or a function without arguments that returns one.
        strategy: the training's strategy.

    Attributes:
        config: what describes the optimizer, without its state: only the same one resumes a run.
        averages: whether it keeps an average of the weights (`use_ema`).

    Raises:
        TypeError: it is nothing of the kind, or cannot be described.
        ValueError: the name is unknown, the optimizer has trained before, accumulates gradients, or
            is not created in the strategy's scope.
    """

    def __init__(
        self,
        source: keras.optimizers.Optimizer | str | Callable[[], keras.optimizers.Optimizer],
        *,
        strategy: str,
    ) -> None:
        self._source = source
        if isinstance(source, keras.optimizers.Optimizer):
            name = type(source).__name__
            if source.built:
                raise ValueError(
                    f"optimizer: this {name} has trained already: pass a new one, or a function "
                    "that makes it"
                )
            if strategy != "default":
                raise ValueError(
                    f"optimizer: this {name} was not created under strategy={strategy!r}: pass a "
                    f"function that makes it, such as optimizer=lambda: {name}(...)"
                )
        optimizer = self.make()
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # of one that scales the loss
        if parts := inner.gradient_accumulation_steps:
            raise ValueError(
                f"optimizer: gradient_accumulation_steps={parts}: leave it out and pass "
                f"accumulate={parts}, which weighs all examples of an update the same"
            )
        self.averages = bool(inner.use_ema)
        self.config = _config(optimizer)

    def make(self) -> keras.optimizers.Optimizer:
        """Returns the optimizer; call it in the strategy's scope."""
        source = self._source
        if isinstance(source, keras.optimizers.Optimizer):
            return source
        if isinstance(source, str):
            return _by_name(source)
        optimizer = source() if callable(source) else source
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise TypeError(
                f"optimizer={source!r:.80}: pass a keras.optimizers.Optimizer, its name, or a "
                f"function without arguments that returns one, not a {type(optimizer).__name__}"
            )
        return optimizer


def _by_name(name: str) -> keras.optimizers.Optimizer:
    names = [
        class_name.lower()
        for class_name, kind in vars(keras.optimizers).items()
        if isinstance(kind, type)
        and issubclass(kind, keras.optimizers.Optimizer)
        and kind is not keras.optimizers.Optimizer
    ]
    try:
        return keras.optimizers.get(name)
    except (TypeError, ValueError) as error:
        near = difflib.get_close_matches(name.lower(), names, 1) or sorted(set(names))
        raise ValueError(
            f"optimizer={name!r}: Keras has none of this name; use {', '.join(near)}, or pass an "
            "optimizer"
        ) from error


def _config(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    try:
        config = optimizer.get_config()
    except NotImplementedError as error:
        raise TypeError(
            f"optimizer: {type(optimizer).__name__} or its schedule has no get_config, by which a "
            "run knows that it resumes with the same one: add it to your class"
        ) from error
    values = json.loads(json.dumps(config, default=str))
    return {"class": type(optimizer).__name__, **_without_names(values)}


def _without_names(config: Any) -> Any:
    """Returns a configuration without the names that Keras counts up in a process: "adam_1"."""
    if not isinstance(config, dict):
        return config
    return {key: _without_names(value) for key, value in config.items() if key != "name"}
