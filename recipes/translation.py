"""Translation: trains the Transformer on pairs of sentences, text in, translation out.

Paper:   Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
Data:    Multi30k task 1 (train.de.gz, train.en.gz, val.*, test_2016_flickr.*), or files named alike
"""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import keras
import tensorflow as tf
import tyro

import keras_transformers as kt
from keras_transformers.data.parallel_text import Pair, read_multi30k
from keras_transformers.data.translation import (
    batch_statistics,
    encode,
    evaluation_dataset,
    training_dataset,
    with_dropout,
)
from keras_transformers.export.translation import Translator, translator
from keras_transformers.export.versions import split_target
from keras_transformers.tokenizers.sentencepiece import SentencePieceTokenizer
from keras_transformers.training import runs
from keras_transformers.training.averaging import CheckpointAveraging
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.metrics import Perplexity, TokenAccuracy, bleu
from keras_transformers.training.schedules import (
    WarmupCosineDecay,
    WarmupInverseSqrt,
    WarmupLinearDecay,
)
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
    max_sequence_length: int = 128
    norm_position: Literal["pre", "post"] = "pre"
    dropout: float = 0.3  # on embeddings and sub-layers
    attention_dropout: float = 0.0
    feed_forward_dropout: float = 0.0
    bpe_dropout: float = 0.0  # cuts words another way each epoch

    epochs: int = 30
    batch_tokens: int = 8192  # source and target together, padding included
    schedule: Literal["inverse_sqrt", "cosine", "linear"] = "inverse_sqrt"
    learning_rate: float = 5e-3  # the highest, after the warm-up
    warmup_steps: int = 2000
    label_smoothing: float = 0.1
    clip_norm: float | None = 1.0
    ema: float | None = None  # momentum of an exponential moving average of the weights
    average: int = 5  # checkpoints (epochs) whose mean is the model in the end
    patience: int = 10  # epochs without a better val_bleu before training stops
    seed: int = 0

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
        splits = {name: read(config, name) for name in ("train", "val", config.test_split)}
        keras.utils.set_random_seed(config.seed)
        runs.start(folder, config)
        tokenizer = SentencePieceTokenizer.train(
            training_files(config),
            folder / "vocabulary.model",
            vocabulary_size=config.vocabulary_size,
        )
        length = config.max_sequence_length
        train = encode(splits["train"], tokenizer, max_sequence_length=length)
        val = encode(splits["val"], tokenizer, max_sequence_length=length)
        print(f"training pairs: {train.report}\nvalidation pairs: {val.report}")
        epochs = (
            with_dropout(train, tokenizer, dropout=config.bpe_dropout, seed=config.seed)
            if config.bpe_dropout
            else train
        )
        batching = {"batch_tokens": config.batch_tokens, "seed": config.seed}
        statistics = batch_statistics(epochs, **batching)
        print(statistics)
        model = build(config, statistics.num_batches)

    averaging = CheckpointAveraging(num_checkpoints=config.average)
    greedy = translate_with(config, model, tokenizer, num_beams=1)
    sources, references = zip(*splits["val"], strict=True)
    history = model.fit(
        training_dataset(epochs, **batching),
        steps_per_epoch=statistics.num_batches,
        validation_data=evaluation_dataset(val, batch_tokens=config.batch_tokens),
        epochs=config.epochs,
        callbacks=[
            averaging,
            BleuValidation(greedy, sources, references, log_dir=folder / "tensorboard" / "samples"),
            *runs.callbacks(folder, monitor="val_bleu"),
            keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=config.patience),
            keras.callbacks.TerminateOnNaN(),
        ],
        verbose=runs.verbosity(),
    ).history
    seconds = time.time() - started

    metrics: dict[str, Any] = {
        "parameters": model.count_params(),
        "epochs": runs.epochs(history),
        "steps": int(model.optimizer.iterations),
        "seconds": round(seconds),
        "target_tokens_per_second": train.report.num_target_tokens * len(history["loss"]) / seconds,
    }
    sources, references = zip(*splits[config.test_split], strict=True)
    beam = translate_with(config, model, tokenizer, num_beams=config.num_beams)

    def score(name: str) -> None:
        for search, translate in (("greedy", greedy), (f"beam {config.num_beams}", beam)):
            result = bleu(translate(sources), references)
            metrics[f"test_bleu, {name}, {search}"] = result.score
            metrics["signature"] = result.signature

    score("last")
    averaging.apply()
    score(f"average of {len(averaging)}")
    metrics["test_bleu, lower-cased"] = bleu(beam(sources), references, lowercase=True).score
    model.save_weights(folder / "averaged.weights.h5")
    runs.report(folder, metrics)
    if config.export:
        exported = translator(
            model,
            tokenizer,
            config.export,
            max_sequence_length=length,
            num_beams=config.num_beams,
            length_penalty=config.length_penalty,
        )
        print(f"exported: {exported}")
    return metrics


def read(config: Config, split: str) -> list[Pair]:
    """The pairs of a split."""
    languages = {
        "source_language": config.source_language,
        "target_language": config.target_language,
    }
    return list(read_multi30k(config.data, split, **languages))


def training_files(config: Config) -> list[Path]:
    """The two training files, gzipped or plain."""
    languages = (config.source_language, config.target_language)
    plain = [config.data / f"train.{language}" for language in languages]
    return [p if p.is_file() else p.with_name(f"{p.name}.gz") for p in plain]


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
    total_steps = config.epochs * steps_per_epoch
    schedule = {
        "inverse_sqrt": lambda rate, **warmup: WarmupInverseSqrt(rate, **warmup),
        "cosine": lambda rate, **warmup: WarmupCosineDecay(rate, total_steps=total_steps, **warmup),
        "linear": lambda rate, **warmup: WarmupLinearDecay(rate, total_steps=total_steps, **warmup),
    }[config.schedule](config.learning_rate, warmup_steps=config.warmup_steps)
    model.compile(
        optimizer=keras.optimizers.Adam(
            schedule,
            beta_1=0.9,
            beta_2=0.98,
            epsilon=1e-9,
            global_clipnorm=config.clip_norm,
            use_ema=config.ema is not None,
            ema_momentum=config.ema or 0.99,
        ),
        loss={"logits": TokenCrossentropy(label_smoothing=config.label_smoothing)},
        weighted_metrics={"logits": [Perplexity(), TokenAccuracy()]},
        jit_compile=False,
    )
    return model


def translate_with(
    config: Config, model: keras.Model, tokenizer: SentencePieceTokenizer, *, num_beams: int
) -> Any:
    """Texts to translations in batches of 64, sorted by length so that little is padded."""
    graph = Translator(
        model,
        tokenizer,
        max_sequence_length=config.max_sequence_length,
        num_beams=num_beams,
        length_penalty=config.length_penalty,
    )
    search = tf.function(graph.translate, input_signature=[tf.TensorSpec([None], tf.string)])

    def translate(texts: Sequence[str]) -> list[str]:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found = [""] * len(texts)
        for start in range(0, len(order), 64):
            rows = order[start : start + 64]
            outputs = search(tf.constant([texts[i] for i in rows]))["translation"].numpy()
            for i, translation in zip(rows, outputs, strict=True):
                found[i] = translation.decode()
        return found

    return translate


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
