"""BLEU while a model trains, with sample translations and pictures of attention in TensorBoard."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.evaluation.bleu import corpus_bleu
from keras_transformers.inspection import attention_pictures
from keras_transformers.runs.run import Run

__all__ = ["ValidationBleu"]


class ValidationBleu:
    """Translates a validation set: the `score` of `Run.fit_arguments` for translation.

    Each call measures the model with the weights of the moment, and writes samples for TensorBoard
    to `tensorboard/samples` in the run's folder.

    Args:
        run: the training.
        pairs: (source, reference) texts.
        translator: a `pipelines.Translator` of the model.
        num_samples: the first so many pairs are samples.
    """

    def __init__(
        self, run: Run, pairs: Sequence[tuple[str, str]], translator: Any, *, num_samples: int = 5
    ) -> None:
        self._run = run
        self._sources, self._references = zip(*pairs, strict=True)
        self._translator = translator
        self._num_samples = num_samples
        self._writer = tf.summary.create_file_writer(str(run.folder / "tensorboard" / "samples"))

    def __call__(self) -> dict[str, float]:
        """`bleu`, cased, 0 to 100."""
        translations = self._translator.translate_all(self._sources)
        self._write_samples(translations)
        return {"bleu": corpus_bleu(translations, self._references).score}

    def _write_samples(self, translations: Sequence[str]) -> None:
        sources, references, translations = (
            column[: self._num_samples]
            for column in (self._sources, self._references, translations)
        )
        rows = [
            [cell.replace("|", "/") for cell in row]
            for row in zip(sources, references, translations, strict=True)
        ]
        table = ["| source | reference | translation |", "|---|---|---|"]
        table += [f"| {' | '.join(row)} |" for row in rows]
        # Keras' TensorBoard callback lets nothing be recorded between its own steps.
        with self._writer.as_default(self._run.position.epoch), tf.summary.record_if(True):
            tf.summary.text("translations", "\n".join(table))
            if self._translator.has_attention:
                pictures = attention_pictures(**self._translator.attend(sources, translations))
                tf.summary.image("attention", pictures, max_outputs=len(rows))
        self._writer.flush()
