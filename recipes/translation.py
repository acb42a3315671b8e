"""Translation: trains a Transformer on pairs of sentences, text in, translation out.

Paper:   Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
Data:    Multi30k task 1 (train.de.gz, train.en.gz, val.*, test_2016_flickr.*), or files named alike
Command: python recipes/translation.py --data multi30k
Cost:    66 minutes on one thread of a machine that had other work (with --bleu-every 3), 3,600
         steps, 3,361 target tokens a second, validation included
Score:   test_2016_flickr, sacreBLEU 13a, cased / lower-cased (bf3a256); val chose the last weights
                                  greedy          beam 4          val, beam 4
         last epoch               39.85 / 40.11   41.64 / 41.91   42.20
         average of the last 5    40.19 / 40.41   40.58 / 40.83   41.24
         --vocabulary-size 4000 --decay cosine --warmup-steps 1000 --epochs 36 (41fe354), cased:
         last 38.64 greedy, 39.82 beam 4; average of 5 38.55 and 39.90.
         --label-smoothing 0, stopped after 26 epochs: greedy on val after 18, 21, 24 epochs 31.22,
         35.41, 38.16; with 0.1 34.34, 37.43, 38.22
"""

import dataclasses
import time
from pathlib import Path
from typing import Any, Literal

import keras

import keras_transformers as kt
from keras_transformers.data import translation as data
from keras_transformers.data.parallel_text import multi30k_files, read_parallel
from keras_transformers.export.translation import Translator
from keras_transformers.export.versions import split_target
from keras_transformers.inspection import attention_pictures
from keras_transformers.tokenizers.sentencepiece import SentencePieceTokenizer
from keras_transformers.training import runs
from keras_transformers.training.averaging import CheckpointAveraging, SwapAverageWeights
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.metrics import Perplexity, TokenAccuracy
from keras_transformers.training.optimizers import adam
from keras_transformers.training.resume import TrainingState, check_same
from keras_transformers.training.schedules import Decay, warmup_schedule
from keras_transformers.training.validation import BleuValidation, bleu_figures


@dataclasses.dataclass(frozen=True)
class Config:
    """Trains a Transformer to translate."""

    data: Path  # the directory of train.*, val.*, test_2016_flickr.*
    source_language: str = "de"
    target_language: str = "en"
    test_split: str = "test_2016_flickr"

    model: str = "transformer_tiny"
    vocabulary_size: int = 8000  # one vocabulary for both languages
    max_sequence_length: int = 128  # tokens; longer pairs are dropped and counted
    norm_position: Literal["pre", "post"] = "pre"
    dropout: float = 0.3  # on embeddings and sub-layers
    attention_dropout: float = 0.0
    feed_forward_dropout: float = 0.0
    bpe_dropout: float = 0.0  # cuts words another way each epoch

    epochs: int = 30
    batch_tokens: int = 8192  # source and target together, padding included
    decay: Decay = "inverse_sqrt"  # of the learning rate, after the warm-up
    learning_rate: float = 5e-3  # the highest, after the warm-up
    warmup_steps: int = 2000
    label_smoothing: float = 0.1
    clip_norm: float | None = 1.0
    ema: float | None = None  # momentum of an exponential moving average of the weights
    average: int = 5  # epochs; their mean is the model if it translates val better than the last
    bleu_every: int = 1  # epochs between translations of the validation set
    patience: int = 10  # epochs without a better val_bleu before training stops
    seed: int = 0  # of new weights, dropout and the order of the pairs

    num_beams: int = 4
    length_penalty: float = 0.6
    name: str = "translation"  # the run's folder in runs_dir
    runs_dir: Path = Path("runs")
    resume: bool = False  # go on with that run after its last epoch; patience counts anew
    export: Path | None = None  # writes a SavedModel there, e.g. saved_models/translate_de_en/1
    export_dtype: Literal["float32", "bfloat16"] = "float32"  # of the matrices in its file


