"""ELMo pretraining from raw text: trains a language model in both directions.

Paper:   Peters et al. 2018, https://arxiv.org/abs/1802.05365, sections 3.1 and 3.4
Data:    text, one sentence per line and blank lines between documents; or public corpora
Command: python recipes/elmo/pretrain_elmo.py --data DATA --corpora brown movie_reviews
             state_union wikitext2 --dev-fraction 0.02 --epochs 8 --steps-per-epoch 1200
         larger: --lstm-dim 512 --projection-dim 128 --max-characters 20 --batch-size 32
             --window-length 128 --dropout 0.2 --learning-rate 3e-3 --steps-per-epoch 500
             --epochs 12, then the same with --epochs 22 --resume
Cost:    82 minutes on one thread of a busy machine; the larger model 272
Score:   perplexity of the 60,074 words of 50 held-out documents, forward and backward: 162.3, 163.8
         (88e91e4); the larger model 117.0, 117.2 (56482c1); Kneser-Ney models of order 5, on the
         same text, 184.1, 184.6; unigrams 774.4
"""

import dataclasses
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers.data.language_models import RunningText, WindowBatches, make_texts
from keras_transformers.data.pretraining import Corpus, TextFormat, read_text
from keras_transformers.evaluation import KneserNey, OutputPerplexity, unigram_baseline
from keras_transformers.ranges import (
    Fraction,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Rate,
    Seed,
    Share,
)
from keras_transformers.runs import Pretraining, Run, command_line, is_chief
from keras_transformers.training import OutputIsLoss, SampledSoftmax, adam

OUTPUTS = ("forward_loss", "backward_loss")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Pretraining):
    """Pretrains ELMo."""

    data: Path  # a text file, a folder of text files, or with --corpora the folder of the corpora
    text_format: TextFormat = "lines"  # of the files
    corpora: tuple[Corpus, ...] = ()  # corpora to read in that folder
    dev_fraction: Fraction = 0.05  # of the documents, the same for all seeds
    vocabulary: Path | None = None  # one word per line; None: learned from the text
    vocabulary_size: PositiveInt = 30_000  # of a learned vocabulary
    min_frequency: PositiveInt = 2  # words that occur less often become <UNK>

    filters: tuple[tuple[PositiveInt, PositiveInt], ...] = (
        (1, 16),
        (2, 16),
        (3, 32),
        (4, 64),
        (5, 128),
    )
    num_highways: NonNegativeInt = 1
    num_layers: PositiveInt = 2
    lstm_dim: PositiveInt = 256
    projection_dim: PositiveInt = 64  # of each direction
    max_characters: NonNegativeInt = 50  # per word, including two marks; longer words are cut
    dropout: Rate = 0.1

    batch_size: PositiveInt = 16  # windows
    window_length: PositiveInt = 64  # tokens read from a new state
    num_sampled: PositiveInt = 1024  # words in the training softmax; validation uses all
    learning_rate: PositiveFloat = 2e-3  # peak, after the warm-up
    warmup_fraction: Share = 0.05  # of all updates
    clip_norm: PositiveFloat = 5.0
    seed: Seed = 0  # for new weights, dropout, samples and the order of the windows
    kneser_ney_order: PositiveInt = 5  # of the n-gram models to compare with

    name: str = "pretrain_elmo"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    text = read_text(config.data, **config.pick("text_format", "corpora"))
    train, dev, vocabulary = make_texts(text, **config.pick(*TEXT))
    with run.scope():
        encoder = kt.families.elmo.elmo(**config.pick(*SHAPE))
        softmax = SampledSoftmax(len(vocabulary), **config.pick("num_sampled", "seed"))
        model = kt.families.elmo.language_model(encoder, softmax)
        model.compile(
            optimizer=adam(
                config.schedule(), beta_2=0.999, epsilon=1e-8, clip_norm=config.clip_norm
            ),
            loss={name: OutputIsLoss() for name in OUTPUTS},
            weighted_metrics={name: [OutputPerplexity()] for name in OUTPUTS},
            jit_compile=config.jit_compile,
        )
    batches = WindowBatches(train, **config.batching(), **config.pick("window_length"))
    fit = run.prepare(
        model,
        batches,
        validation=batches.of(dev),
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=log_probability)],
        monitor="val_log_probability",
        flops_rules={SampledSoftmax: SampledSoftmax.training_flops},
    )
    model.fit(**fit)

    last = run.epochs[-1]
    baseline = unigram_baseline(train.token_counts(), dev.token_counts())
    figures: dict[str, Any] = {
        "parameters": encoder.count_params(),
        "steps": int(model.optimizer.iterations.numpy()),
        "dev_words": dev.statistics.num_words,
        "dev_unknown_words": dev.statistics.num_unknown,
        "dev_perplexity, unigram": baseline.perplexity,
    }
    for direction in ("forward", "backward"):
        name = f"dev_{direction}_perplexity"
        figures[name] = last[f"val_{direction}_loss_perplexity"]
        figures[f"{name}, Kneser-Ney"] = kneser_ney_perplexity(
            train, dev, config.kneser_ney_order, reverse=direction == "backward"
        )
    if is_chief():
        kt.convert.save_elmo_encoder(encoder, run.folder / "weights", vocabulary)
    return run.finish(kt.pipelines.WordEmbedder(encoder), figures)


# The options for texts and the encoder.
TEXT = ("dev_fraction", "vocabulary", "vocabulary_size", "min_frequency", "max_characters")
SHAPE = (
    *("filters", "num_highways", "num_layers", "lstm_dim", "projection_dim"),
    *("max_characters", "dropout"),
)


def log_probability(epoch: int, logs: dict[str, Any]) -> None:
    """Adds the score that decides the best epoch: the mean log-probability of words both ways."""
    losses = [np.log(logs[f"val_{name}_perplexity"]) for name in OUTPUTS]
    logs["val_log_probability"] = -float(np.mean(losses))


def kneser_ney_perplexity(
    train: RunningText, dev: RunningText, order: int, *, reverse: bool
) -> float:
    """Returns the perplexity of the words in `dev` under an n-gram model in either direction."""
    step, certain = (-1, train.end_id) if reverse else (1, train.start_id)
    texts = (ids[::step] for ids in train.sequences())
    model = KneserNey(order=order).fit(texts, train.vocabulary_size)
    found = [model.log_probabilities(i[::step])[i[::step] != certain] for i in dev.sequences()]
    return float(np.exp(-np.mean(np.concatenate(found))))


if __name__ == "__main__":
    command_line(main, Config)
