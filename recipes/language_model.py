"""A language model from raw text: byte pairs, a small GPT, and what counting alone would do.

Paper:   Radford et al. 2019, https://openai.com/research/better-language-models; the n-grams: Chen
         & Goodman 1998, "An Empirical Study of Smoothing Techniques for Language Modeling"
Data:    text files, each a document, or WikiText's articles
Command: python recipes/language_model.py --data shakespeare.txt.gz --dropout 0.2 --epochs 20
Cost:    20 minutes on one thread beside other work
Score:   held-out text's perplexity per token and per word, bits per byte (b6663d9); beside them
         Kneser-Ney n-grams of order 5 of the same tokens
         Shakespeare, its end: 160.3, 3,828, 2.628; 178.4, 4,555, 2.683. The defaults, 9 minutes:
         178.0, 4,539, 2.682
         WikiText-2, learned from 206,800 words of its validation text, measured on its test text
         (--data wikitext2.valid.txt.gz --held-out wikitext2.test.txt.gz --text-format wikitext
         --dropout 0.3): 106.1, 1,033, 1.957; 82.1, 706, 1.850
         Movie reviews of NLTK (--data movie_reviews/*/*.txt --vocabulary-size 8000 --epochs 5, 43
         minutes): 111.4, 371, 1.695; 92.4, 293, 1.627
"""

import dataclasses
import time
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers.convert.encoders import save_language_model
from keras_transformers.data.language_models import causal as data
from keras_transformers.evaluation.kneser_ney import KneserNey
from keras_transformers.evaluation.perplexity import (
    LogProbabilityOfTokens,
    Perplexity,
    TextPerplexity,
)
from keras_transformers.inspection import update_cost
from keras_transformers.models.gpt import causal_lm
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.saved_model.versions import split_target
from keras_transformers.tokenizers import BytePairTokenizer
from keras_transformers.training import optimizers
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.schedules import Decay, warmup_schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(runs.Run):
    """Trains a causal language model and measures it on text that it has not seen."""

    data: tuple[Path, ...]  # text files, plain or .gz
    held_out: tuple[Path, ...] = ()  # what is measured; () the end of the data
    held_out_fraction: float = 0.1  # of the data's characters, where `held_out` is ()
    dev_fraction: float = 0.05  # of the rest, its end: it chooses the epoch, nothing learns from it
    text_format: data.TextFormat = "text"  # "wikitext": each article is a document
    vocabulary: Path | None = None  # a folder such as GPT-2's; None: learned from the data
    vocabulary_size: int = 4000  # of the one that is learned

    num_layers: int = 4
    num_heads: int = 4
    hidden_dim: int = 128
    norm_position: Literal["pre", "post"] = "pre"  # GPT-2 or GPT
    length: int = 128  # positions of the model, tokens of a row
    separate_documents: bool = False  # documents that share a row do not see each other
    dropout: float = 0.1  # on embeddings, sub-layers and attention

    epochs: int = 10
    batch_size: int = 16  # rows
    decay: Decay = "cosine"  # of the learning rate, after the warm-up
    learning_rate: float = 2e-3  # the highest, after the warm-up
    warmup_fraction: float = 0.05  # of all updates
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    ngram_order: int = 5  # of the Kneser-Ney model that is measured beside it
    seed: int = 0  # of new weights, dropout and the order of the rows

    name: str = "language_model"  # the run's folder in runs_dir
    export: Path | None = None  # writes a SavedModel there, e.g. saved_models/generate_en/1
    export_dtype: Literal["float32", "bfloat16"] = "float32"  # of the matrices in its file


