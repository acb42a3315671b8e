"""Rotary positions (Su et al. 2021, arXiv:2104.09864): rotates queries and keys by position."""

import dataclasses
import math
from typing import Any, Literal, get_args

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.tensors import Tensor

__all__ = ["RotaryPositions", "RotaryScaling"]

ScalingKind = Literal["linear", "dynamic", "llama3", "yarn"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotaryScaling:
    """Slows down rotary positions, for texts longer than those in training.

    The kinds are those of Hugging Face's `rope_type`:

    - "linear": all positions are divided by the factor (Chen et al. 2023, arXiv:2306.15595).
    - "dynamic": from the original length on, the base grows with each text's own length. Keys in a
      cache keep the rates of the step that computed them, as in transformers.
    - "llama3": slow pairs rotate slower by the factor, fast ones as before, with a transition
      between them (Llama 3.1; Dubey et al. 2024, arXiv:2407.21783).
    - "yarn": the same with a ramp over the pairs, and larger vectors (Peng et al. 2023,
      arXiv:2309.00071).

    Args:
        kind: see above.
        factor: how much longer texts may be.
        original_length: the length in training, for all kinds except "linear" (Hugging Face:
            original_max_position_embeddings; for "dynamic" max_position_embeddings).
        low_frequency_factor: for "llama3": pairs that rotate fewer times in the original length are
            slow.
        high_frequency_factor: for "llama3": pairs that rotate more times are fast.
        beta_fast: for "yarn": pairs that rotate more times in the original length are fast.
        beta_slow: for "yarn": pairs that rotate fewer times are slow.
        truncate: for "yarn": whether the ramp starts and ends at whole pairs.
        attention_factor: for "yarn": multiplies queries and keys; 0.1 ln(factor) + 1 by default.

    Raises:
        ValueError: an unknown kind, or a number out of range.
    """

    kind: ScalingKind
    factor: float
    original_length: int | None = None
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(ScalingKind):
            kinds = ", ".join(map(repr, get_args(ScalingKind)))
            raise ValueError(f"kind={self.kind!r} is unknown: use one of {kinds}")
        if not self.factor >= 1:
            raise ValueError(f"factor={self.factor}: expected a number, at least 1")
        if self.kind != "linear" and not (self.original_length or 0) >= 1:
            raise ValueError(
                f"original_length={self.original_length}: {self.kind!r} needs the length in "
                "training, in tokens"
            )
        if not 0 < self.low_frequency_factor < self.high_frequency_factor:
            raise ValueError(
                f"low_frequency_factor={self.low_frequency_factor}, high_frequency_factor="
                f"{self.high_frequency_factor}: expected two numbers above 0, the smaller one first"
            )
        if not 0 < self.beta_slow < self.beta_fast:
            raise ValueError(
                f"beta_slow={self.beta_slow}, beta_fast={self.beta_fast}: expected two numbers "
                "above 0, the smaller one first"
            )

    @property
    def size(self) -> float:
        """The factor by which queries and keys are multiplied."""
        if self.kind != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0

    def scaled(self, rates: np.ndarray, base: float) -> np.ndarray:
        """Returns the rates of all pairs at the original length, (head_dim / 2,)."""
        if self.kind == "linear":
            return rates / self.factor
        if self.kind == "dynamic":
            return rates
        slow = rates / self.factor
        share = self._llama3(rates) if self.kind == "llama3" else self._yarn(len(rates), base)
        return (1 - share) * slow + share * rates

    def _llama3(self, rates: np.ndarray) -> np.ndarray:
        """Returns how far each pair keeps its rate, 0 to 1."""
        assert self.original_length is not None
        low, high = self.low_frequency_factor, self.high_frequency_factor
        turns = self.original_length * rates / (2 * math.pi)
        return np.clip((turns - low) / (high - low), 0, 1)

    def _yarn(self, num_pairs: int, base: float) -> np.ndarray:
        """Returns how far each pair keeps its rate, 0 to 1."""
        length = self.original_length
        assert length is not None

        def pair(turns: float) -> float:
            """Returns the pair that rotates this many times in the original length."""
            longest = length / (turns * 2 * math.pi)
            return num_pairs * math.log(longest) / math.log(base)

        first, last = pair(self.beta_fast), pair(self.beta_slow)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * num_pairs - 1)
        ramp = (np.arange(num_pairs) - first) / (last - first if last != first else 1e-3)
        return 1 - np.clip(ramp, 0, 1)


@keras.saving.register_keras_serializable(PACKAGE)
class RotaryPositions(keras.layers.Layer):
    """Rotates queries and keys by their positions, so that scores depend only on distances.

    Number i of the first half of a head's width and number i of the second half are a point in a
    plane, which position p rotates by p * base^(-2i / head_dim), as in Hugging Face's Llama,
    Mistral, Qwen and ModernBERT. The layer has no weights.

    Args:
        base: how slowly the slowest pair rotates (Hugging Face: rope_theta).
        scaling: changes the rates for longer texts; None for no change.
        max_sequence_length: the longest text in training (Hugging Face: max_position_embeddings).
            Nothing depends on it: longer texts only get worse answers.

    Raises:
        ValueError: `base` is not above 1.

    Example:
        >>> turned = RotaryPositions()(keras.ops.ones((1, 1, 2, 2)), keras.ops.array([[0, 1]]))
        >>> np.round(turned[0, 0], 2)
        array([[ 1.  ,  1.  ],
               [-0.3 ,  1.38]], dtype=float32)
    """

    def __init__(
        self,
        base: float = 10_000.0,
        *,
        scaling: RotaryScaling | None = None,
        max_sequence_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not base > 1:
            raise ValueError(f"base={base}: expected a number above 1, such as 10000")
        self.base = base
        self.scaling = scaling
        self.max_sequence_length = max_sequence_length

    def call(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Rotates the vectors of each head.

        Args:
            heads: (batch, heads, length, head_dim), with an even width.
            positions: integers (batch or 1, length).
        """
        width = heads.shape[-1]
        positions = ops.cast(positions, "float32")
        angles = positions[:, None, :, None] * self._rates(width, positions)
        size = 1.0 if self.scaling is None else self.scaling.size
        cos, sin = (ops.cast(f(angles) * size, heads.dtype) for f in (ops.cos, ops.sin))
        first, second = heads[..., : width // 2], heads[..., width // 2 :]
        return ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def _rates(self, width: int, positions: Tensor) -> Tensor:
        """Returns each pair's rotation per position, (width / 2,), or that for each row."""
        powers = np.arange(0, width, 2, dtype="float32") / width
        rates = self.base**-powers
        if self.scaling is None:
            return ops.convert_to_tensor(rates)
        scaling, length = self.scaling, self.scaling.original_length
        if scaling.kind != "dynamic" or length is None:
            return ops.convert_to_tensor(scaling.scaled(rates, self.base).astype("float32"))
        last = ops.max(positions, axis=-1, initial=0)[:, None, None, None]
        longer = ops.maximum((last + 1) / length, 1.0)
        growth = (scaling.factor * longer - (scaling.factor - 1)) ** (width / (width - 2))
        return ops.convert_to_tensor(rates) * growth**-powers

    def compute_output_spec(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor(heads.shape, dtype=heads.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        scaling = None if self.scaling is None else dataclasses.asdict(self.scaling)
        return super().get_config() | {
            "base": self.base,
            "scaling": scaling,
            "max_sequence_length": self.max_sequence_length,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RotaryPositions":
        """Makes a layer from the result of `get_config`."""
        scaling = config.get("scaling")
        return cls(**{**config, "scaling": scaling and RotaryScaling(**scaling)})
