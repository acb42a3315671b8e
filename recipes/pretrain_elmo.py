"""ELMo's pretraining from raw text: a language model in both directions, data to weights.

Paper:   Peters et al. 2018, https://arxiv.org/abs/1802.05365, sections 3.1 and 3.4
Data:    text, a sentence a line and blank lines between documents; or public corpora
Command: python recipes/pretrain_elmo.py --data DATA --corpora brown movie_reviews
             state_union wikitext2 --dev-fraction 0.02 --epochs 8 --steps-per-epoch 1200
Cost:    82 minutes on one thread beside other work
Score:   perplexity of the 60,074 words of 50 documents held out (88e91e4): forward 162.3, backward
         163.8; Kneser-Ney models of order 5, on the same text, 184.1 and 184.6; unigrams 774.4
"""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers.convert.encoders import save_elmo_encoder
from keras_transformers.data.language_models import bidirectional
from keras_transformers.data.pretraining import sets
from keras_transformers.evaluation.kneser_ney import KneserNey
from keras_transformers.evaluation.perplexity import OutputPerplexity
from keras_transformers.evaluation.unigrams import unigram_baseline
from keras_transformers.inspection import update_cost
from keras_transformers.models.elmo import elmo, language_model
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.saved_model.versions import split_target
from keras_transformers.tokenizers.word_vocabulary import BEGIN_ID, END_ID
from keras_transformers.training import optimizers
from keras_transformers.training.sampled_softmax import OutputIsLoss, SampledSoftmax
from keras_transformers.training.schedules import WarmupLinearDecay

OUTPUTS = ("forward_loss", "backward_loss")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(runs.Run):
    """Pretrains ELMo."""

    data: Path  # a text file, or a folder of them; with --corpora their folder
    text_format: sets.TextFormat = "lines"  # of the files
    corpora: tuple[sets.Corpus, ...] = ()  # read these there
    dev_fraction: float = 0.05  # of the documents, held out; the same for all seeds
    vocabulary: Path | None = None  # a word a line; None: learned from the text
    vocabulary_size: int = 30_000  # of the one that is learned
    min_frequency: int = 2  # words that occur less often are <UNK>

    filters: tuple[tuple[int, int], ...] = ((1, 16), (2, 16), (3, 32), (4, 64), (5, 128))
    num_highways: int = 1
    num_layers: int = 2
    lstm_dim: int = 256
    projection_dim: int = 64  # of each direction
    max_characters: int = 50  # of a word, two marks included; longer words are cut
    dropout: float = 0.1

    epochs: int = 10
    steps_per_epoch: int = 1000  # updates until the next validation and checkpoint
    batch_size: int = 16  # windows
    window_length: int = 64  # tokens that are read without a state from before
    num_sampled: int = 1024  # words of the softmax in training; validation takes all
    learning_rate: float = 2e-3  # the highest, after the warm-up
    warmup_fraction: float = 0.05  # of all updates
    clip_norm: float = 5.0
    seed: int = 0  # of new weights, dropout, samples and the order of the windows
    kneser_ney_order: int = 5  # of the n-gram models to compare with

    name: str = "pretrain_elmo"  # the run's folder in runs_dir
    export: Path | None = None  # writes a SavedModel of word vectors, e.g. saved_models/elmo/1


