"""Defines the model class of encoders with a head."""

import functools
from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.scopes import SELECTIONS, WATCHERS
from keras_transformers.models.selection import HeadSelection


@keras.saving.register_keras_serializable(PACKAGE)
class HeadedEncoder(keras.Model):
    """A functional encoder with a head, whose last block computes what the head reads.

    Its results and gradients are those of the same `keras.Model`, but for rounding; see
    `models.selection`.
    """

    @functools.cached_property
    def selection(self) -> HeadSelection:
        """What the head reads of the last block."""
        return HeadSelection(self)

    def call(
        self,
        inputs: Mapping[str, Tensor],
        training: bool | None = None,  # by this name Keras passes it on to the dropout
        mask: Any = None,
        **kwargs: Any,
    ) -> dict[str, Tensor]:
        """Computes the outputs by name from the inputs by name; see `keras.Model`."""
        options = {"training": training, "mask": mask, **kwargs}
        block = self.selection.block
        if block is None or WATCHERS.of(block.self_attention):  # which see all positions
            return super().call(inputs, **options)
        with SELECTIONS.use(self.selection.of(inputs)):
            return super().call(inputs, **options)