def main(config: Config) -> dict[str, Any]:
    """Trains, averages, scores, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        runs.check_installed("matplotlib", "sacrebleu", extra="translation")
        folder = config.runs_dir / config.name
        if config.resume:
            check_same(folder, config, may_differ=("resume", "export", "export_dtype"))
        else:
            runs.check_new(folder)
        if config.export:
            split_target(config.export)
        languages = (config.source_language, config.target_language)
        files = {
            split: multi30k_files(config.data, split, languages=languages)
            for split in ("train", "val", config.test_split)
        }
        splits = {split: list(read_parallel(*paths)) for split, paths in files.items()}
        keras.utils.set_random_seed(config.seed)
        runs.start(folder, config)
        vocabulary = folder / "vocabulary.model"
        if not vocabulary.is_file():
            SentencePieceTokenizer.train(
                files["train"], vocabulary, vocabulary_size=config.vocabulary_size
            )
        tokenizer = SentencePieceTokenizer(vocabulary)
        length = config.max_sequence_length
        train = data.encode(splits["train"], tokenizer, max_sequence_length=length)
        val = data.encode(splits["val"], tokenizer, max_sequence_length=length)
        print(f"training pairs: {train.report}\nvalidation pairs: {val.report}")
        pairs: data.Epochs = train
        if config.bpe_dropout:
            rate = config.bpe_dropout
            pairs = data.with_dropout(train, tokenizer, dropout=rate, seed=config.seed)
        batching = {"batch_tokens": config.batch_tokens, "seed": config.seed}
        statistics = data.batch_statistics(pairs, **batching)
        print(statistics)
        model = build(config, statistics.num_batches)

    options = {"length_penalty": config.length_penalty}
    search: dict[str, Any] = {"max_sequence_length": length} | options
    greedy = Translator(model, tokenizer, num_beams=1, **search)
    beam = Translator(model, tokenizer, num_beams=config.num_beams, **search)

    averaging = CheckpointAveraging(num_checkpoints=config.average)
    validation = BleuValidation(
        greedy.translate_all,
        *zip(*splits["val"], strict=True),
        log_dir=folder / "tensorboard" / "samples",
        draw=lambda *texts: attention_pictures(**beam.attend(*texts)),
        every=config.bleu_every,
    )
    stateful = [*([SwapAverageWeights()] if config.ema else []), averaging, validation]
    state = TrainingState(folder / "state.npz", callbacks=stateful)
    callbacks = [*stateful, *runs.callbacks(folder, monitor="val_bleu"), state]
    with runs.user_errors():
        state.restore(model, callbacks)
    done = len(state.epochs)
    model.fit(
        data.training_dataset(pairs, **batching, skip_batches=done * statistics.num_batches),
        steps_per_epoch=statistics.num_batches,
        initial_epoch=done,
        validation_data=data.evaluation_dataset(val, batch_tokens=config.batch_tokens),
        epochs=config.epochs,
        callbacks=[
            *callbacks,
            keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=config.patience),
        ],
        verbose=runs.verbosity(),
    )
    seconds = time.time() - started

    metrics: dict[str, Any] = {
        "parameters": model.count_params(),
        "epochs": state.epochs,
        "steps": int(model.optimizer.iterations),
        "seconds": round(seconds),  # validation included; since the start, or since it was resumed
        "target_tokens_per_second": (len(state.epochs) - done)
        * train.report.num_target_tokens
        / seconds,
    }
    candidates = {"last": model.get_weights()}
    averaging.apply()
    candidates[f"average of {len(averaging)}"] = model.get_weights()
    measured = {split: splits[split] for split in ("val", config.test_split)}
    for name, weights in candidates.items():
        model.set_weights(weights)
        translators = {f"{name}, greedy": greedy.translate_all, f"{name}, beam": beam.translate_all}
        metrics |= bleu_figures(translators, measured)
    chosen = max(candidates, key=lambda name: metrics[f"val BLEU, {name}, beam"])
    metrics["chosen"] = chosen  # by the validation set, never by the test set
    model.set_weights(candidates[chosen])
    model.save_weights(folder / "chosen.weights.h5")
    runs.report(folder, metrics)
    if config.export:
        exported = kt.export.translator(
            model,
            tokenizer,
            config.export,
            num_beams=config.num_beams,
            weights_dtype=config.export_dtype,
            **search,
        )
        print(f"exported: {exported}")
    return metrics


def build(config: Config, steps_per_epoch: int) -> keras.Model:
    """The compiled model."""
    model = kt.create_model(
        config.model,
        vocabulary_size=config.vocabulary_size,
        max_sequence_length=config.max_sequence_length,
        norm_position=config.norm_position,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        feed_forward_dropout=config.feed_forward_dropout,
    )
    schedule = warmup_schedule(
        config.decay,
        config.learning_rate,
        warmup_steps=config.warmup_steps,
        total_steps=config.epochs * steps_per_epoch,
    )
    model.compile(
        optimizer=adam(schedule, clip_norm=config.clip_norm, ema=config.ema),
        loss={"logits": TokenCrossentropy(label_smoothing=config.label_smoothing)},
        weighted_metrics={"logits": [Perplexity(), TokenAccuracy()]},
        jit_compile=False,
    )
    return model


if __name__ == "__main__":
    runs.command_line(main, Config)
