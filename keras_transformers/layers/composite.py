"""Defines the base class of layers that consist of other layers; it keeps frozen layers frozen."""

from typing import Any, Self

import keras

from keras_transformers.dependencies.private_api import AfterBuild, inner_layers

__all__ = ["CompositeLayer"]


class CompositeLayer(AfterBuild):
    """A layer made of other layers, which stay frozen when Keras rebuilds it.

    Loading and cloning make a layer from its configuration, with `trainable` for the layer as a
    whole. Keras does not pass that on to the inner layers, so all of them would train again, and
    does not record which of them were frozen individually. This class does both. It does not record
    single weights (`layer.kernel.trainable = False`): freeze the layer that has them.
    """

    _frozen: tuple[str, ...] = ()

    def after_build(self) -> None:
        """Freezes the inner layers that are to be frozen."""
        if not self.trainable:  # setting it again would have no effect on TensorFlow
            for frozen in (*inner_layers(self), *self.weights):
                frozen.trainable = False
        by_path = self._by_path() if self._frozen else {}
        unknown = [path for path in self._frozen if path not in by_path]
        if unknown:
            raise ValueError(
                f"layer {self.name!r}: its configuration freezes {', '.join(unknown)}, which it "
                "does not have: save the model again"
            )
        for path in self._frozen:
            by_path[path].trainable = False

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, and which inner layers are frozen, if some are."""
        config = super().get_config()
        if not self.built:
            frozen = list(self._frozen)
        else:
            frozen = [path for path, inner in self._by_path().items() if not inner.trainable]
        if frozen and self.trainable:
            config["frozen"] = frozen
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes a layer from the result of `get_config`."""
        config = dict(config)
        frozen = config.pop("frozen", ())
        layer = super().from_config(config)
        layer._frozen = tuple(frozen)
        return layer

    def __getattr__(self, name: str) -> Any:
        """Returns the direct inner layers as `layers`, which `summary(expand_nested=True)` shows.

        A property would not work: Keras saves everything that `dir` lists, so each layer twice.
        """
        if name == "layers":
            return inner_layers(self, recursive=False)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _by_path(self) -> dict[str, Any]:
        """Returns the inner layers with weights by their path below this layer."""
        return {
            layer.path.removeprefix(f"{self.path}/"): layer
            for layer in inner_layers(self)
            if layer.path and layer.weights
        }


def part_config(part: keras.layers.Layer | None) -> dict[str, Any] | None:
    """Returns the configuration of an inner layer, to load it with its outer layer.

    It omits the shapes with which Keras would build it: it is built, and its weights get their
    names, inside the outer layer.
    """
    if part is None:
        return None
    config = keras.saving.serialize_keras_object(part)
    config.pop("build_config", None)
    return config
