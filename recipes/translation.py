"""Translation: trains a Transformer on pairs of sentences, text in, translation out.

Paper:   Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
Data:    Multi30k task 1 (train.de.gz, train.en.gz, val.*, test_2016_flickr.*), or files named alike
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
from keras_transformers.training.averaging import CheckpointAveraging
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.metrics import Perplexity, TokenAccuracy, bleu
from keras_transformers.training.optimizers import adam
from keras_transformers.training.schedules import Decay, warmup_schedule
from keras_transformers.training.validation import BleuValidation


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
    average: int = 5  # epochs whose mean is the model in the end
    bleu_every: int = 1  # epochs between translations of the validation set
    patience: int = 10  # epochs without a better val_bleu before training stops
    seed: int = 0  # of new weights, dropout and the order of the pairs

    num_beams: int = 4
    length_penalty: float = 0.6
    name: str = "translation"  # the run's folder in runs_dir
    runs_dir: Path = Path("runs")
    export: Path | None = None  # writes a SavedModel there, e.g. saved_models/translate_de_en/1


def main(config: Config) -> dict[str, Any]:
    """Trains, averages, scores, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        folder = runs.check_new(config.runs_dir / config.name)
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
        tokenizer = SentencePieceTokenizer.train(
            files["train"],
            folder / "vocabulary.model",
            vocabulary_size=config.vocabulary_size,
        )
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

    search: dict[str, Any] = {
        "max_sequence_length": length,
        "length_penalty": config.length_penalty,
    }
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
    swapping = [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)] if config.ema else []
    history = model.fit(
        data.training_dataset(pairs, **batching),
        steps_per_epoch=statistics.num_batches,
        validation_data=data.evaluation_dataset(val, batch_tokens=config.batch_tokens),
        epochs=config.epochs,
        callbacks=[
            *swapping,
            averaging,
            validation,
            *runs.callbacks(folder, monitor="val_bleu"),
            keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=config.patience),
        ],
        verbose=runs.verbosity(),
    ).history
    seconds = time.time() - started

    metrics: dict[str, Any] = {
        "parameters": model.count_params(),
        "epochs": runs.epochs(history),
        "steps": int(model.optimizer.iterations),
        "seconds": round(seconds),  # of training, validation included
        "target_tokens_per_second": len(history["loss"]) * train.report.num_target_tokens / seconds,
    }
    sources, references = zip(*splits[config.test_split], strict=True)

    def score(name: str) -> None:
        for search, translate in (("greedy", greedy), (f"beam {config.num_beams}", beam)):
            translations = translate.translate_all(sources)
            result = bleu(translations, references)
            metrics[f"test_bleu, {name}, {search}"] = result.score
            lower = bleu(translations, references, lowercase=True)
            metrics[f"test_bleu, {name}, {search}, lower-cased"] = lower.score
            metrics["signature"] = result.signature

    score("last")
    averaging.apply()
    score(f"average of {len(averaging)}")
    model.save_weights(folder / "averaged.weights.h5")
    runs.report(folder, metrics)
    if config.export:
        exported = kt.export.translator(
            model, tokenizer, config.export, num_beams=config.num_beams, **search
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
