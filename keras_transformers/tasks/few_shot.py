"""Few-shot training: pairs of the few texts train the encoder, then a head is solved for.

Tunstall et al. 2022, "SetFit", arXiv:2209.11055.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np

from keras_transformers.data.text import Examples, LabelPairBatches, LabelSets
from keras_transformers.data.text.few_shot import check_few, label_matrix
from keras_transformers.ranges import PositiveFloat, PositiveInt, as_option
from keras_transformers.runs import Confidence, Training
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.classification.head import last_dense, paired_vectors
from keras_transformers.tasks.training import Trainer
from keras_transformers.tokenizers.tensors import texts_of
from keras_transformers.training import PairSimilarity, logistic_regression

__all__ = ["FewShotOptions", "fit_head"]

_AT_ONCE = 32  # texts in memory at a time
# Options that it does not read. A batch has fewer texts than pairs, so it cannot be divided.
_UNUSED = ("accumulate", "r_drop", "static_shapes", "strategy", "worker_index", "workers")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FewShotOptions(Confidence, Training):
    """How classifiers are trained on a few texts per label, with SetFit's defaults."""

    epochs: PositiveInt = 1
    batch_size: PositiveInt = 16  # pairs
    # pairs per epoch, half with a label in common; None: all, the rarer kind as often as the other
    pairs: PositiveInt | None = None
    head_strength: PositiveFloat = 1.0  # how little the head's penalty counts: scikit-learn's C

    rate: ClassVar[float] = 2e-5
    medium_rate: ClassVar[float] = 2e-5
    small_rate: ClassVar[float] = 2e-5
    # In its first updates, Adam's second moment is so small that 1e-6 would hold them back; few
    # texts make ten updates.
    epsilon: ClassVar[float] = 1e-8

    def batching(self) -> dict[str, Any]:
        """Returns the options for the batches of pairs."""
        return self.pick("batch_size", "pairs", "seed")

    def check(self) -> None:
        """Checks the options before reading any data."""
        super().check()
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in _UNUSED:
            if (value := getattr(self, name)) != defaults[name]:
                raise ValueError(
                    f"{as_option(name, value)}: few-shot training does not read it: leave it out"
                )


def fit_head(pipeline: Any, examples: Examples, *, strength: float = 1.0) -> None:
    """Solves for the last layer of a classifier of texts, on its encoder's vectors as they are.

    The layer is that of a logistic regression. The vectors are divided by their mean length, so the
    penalty counts the same for all encoders.

    Args:
        pipeline: a `pipelines.TextClassifier` or `MultiLabelClassifier`, changed in place.
        examples: `data.text.Examples` with labels, or `LabelSets`.
        strength: see `training.logistic_regression`.

    Raises:
        ValueError: a label has fewer than two texts, or all of them, or is unknown; or the model's
            last layer is not a plain dense layer.

    Example:
        fit_head(classify, examples)
    """
    has = label_matrix(examples, pipeline.labels)
    check_few(has, pipeline.labels, examples.source)
    dense, below = last_dense(pipeline.model)
    reader = keras.Model(pipeline.model.input, below)
    segments = pipeline.tokenize(*map(texts_of, text_columns.inputs(examples).values()))
    parts = []
    for start in range(0, len(examples), _AT_ONCE):
        packed = pipeline.pack([part[start : start + _AT_ONCE] for part in segments])
        parts.append(np.asarray(reader(packed, training=False), np.float64))
    vectors = np.concatenate(parts)  # (texts, width)
    scale = np.linalg.norm(vectors, axis=1).mean()
    kernel, bias = logistic_regression(
        vectors / scale,
        has,
        exclusive=not isinstance(examples, LabelSets),
        strength=strength,
    )
    dense.kernel.assign(kernel / scale)
    dense.bias.assign(bias)


class FewShotTrainer(Trainer[Any, Any]):
    """Makes a trainer of classifiers one for a few texts; a base class before that trainer."""

    options: ClassVar[Any] = FewShotOptions
    batches: Any = LabelPairBatches
    takes_weights = False
    may_compile = False
    unused = frozenset(_UNUSED)

    def check(self, pipeline: Any) -> None:
        if pipeline.reads_windows:
            raise ValueError(
                "few_shot=True with long_texts='windows': pairs are compared text by text: set "
                "pipeline.long_texts = 'cut'"
            )
        dense, vectors = last_dense(pipeline.model)
        below = keras.Model(pipeline.model.input, vectors)
        if not below.trainable_weights:
            raise ValueError(
                f"few_shot=True: model {pipeline.model.name!r} has nothing to train below its last "
                f"layer, {dense.name!r}: set model.trainable = True, or call fitting.fit_head for "
                "the head alone"
            )

    def trained_model(self, pipeline: Any, examples: Any) -> keras.Model:
        return paired_vectors(pipeline.model)

    def losses(self, pipeline: Any, examples: Any, options: Any) -> Mapping[str, Any]:
        return {"loss": {"vectors": PairSimilarity()}}

    def metrics(self, pipeline: Any) -> Any:
        return None

    def held_out(self, pipeline: Any, batches: Any, examples: Any) -> Any:
        return super().batches(examples, pipeline, batch_size=batches.batch_size, shuffle=False)

    def with_targets(self, pipeline: Any, batches: Any, examples: Any) -> None:
        return None

    def finish(self, pipeline: Any, examples: Any, options: FewShotOptions) -> None:
        fit_head(pipeline, examples, strength=options.head_strength)
