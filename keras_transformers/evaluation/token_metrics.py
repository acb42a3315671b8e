"""What a language or translation model is judged by: perplexity, token accuracy, BLEU."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_transformers.training.losses import token_crossentropy

_PACKAGE = "keras_transformers"


class _TokenMean(keras.metrics.Metric):
    """Weighted mean over tokens: sum(weight * value) / sum(weight) since the last reset.

    `keras.metrics.Mean` would average each sequence over its padded length first, so that a token
    of a short batch counted for more than one of a long batch.
    """

    def __init__(self, name: str, dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_variable(shape=(), initializer="zeros", name="total")
        self.count = self.add_variable(shape=(), initializer="zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds tokens.

        Args:
            y_true: token ids (batch, length).
            y_pred: logits (batch, length, vocabulary).
            sample_weight: (batch, length), 0 at padding; None counts every position once.
        """
        targets, logits = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        values = ops.cast(self._values(targets, logits), self.dtype)
        if sample_weight is None:
            sample_weight = ops.ones_like(values)
        weights = ops.cast(sample_weight, self.dtype)
        if len(weights.shape) != len(values.shape):
            raise ValueError(
                f"sample_weight of shape {tuple(weights.shape)} for targets of shape "
                f"{tuple(values.shape)}: expected a weight for each token"
            )
        self.total.assign_add(ops.sum(weights * values))
        self.count.assign_add(ops.sum(weights))

    def result(self) -> Any:
        """The mean, a scalar; NaN before the first token."""
        return self.total / self.count

    def _values(self, targets: Any, logits: Any) -> Any:
        """What is averaged: (batch, length)."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(_PACKAGE)
class Perplexity(_TokenMean):
    """exp of the mean cross-entropy of a token, without label smoothing.

    The mean is over all tokens since the last reset, each with its `sample_weight`: how they are
    cut into batches changes nothing. Compile it as one of the `weighted_metrics`; among the
    `metrics` Keras leaves the weights out, and padding counts as if it were text.

    Args:
        name: of the metric.
        dtype: of its sums; float32 by default.

    Example:
        >>> perplexity = Perplexity()
        >>> perplexity.update_state([[1, 0]], keras.ops.zeros((1, 2, 8)), [[1.0, 0.0]])
        >>> round(float(perplexity.result()), 4)
        8.0
    """

    def __init__(self, name: str = "perplexity", dtype: Any = None) -> None:
        super().__init__(name, dtype)

    def _values(self, targets: Any, logits: Any) -> Any:
        return token_crossentropy(targets, logits)

    def result(self) -> Any:
        """The perplexity, a scalar: 1 at best, NaN before the first token."""
        return ops.exp(super().result())


@keras.saving.register_keras_serializable(_PACKAGE)
class TokenAccuracy(_TokenMean):
    """The share of tokens whose logit is the largest, each token with its `sample_weight`.

    Compile it as one of the `weighted_metrics`, as `Perplexity`. Of equal logits the first counts
    as the largest.

    Args:
        name: of the metric.
        dtype: of its sums; float32 by default.
    """

    def __init__(self, name: str = "token_accuracy", dtype: Any = None) -> None:
        super().__init__(name, dtype)

    def _values(self, targets: Any, logits: Any) -> Any:
        # On the CPU a fifth of the time of `ops.argmax`, which looks after negative zeros.
        _, largest = ops.top_k(logits, k=1)  # (batch, length, 1)
        return ops.equal(ops.cast(targets, "int32"), ops.cast(largest[..., 0], "int32"))


@dataclasses.dataclass(frozen=True)
class BleuResult:
    """A corpus BLEU score and what it takes to compare it.

    Attributes:
        score: BLEU, 0 to 100.
        signature: sacrebleu's, naming tokenizer, case, smoothing and version.
        precisions: of the n-grams, n = 1 to 4, 0 to 100.
        brevity_penalty: 1 when the hypotheses are as long as the references or longer.
        hypothesis_length: in tokens of the metric.
        reference_length: in tokens of the metric.
    """

    score: float
    signature: str
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int

    def __str__(self) -> str:
        precisions = "/".join(f"{precision:.1f}" for precision in self.precisions)
        return (
            f"BLEU {self.score:.2f} {precisions} (BP {self.brevity_penalty:.3f}, "
            f"{self.hypothesis_length} tokens for {self.reference_length}) {self.signature}"
        )


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> BleuResult:
    """Corpus BLEU of detokenized translations, computed by sacrebleu with its tokenizer 13a.

    Args:
        hypotheses: a translation for each sentence; it may be empty.
        references: the one reference of each sentence.
        lowercase: whether case is ignored.

    Raises:
        ImportError: sacrebleu is not installed.
        ValueError: no sentences, or another number of hypotheses than of references.

    Example:
        >>> bleu(["a dog runs on grass"], ["a dog runs on grass"]).score.__round__(4)
        100.0
    """
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses for {len(references)} references: BLEU needs one "
            "reference a hypothesis, in the same order"
        )
    if not hypotheses:
        raise ValueError("BLEU of no sentences is not defined: is the test file empty?")
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise ImportError(
            "BLEU needs sacrebleu: pip install keras-transformers[translation]"
        ) from error
    metric = BLEU(lowercase=lowercase, tokenize="13a")
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return BleuResult(
        score=result.score,
        signature=str(metric.get_signature()),
        precisions=tuple(result.precisions),
        brevity_penalty=result.bp,
        hypothesis_length=result.sys_len,
        reference_length=result.ref_len,
    )
