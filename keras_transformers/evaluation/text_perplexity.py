"""How well a language model knows a text, in units that do not depend on its tokens."""

import dataclasses
import math
from typing import Any

import keras


@dataclasses.dataclass(frozen=True)
class TextPerplexity:
    """The cost of a text, a token, a word or a byte.

    Perplexities of tokens compare only where the tokens are the same; those of words, and bits per
    byte, where the text is.

    Attributes:
        nats: the negative log-probability of all tokens together.
        num_tokens: how many were predicted, ends of documents counted.
        num_words: of the text, see `data.causal.TokenStream`.
        num_bytes: of the text, in UTF-8.

    Raises:
        ValueError: a number is not above 0.

    Example:
        >>> figures = TextPerplexity(nats=8 * math.log(2), num_tokens=4, num_words=2, num_bytes=8)
        >>> round(figures.per_token, 6), round(figures.per_word, 6), figures.bits_per_byte
        (4.0, 16.0, 1.0)
    """

    nats: float
    num_tokens: int
    num_words: int
    num_bytes: int

    def __post_init__(self) -> None:
        counts = (self.num_tokens, self.num_words, self.num_bytes)
        if min(counts) < 1:
            raise ValueError(f"tokens, words and bytes are {counts}: nothing to measure a text by")

    @property
    def per_token(self) -> float:
        """The exponential of the mean cost of a token."""
        return math.exp(self.nats / self.num_tokens)

    @property
    def per_word(self) -> float:
        """The exponential of the mean cost of a word; infinite where no float holds it."""
        mean = self.nats / self.num_words
        return math.exp(mean) if mean < 700 else math.inf

    @property
    def bits_per_byte(self) -> float:
        """The mean cost of a byte, in bits."""
        return self.nats / self.num_bytes / math.log(2)

    def figures(self, name: str) -> dict[str, float]:
        """The three, named for a recipe's report."""
        return {
            f"{name}, perplexity per token": self.per_token,
            f"{name}, perplexity per word": self.per_word,
            f"{name}, bits per byte": self.bits_per_byte,
        }


class LogProbabilityOfTokens(keras.callbacks.Callback):
    """Adds `val_log_probability` to the logs: the mean of a token, in nats; the higher the better.

    For callbacks behind it that keep what is highest, `checkpoints.SaveWeights` for one.

    Args:
        perplexity: name of the perplexity in the logs.
    """

    def __init__(self, perplexity: str = "val_perplexity") -> None:
        super().__init__()
        self.perplexity = perplexity

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the figure.

        Raises:
            ValueError: the logs lack the perplexity.
        """
        if logs is None or self.perplexity not in logs:
            raise ValueError(
                f"no {self.perplexity!r} in the logs of this epoch (they have "
                f"{', '.join(sorted(logs or {}))}): compile the model with metrics.Perplexity"
            )
        logs["val_log_probability"] = -math.log(float(logs[self.perplexity]))
