"""Translating the validation set while training goes on."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.evaluation.bleu import corpus_bleu

Translate = Callable[[Sequence[str]], list[str]]
Draw = Callable[[Sequence[str], Sequence[str]], np.ndarray]


class BleuValidation(keras.callbacks.Callback):
    """Adds `val_bleu` to the logs of each epoch, for the callbacks behind it to go by.

    Put it before `ModelCheckpoint`, `EarlyStopping` and `TensorBoard`.

    Args:
        translate: texts to translations, with the model's weights of the moment.
        sources: the validation set's.
        references: its translations, detokenized.
        log_dir: where TensorBoard finds sample translations; None writes none.
        num_samples: how many of them.
        draw: pictures for the samples: sources and their translations to (samples, height, width,
            channels) in 0 to 255; where a model has attention, its weights.
        every: only each so many epochs; the others repeat the last figure.
    """

    def __init__(
        self,
        translate: Translate,
        sources: Sequence[str],
        references: Sequence[str],
        *,
        log_dir: Path | None = None,
        num_samples: int = 5,
        draw: Draw | None = None,
        every: int = 1,
    ) -> None:
        super().__init__()
        self.translate = translate
        self.sources = list(sources)
        self.references = list(references)
        self.num_samples = num_samples
        self.draw = draw
        self.every = every
        self._writer = tf.summary.create_file_writer(str(log_dir)) if log_dir else None
        self._last = 0.0

    def state(self) -> list[np.ndarray]:
        """The last figure, for `resume.Resume`."""
        return [np.array(self._last)]

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Puts back what `state` gave."""
        self._last = float(arrays[0])

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Translates, scores, logs."""
        if (epoch + 1) % self.every == 0:
            hypotheses = self.translate(self.sources)
            self._last = corpus_bleu(hypotheses, self.references).score
            self._write_samples(epoch, hypotheses)
        if logs is not None:
            logs["val_bleu"] = self._last

    def _write_samples(self, epoch: int, hypotheses: Sequence[str]) -> None:
        if self._writer is None:
            return
        count = self.num_samples
        sources, references, hypotheses = (
            column[:count] for column in (self.sources, self.references, hypotheses)
        )
        samples = zip(sources, references, hypotheses, strict=True)
        table = "\n".join(
            ["| source | reference | translation |", "|---|---|---|"]
            + [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in samples]
        )
        # Keras' TensorBoard callback lets nothing be recorded between its own steps.
        with self._writer.as_default(epoch), tf.summary.record_if(True):
            tf.summary.text("translations", table)
            if self.draw is not None:
                pictures = self.draw(sources, hypotheses)
                tf.summary.image("attention", pictures, max_outputs=count)
        self._writer.flush()


def bleu_figures(
    translators: Mapping[str, Translate], splits: Mapping[str, Sequence[tuple[str, str]]]
) -> dict[str, Any]:
    """BLEU of each way to translate on each split, cased and lower-cased.

    Args:
        translators: name, such as "greedy" -> texts to translations.
        splits: name -> (source, reference) pairs, detokenized.

    Returns:
        "<split> BLEU, <translator>" and the same with ", lower-cased" -> 0 to 100; "signature" and
        "signature, lower-cased" -> sacreBLEU's.
    """
    figures: dict[str, Any] = {}
    for split, pairs in splits.items():
        sources, references = zip(*pairs, strict=True)
        for name, translate in translators.items():
            translations = translate(sources)
            for case, lowercase in (("", False), (", lower-cased", True)):
                result = corpus_bleu(translations, references, lowercase=lowercase)
                figures[f"{split} BLEU, {name}{case}"] = result.score
                figures[f"signature{case}"] = result.signature
    return figures
