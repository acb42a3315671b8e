"""A language model from raw text: byte pairs, a small GPT, and n-gram counts to compare with.

Paper:   Radford et al. 2019, https://openai.com/research/better-language-models; the n-grams: Chen
         & Goodman 1998, "An Empirical Study of Smoothing Techniques for Language Modeling"
Data:    text files, one document each, or WikiText's articles
Command: python recipes/language_model.py --data shakespeare.txt.gz --dropout 0.2 --epochs 20
Cost:    20 minutes on one thread of a busy machine
Score:   held-out text's perplexity per token and per word, and bits per byte (b6663d9); then the
         same for Kneser-Ney 5-grams of the same tokens
         Shakespeare, its end: 160.3, 3,828, 2.628; 178.4, 4,555, 2.683; both mixed 129.9, 2,720,
         2.519. GPT with a cache of the document 59.6, 768, 2.116; mixed with the
         n-grams too 54.5, 663, 2.070. The defaults, 9 minutes: 178.0, 4,539, 2.682
         WikiText-2, trained on 206,800 words of its validation text, measured on its test text
         (--data wikitext2.valid.txt.gz --held-out wikitext2.test.txt.gz --text-format wikitext
         --dropout 0.35 --epochs 30, 35 minutes, b5d40d2): 88.8, 793, 1.883; 82.1, 706, 1.850; both
         mixed 67.2, 524, 1.765. With a cache of the document GPT has 52.5, 363, 1.662; mixed with
         the n-grams too 44.6, 284, 1.593
         NLTK's movie reviews (--data movie_reviews/*/*.txt --vocabulary-size 8000 --epochs 6
         --dropout 0, 57 minutes, cd8484c): 96.8, 311, 1.644; 92.4, 293, 1.627; both mixed 73.2,
         219, 1.544. With a cache GPT has 84.8, 264, 1.597; mixed with the n-grams too 66.5, 194,
         1.509. With --epochs 5 and dropout 0.1: 111.4, 371, 1.695
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.language_models import RowBatches, TextFiles, TokenStream
from keras_transformers.evaluation import (
    KneserNey,
    LogProbabilityOfTokens,
    Perplexity,
    ScoredText,
    TextPerplexity,
    compare_with_cache_and_ngrams,
)
from keras_transformers.ranges import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Rate,
    Seed,
    Share,
)
from keras_transformers.runs import Options, Run, chief_first, command_line, is_chief, outputs_of
from keras_transformers.training import Decay, TokenCrossentropy, adamw, warmup_schedule

SHAPE = ("num_layers", "num_heads", "hidden_dim", "norm_position", "separate_documents", "dropout")
BATCHING = ("length", "separate_documents", "batch_size", "accumulate", "seed", "static_shapes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TextFiles, Options):
    """Trains a causal language model and measures it on held-out text."""

    vocabulary: Path | None = None  # a folder such as GPT-2's; None: learned from the data
    vocabulary_size: PositiveInt = 4000  # of a learned one

    num_layers: PositiveInt = 4
    num_heads: PositiveInt = 4
    hidden_dim: PositiveInt = 128
    norm_position: Literal["pre", "post"] = "pre"  # GPT-2 or GPT
    length: PositiveInt = 128  # positions of the model, tokens per row
    separate_documents: bool = False  # documents in one row cannot attend to each other
    dropout: Rate = 0.1  # on embeddings, sub-layers and attention

    epochs: PositiveInt = 10
    batch_size: PositiveInt = 16  # rows
    decay: Decay = "cosine"  # of the learning rate after the warm-up
    learning_rate: PositiveFloat = 2e-3  # the highest, after the warm-up
    warmup_fraction: Share = 0.05  # of all updates
    weight_decay: NonNegativeFloat = 0.1
    clip_norm: PositiveFloat = 1.0
    ngram_order: PositiveInt = 5  # of the Kneser-Ney model to compare with
    seed: Seed = 0  # for new weights, dropout and the order of the rows

    name: str = "language_model"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    texts = config.read()
    tokenizer = chief_first(lambda: tokenizer_for(config, run, texts["train"]))
    streams = {split: TokenStream.of(documents, tokenizer) for split, documents in texts.items()}
    print("\n".join(f"{split}: {stream}" for split, stream in streams.items()))
    batches = RowBatches(streams["train"], **config.pick(*BATCHING))
    num_updates = config.epochs * len(batches)
    warmup_steps = round(config.warmup_fraction * num_updates)
    schedule = warmup_schedule(
        config.decay, config.learning_rate, warmup_steps=warmup_steps, total_steps=num_updates
    )
    with run.scope():
        model = kt.models.gpt.gpt(
            vocabulary_size=tokenizer.vocabulary_size,
            max_sequence_length=config.length,
            attention_dropout=config.dropout,
            **config.pick(*SHAPE),
        )
        model.compile(
            optimizer=adamw(schedule, beta_2=0.95, **config.pick("weight_decay", "clip_norm")),
            loss={"logits": TokenCrossentropy()},
            weighted_metrics={"logits": [Perplexity()]},
            jit_compile=config.jit_compile,
        )
    generate = kt.pipelines.TextGenerator(model, tokenizer)
    fit = run.prepare(
        model,
        batches,
        validation=batches.of(streams["dev"]),
        samples=generate,
        callbacks=[LogProbabilityOfTokens()],
        monitor="val_log_probability",
    )
    model.fit(**fit)

    run.load_best()
    figures: dict[str, Any] = {
        "parameters": model.count_params(),
        "steps": int(model.optimizer.iterations.numpy()),
    }
    hidden = kt.models.anatomy.anatomy(model).projected  # what the logits are made from
    scorer = keras.Model(model.input, {**model.output, "hidden": hidden})
    scored = {}
    for split in ("dev", "held_out"):  # each token is predicted from at least half a row
        rows = batches.of(streams[split], stride=max(1, config.length // 2))
        scored[split] = ScoredText.of(streams[split], outputs_of(scorer, rows), rows.dataset())
    ngrams = KneserNey(order=config.ngram_order)
    ngrams.fit(streams["train"].documents(), tokenizer.vocabulary_size)
    for name, nats in compare_with_cache_and_ngrams("GPT", **scored, ngrams=ngrams).items():
        figures |= TextPerplexity.of(nats, streams["held_out"]).figures(name)
    if is_chief():
        kt.convert.save_weights(model, run.folder / "weights", tokenizer, family="gpt2")
    return run.finish(generate, figures, scores=["GPT,"])


def tokenizer_for(config: Config, run: Run, texts: list[str]) -> kt.tokenizers.BytePairTokenizer:
    """Returns the tokenizer of `config.vocabulary`, or of a vocabulary that is learned once."""
    folder = config.vocabulary or run.make_folder() / "vocabulary"
    if config.vocabulary or folder.is_dir():
        return kt.tokenizers.BytePairTokenizer(folder)
    size = config.vocabulary_size
    return kt.tokenizers.BytePairTokenizer.train(texts, folder, vocabulary_size=size)


if __name__ == "__main__":
    command_line(main, Config)