def main(config: Config) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        folder = config.begin()
        if config.export and strategies.is_chief():
            split_target(config.export)
        texts = read(config)
        runs.start(folder, config)
        vocabulary = config.vocabulary or folder / "vocabulary"
        if strategies.is_chief() and not config.vocabulary and not vocabulary.is_dir():
            BytePairTokenizer.train(
                texts["train"], vocabulary, vocabulary_size=config.vocabulary_size
            )
        strategies.wait_for_all()
        tokenizer = BytePairTokenizer(vocabulary)
        streams = {split: data.tokenize(documents, tokenizer) for split, documents in texts.items()}
        for split, stream in streams.items():
            print(f"{split}: {stream}")
        rows: dict[str, Any] = {
            "length": config.length,
            "separate_documents": config.separate_documents,
        }
        size = config.batch_size * config.accumulate
        steps_per_epoch = -(-data.num_rows(streams["train"], config.length) // size)
        with config.scope():
            model = build(config, tokenizer.vocabulary_size, max(1, steps_per_epoch))
        config.prepare(model)
        resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
        cost = update_cost(model, rows=size, length=config.length)
        usual = runs.callbacks(folder, monitor="val_log_probability", log=config, **cost._asdict())
        callbacks = [LogProbabilityOfTokens(), *usual, resume]
        position = resume.restore(model, callbacks)
        train_batches = data.training_batches(
            streams["train"], **rows, batch_size=size, seed=config.seed, skip_epochs=position.epoch
        )

    model.fit(
        train_batches.skip(position.batch),
        steps_per_epoch=steps_per_epoch,
        validation_data=data.evaluation_batches(
            streams["dev"], **rows, batch_size=config.batch_size
        ),
        initial_epoch=position.epoch,
        epochs=config.epochs,
        callbacks=callbacks,
        verbose=runs.verbosity(),
    )
    seconds = round(time.time() - started)
    strategies.load_weights(model, folder / runs.BEST_WEIGHTS)
    metrics: dict[str, Any] = {
        "parameters": model.count_params(),
        "steps": int(model.optimizer.iterations.numpy()),
        "epochs": resume.epochs,
        "seconds": seconds,  # validation included; since the start, or since it was resumed
    }
    held_out = streams["held_out"]
    # Every token is predicted from half a row at least.
    batches = data.evaluation_batches(
        held_out, **rows, batch_size=config.batch_size, stride=max(1, config.length // 2)
    )
    found = model.evaluate(batches, return_dict=True, verbose=0)
    nats = float(np.log(found["perplexity"])) * held_out.num_targets
    counts = held_out.num_targets, held_out.num_words, held_out.num_bytes
    metrics |= TextPerplexity(nats, *counts).figures("GPT")
    ngrams = KneserNey(order=config.ngram_order).fit(
        streams["train"].documents(), tokenizer.vocabulary_size
    )
    nats = -sum(float(ngrams.log_probabilities(ids).sum()) for ids in held_out.documents())
    metrics |= TextPerplexity(nats, *counts).figures(f"Kneser-Ney {config.ngram_order}-grams")

    if strategies.is_chief():
        save_language_model(model, folder / "weights", vocabulary)
    runs.report(folder, metrics)
    if config.export and strategies.is_chief():
        exported = kt.export.generator(
            model,
            tokenizer,
            config.export,
            weights_dtype=config.export_dtype,
            scores=runs.scores(metrics, "GPT,"),
        )
        print(f"exported: {exported}")
    return metrics


def read(config: Config) -> dict[str, list[str]]:
    """The documents of each split: train, dev, held_out."""
    texts = data.read_texts(config.data, text_format=config.text_format)
    if config.held_out:
        held_out = data.read_texts(config.held_out, text_format=config.text_format)
    else:
        texts, held_out = data.split_tail(texts, held_out_fraction=config.held_out_fraction)
    train, dev = data.split_tail(texts, held_out_fraction=config.dev_fraction)
    return {"train": train, "dev": dev, "held_out": held_out}


def build(config: Config, vocabulary_size: int, steps_per_epoch: int) -> keras.Model:
    """The compiled model."""
    model = causal_lm(
        vocabulary_size=vocabulary_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        hidden_dim=config.hidden_dim,
        max_sequence_length=config.length,
        norm_position=config.norm_position,
        separate_documents=config.separate_documents,
        dropout=config.dropout,
        attention_dropout=config.dropout,
    )
    num_updates = config.epochs * steps_per_epoch
    schedule = warmup_schedule(
        config.decay,
        config.learning_rate,
        warmup_steps=round(config.warmup_fraction * num_updates),
        total_steps=num_updates,
    )
    model.compile(
        optimizer=optimizers.adamw(
            schedule, weight_decay=config.weight_decay, beta_2=0.95, clip_norm=config.clip_norm
        ),
        loss={"logits": TokenCrossentropy()},
        weighted_metrics={"logits": [Perplexity()]},
        jit_compile=False,
    )
    return model


if __name__ == "__main__":
    runs.command_line(main, Config)
