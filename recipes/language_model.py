"""Language modelling: trains a small GPT on raw text and compares it with n-gram counts.

Paper:   Radford et al. 2019, https://openai.com/research/better-language-models; the n-grams: Chen
         & Goodman 1998, "An Empirical Study of Smoothing Techniques for Language Modeling"
Data:    text files, one document each, or WikiText's articles
Command: python recipes/language_model.py --data shakespeare.txt.gz --dropout 0.2 --epochs 20
             --decay cosine --warmup-fraction 0.05 --weight-decay 0.1 --beta-2 0.95
         python recipes/language_model.py --data wikitext2.valid.txt.gz
             --held-out wikitext2.test.txt.gz --text-format wikitext --dropout 0.35 --epochs 30
             --decay cosine --warmup-fraction 0.05 --weight-decay 0.1 --beta-2 0.95
         python recipes/language_model.py --data movie_reviews/*/*.txt --vocabulary-size 8000
             --epochs 6 --dropout 0 --decay cosine --warmup-fraction 0.05 --weight-decay 0.1
             --beta-2 0.95
Cost:    20, 35 and 57 minutes on one thread of a busy machine
Score:   held-out text's perplexity per token and per word, and bits per byte, with those of
         Kneser-Ney 5-grams of the same tokens; mixtures of both, and caches: docs/results.md
                                               GPT                  Kneser-Ney
         the end of Shakespeare (b6663d9)      160.3, 3,828, 2.628  178.4, 4,555, 2.683
         WikiText-2's test text (b5d40d2)      88.8, 793, 1.883     82.1, 706, 1.850
         NLTK's movie reviews (cd8484c)        96.8, 311, 1.644     92.4, 293, 1.627
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
    PositiveInt,
    Rate,
)
from keras_transformers.runs import Run, chief_first, command_line, is_chief, outputs_of
from keras_transformers.tasks import GenerationOptions
from keras_transformers.training import TokenCrossentropy

SHAPE = ("num_layers", "num_heads", "hidden_dim", "norm_position", "separate_documents", "dropout")
BATCHING = ("length", "separate_documents", "batch_size", "accumulate", "seed", "static_shapes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TextFiles, GenerationOptions):
    """Trains a causal language model and measures it on held-out text."""

    vocabulary: Path | None = None  # a folder such as GPT-2's; None: learned from the data
    # of a learned vocabulary; fewer, with a warning, if the text yields fewer
    vocabulary_size: PositiveInt = 4000

    num_layers: PositiveInt = 4
    num_heads: PositiveInt = 4
    hidden_dim: PositiveInt = 128
    norm_position: Literal["pre", "post"] = "pre"  # GPT-2 or GPT
    length: PositiveInt = 128  # positions of the model, tokens per row
    separate_documents: bool = False  # documents in one row cannot attend to each other
    dropout: Rate = 0.1  # on embeddings, sub-layers and attention

    ngram_order: PositiveInt = 5  # of the Kneser-Ney model to compare with

    name: str = "language_model"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    texts = config.read()
    tokenizer = chief_first(lambda: tokenizer_for(config, run, texts["train"]))
    streams = {split: TokenStream.of(documents, tokenizer) for split, documents in texts.items()}
    print("\n".join(f"{split}: {stream}" for split, stream in streams.items()))
    batches = RowBatches(streams["train"], **config.pick(*BATCHING))
    with run.scope():
        model = kt.families.gpt.gpt(
            vocabulary_size=tokenizer.vocabulary_size,
            max_sequence_length=config.length,
            attention_dropout=config.dropout,
            **config.pick(*SHAPE),
        )
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
            loss={"logits": TokenCrossentropy()},
            weighted_metrics={"logits": [Perplexity()]},
            jit_compile=config.jit_compile,
        )
    generate = kt.pipelines.TextGenerator(model, tokenizer, temperature=1.0)
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
    hidden = kt.models.anatomy.anatomy(model).projected  # the input of the logits' projection
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
