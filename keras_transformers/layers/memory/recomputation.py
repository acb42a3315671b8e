"""Recomputes a layer's activations in the backward pass instead of keeping them."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import keras
from keras import ops

from keras_transformers.dependencies.private_api import seed_generators
from keras_transformers.layers.composite import CompositeLayer
from keras_transformers.layers.tensors import Tensor


class RecomputableLayer(CompositeLayer):
    """A layer that can recompute its activations; see `training.recompute_layers`.

    Attributes:
        recomputes: whether training keeps only the layer's inputs. It belongs to a training run, so
            it is not part of the layer's configuration.
    """

    recomputes = False

    def recomputed(self, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """Returns `function(*inputs)`, and calls it again in the backward pass.

        Both calls draw the same dropout, and the layer's generators advance as after one call.

        Args:
            function: maps the inputs to one tensor; it may use the layer's weights, and calls each
                dropout at most once. No gradient reaches other tensors that it captures.
            inputs: tensors with gradients, or None.
        """
        generators = seed_generators(self)
        seeds = [generator.next() for generator in generators]

        def call(*tensors: Tensor) -> Tensor:
            # TensorFlow computes and keeps everything that depends only on the seeds: the dropout
            # of all layers. Therefore a 0 that depends on an input is added to them (1 if that is
            # NaN).
            is_nan = ops.any(ops.isnan(ops.reshape(tensors[0], (-1,))[:1]))
            drawn = [seed + ops.cast(is_nan, seed.dtype) for seed in seeds]
            remaining = iter(tensors)
            with _fixed_seeds(generators, drawn):
                return function(*(None if x is None else next(remaining) for x in inputs))

        return keras.remat(call)(*(x for x in inputs if x is not None))


@contextlib.contextmanager
def _fixed_seeds(
    generators: Sequence[keras.random.SeedGenerator], seeds: Sequence[Tensor]
) -> Iterator[None]:
    """Makes each generator return its seed, in any state."""
    for generator, seed in zip(generators, seeds, strict=True):
        generator.next = lambda ordered=True, seed=seed: seed
    try:
        yield
    finally:
        for generator in generators:
            del generator.next