def main(config: Config) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        folder = config.begin()
        if config.export and strategies.is_chief():
            split_target(config.export)
        train, dev, vocabulary = bidirectional.make_texts(
            sets.read_text(config.data, text_format=config.text_format, corpora=config.corpora),
            dev_fraction=config.dev_fraction,
            vocabulary=config.vocabulary,
            vocabulary_size=config.vocabulary_size,
            min_frequency=config.min_frequency,
            max_characters=config.max_characters,
        )
        with config.scope():
            encoder, model, optimizer = build(config, len(vocabulary))
            model.compile(
                optimizer=optimizer,
                loss={name: OutputIsLoss() for name in OUTPUTS},
                weighted_metrics={name: [OutputPerplexity()] for name in OUTPUTS},
                jit_compile=False,
            )
        config.prepare(model)
        dev_batches = bidirectional.dataset(
            dev, batch_size=config.batch_size, window_length=config.window_length
        )
        _, lengths = bidirectional.plan_windows(train.documents.lengths, config.window_length)
        rows = config.batch_size * config.accumulate
        rules = {SampledSoftmax: softmax_flops}
        cost = update_cost(model, rows=rows, length=lengths.mean(), rules=rules)
        resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
        callbacks = [
            keras.callbacks.LambdaCallback(on_epoch_end=log_probability),
            *runs.callbacks(folder, monitor="val_log_probability", log=config, **cost._asdict()),
            resume,
        ]
        runs.start(folder, config)
        position = resume.restore(model, callbacks)
        train_batches = bidirectional.dataset(
            train,
            batch_size=rows,
            window_length=config.window_length,
            shuffle=True,
            repeat=True,
            seed=config.seed,
            skip_batches=position.step,
        )

    model.fit(
        train_batches,
        steps_per_epoch=config.steps_per_epoch,
        validation_data=dev_batches,
        initial_epoch=position.epoch,
        epochs=config.epochs,
        shuffle=False,  # the batches are shuffled already
        callbacks=callbacks,
        verbose=runs.verbosity(),
    )

    last = resume.epochs[-1]
    baseline = unigram_baseline(train.token_counts(), dev.token_counts())
    metrics: dict[str, Any] = {
        "parameters": encoder.count_params(),
        "steps": int(model.optimizer.iterations.numpy()),
        "dev_words": dev.statistics.num_words,
        "dev_unknown_words": dev.statistics.num_unknown,
        "dev_perplexity, unigram": baseline.perplexity,
        "epochs": resume.epochs,
    }
    for direction in ("forward", "backward"):
        name = f"dev_{direction}_perplexity"
        metrics[name] = last[f"val_{direction}_loss_perplexity"]
        metrics[f"{name}, Kneser-Ney"] = kneser_ney_perplexity(
            train, dev, config.kneser_ney_order, reverse=direction == "backward"
        )
    metrics["seconds"] = round(time.time() - started)  # since the start, or since it was resumed
    if strategies.is_chief():
        save_elmo_encoder(encoder, folder / "weights", vocabulary)
    runs.report(folder, metrics)
    if config.export and strategies.is_chief():
        scores = runs.scores(metrics, "dev_")
        print(f"exported: {kt.export.word_embedder(encoder, config.export, scores=scores)}")
    return metrics


def build(
    config: Config, vocabulary_size: int
) -> tuple[keras.Model, keras.Model, keras.optimizers.Optimizer]:
    """The encoder, the language model on it, and what trains that."""
    shape = ("filters", "num_highways", "num_layers", "lstm_dim", "projection_dim")
    options = {name: getattr(config, name) for name in (*shape, "max_characters", "dropout")}
    encoder = elmo(**options)
    softmax = SampledSoftmax(vocabulary_size, num_sampled=config.num_sampled, seed=config.seed)
    num_updates = config.epochs * config.steps_per_epoch
    warmup = round(config.warmup_fraction * num_updates)
    schedule = WarmupLinearDecay(config.learning_rate, warmup_steps=warmup, total_steps=num_updates)
    optimizer = optimizers.adam(schedule, beta_2=0.999, epsilon=1e-8, clip_norm=config.clip_norm)
    return encoder, language_model(encoder, softmax), optimizer


def softmax_flops(softmax: SampledSoftmax, hidden: Any, target_ids: Any) -> int:
    """In training: each word is scored, and beside it those that were drawn."""
    return 2 * math.prod(hidden.shape) * (softmax.num_sampled + 1)


def log_probability(epoch: int, logs: dict[str, Any]) -> None:
    """Adds what chooses the best epoch: the mean log probability of a word, of both directions."""
    losses = [np.log(logs[f"val_{name}_perplexity"]) for name in OUTPUTS]
    logs["val_log_probability"] = -float(np.mean(losses))


def kneser_ney_perplexity(
    train: bidirectional.RunningText,
    dev: bidirectional.RunningText,
    order: int,
    *,
    reverse: bool,
) -> float:
    """That of the same words under an n-gram model, which reads documents from either end."""
    step, certain = (-1, END_ID) if reverse else (1, BEGIN_ID)
    texts = (ids[::step] for ids in train.sequences())
    model = KneserNey(order=order).fit(texts, train.vocabulary_size)
    found = [model.log_probabilities(i[::step])[i[::step] != certain] for i in dev.sequences()]
    return float(np.exp(-np.mean(np.concatenate(found))))


if __name__ == "__main__":
    runs.command_line(main, Config)
