"""BERT and ModernBERT pretraining from raw text: masked tokens and, for BERT, next sentences.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, sections 3.1 and A.2; LAMB: You et
         al. 2020, https://arxiv.org/abs/1904.00962
Data:    text, one sentence per line, blank lines between documents; public corpora; or records
         from `keras-transformers make-pretraining-data` or create_pretraining_data
Command: the one in saved_models/manifest.json, entry fill_mask_en/1
Cost:    146 minutes on two threads of a busy machine, 12,000 steps
Score:   held-out documents, 128 tokens per example      masked tokens  perplexity
         modern_bert_tiny, 1,885,760 parameters, seed 0         0.413        26.1
         bert_l4_h128, 1,875,522 parameters, 25,000 steps, by
         the entry's two commands at 6f1a4d6                    0.395        29.8
         unigrams                                               0.044         872
         docs/results.md has shorter runs, and one with next sentences
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.pretraining import PretrainingFiles
from keras_transformers.evaluation import Perplexity, TokenAccuracy, unigram_baseline
from keras_transformers.ranges import (
    Default,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Rate,
    Seed,
)
from keras_transformers.runs import Pretraining, Run, chief_first, command_line, is_chief
from keras_transformers.training import Shard, TokenCrossentropy, adamw, lamb

OPTIMIZERS = {"adamw": adamw, "lamb": lamb}
METRICS: dict[str, Callable[[], list[keras.metrics.Metric]]] = {
    "mask_logits": lambda: [TokenAccuracy("accuracy"), Perplexity()],
    "next_sentence_logits": lambda: [TokenAccuracy("accuracy")],
}
MASKING = ("dynamic_masking", "always_mask", "pack")
SHAPE = ("num_layers", "num_heads", "hidden_dim")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(PretrainingFiles, Pretraining):
    """Pretrains a BERT with its two heads, or a ModernBERT, which learns masked tokens only."""

    dynamic_masking: bool = True  # new masks each time an example is used, as in RoBERTa
    always_mask: bool = False  # replace all chosen tokens by [MASK], not just 80 % of them
    next_sentence: bool = True  # False: leave its head untrained, as in RoBERTa
    weights: Path | None = None  # continue from a model with these heads, such as an earlier run
    # otherwise one of `keras-transformers list '*bert_*'`, with random weights; ModernBERT's paper
    # masks 30 % of the tokens and uses no dropout
    model: str = "bert_tiny"
    num_layers: PositiveInt | None = None  # this and the next two override the model's shape
    num_heads: PositiveInt | None = None
    hidden_dim: PositiveInt | None = None
    dropout: Rate = 0.1  # in the encoder and its attention
    initializer_range: PositiveFloat = 0.02  # of a new encoder's matrices; for a width of 128: 0.07

    phase_1_length: PositiveInt = Default(128)  # tokens per example in the first epochs
    phase_2_length: PositiveInt = Default(512)  # in the last epochs
    # number of last epochs; use a tenth of all, so that the later positions learn enough
    phase_2_epochs: NonNegativeInt = 1
    batch_size: PositiveInt = 64  # examples, or packed rows, per forward pass, over all replicas
    pack: bool = False  # let short examples share a row, to reduce padding
    shard: Shard = "element"  # divide each batch or the record files among workers
    optimizer: Literal["adamw", "lamb"] = "adamw"
    weight_decay: NonNegativeFloat = 0.01
    seed: Seed = 0  # for new weights, dropout, the order of the examples and dynamic masks
    name: str = "pretrain_bert"  # the run's folder in runs_dir

    lengths: ClassVar[tuple[str, ...]] = ("phase_1_length", "phase_2_length")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    schedule, phases = config.schedule(), plan(config)
    lengths = [length for length, _ in phases]
    options: dict[str, Any] = {"lengths": list(dict.fromkeys(lengths))}
    if config.weights:
        options["tokenizer"] = kt.convert.pretrained_tokenizer(config.weights, max(lengths))
    text = config.read()
    records = config.records or run.make_folder() / "records"
    examples = chief_first(lambda: config.make(text, records, **options))
    with run.scope():
        bert = build(config, examples.tokenizer.vocabulary_size, max(lengths))
        model = kt.heads.packed(bert) if config.pack else bert  # the same layers
        regularisation = config.pick("weight_decay", "clip_norm")
        weights = {"mask_logits": 1.0, "next_sentence_logits": float(config.next_sentence)}
        model.compile(
            optimizer=OPTIMIZERS[config.optimizer](schedule, **regularisation),
            loss={name: TokenCrossentropy() for name in model.output},
            loss_weights={name: weights[name] for name in model.output},
            weighted_metrics={name: METRICS[name]() for name in model.output},
            jit_compile=config.jit_compile,
        )
    fill = kt.pipelines.MaskFiller(bert, examples.tokenizer)
    has_segments = "next_sentence_logits" in bert.output
    # Keras omits the output's name from the metrics of a model with one output.
    prefix = "val_mask_logits_" if has_segments else "val_"
    batching = config.batching() | config.pick(*MASKING) | {"next_sentence": has_segments}
    for length, epochs in phases:
        batches, dev = examples.batches(length, **batching)
        fit = run.prepare(
            model,
            batches,
            validation=dev,
            samples=fill,
            monitor=f"{prefix}accuracy",
            epochs=epochs,
            shard_by=config.shard,
        )
        if run.position.epoch < epochs.stop:  # otherwise a stopped run had passed this phase
            model.fit(**fit)
    last, baseline = run.epochs[-1], unigram_baseline(*examples.token_counts(lengths[-1]))
    if is_chief():
        kt.convert.save_weights(bert, run.folder / "weights", examples.tokenizer)
    figures = {
        "parameters": bert.count_params(),
        "steps": int(model.optimizer.iterations.numpy()),
        "dev_mask_accuracy": last[f"{prefix}accuracy"],
        "dev_mask_accuracy, unigram": baseline.accuracy,
        "dev_mask_perplexity": last[f"{prefix}perplexity"],
        "dev_mask_perplexity, unigram": baseline.perplexity,
    }
    if has_segments:
        figures["dev_next_sentence_accuracy"] = last["val_next_sentence_logits_accuracy"]
    return run.finish(fill, figures)


def plan(config: Config) -> list[tuple[int, range]]:
    """Checks the options; returns the length of the examples and the epochs of each phase."""
    if config.weights and (config.vocabulary or any(config.pick(*SHAPE).values())):
        raise ValueError("--weights has its own vocabulary and shape: leave out those options")
    kt.convert.pretraining_size(config.model)  # fails if the name is unknown
    if config.always_mask and not config.dynamic_masking:
        raise ValueError("--always-mask draws new masks: leave out --no-dynamic-masking")
    if not 0 <= config.phase_2_epochs <= config.epochs:
        raise ValueError(f"--phase-2-epochs {config.phase_2_epochs}: give 0 to {config.epochs}")
    epochs, first = range(config.epochs), config.epochs - config.phase_2_epochs
    phases = (config.phase_1_length, epochs[:first]), (config.phase_2_length, epochs[first:])
    return [phase for phase in phases if phase[1]]


def build(config: Config, vocabulary_size: int, max_sequence_length: int) -> keras.Model:
    """Returns the encoder, loaded or new, with its heads."""
    return kt.convert.load_pretrainer(
        **config.pick("weights", "model", "dropout", "initializer_range"),
        shape=config.pick(*SHAPE),
        vocabulary_size=vocabulary_size,
        max_sequence_length=max_sequence_length,
    )


if __name__ == "__main__":
    command_line(main, Config)
