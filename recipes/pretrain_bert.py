"""BERT's pretraining from raw text: masked tokens and next sentences, data to weights.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, sections 3.1 and A.2; LAMB: You et
         al. 2020, https://arxiv.org/abs/1904.00962
Data:    text, a sentence a line and blank lines between documents; or public corpora; or records
         of `keras-transformers make-pretraining-data` or Google's create_pretraining_data
Command: the two of saved_models/manifest.json, entry fill_mask_en/1
Cost:    54 and 13 minutes on one thread of a machine that had other work, 13,000 and 2,000 steps
Score:   132 held-out documents, 128 tokens an example   masked tokens  perplexity  next sentence
         unigrams, the more frequent answer                     0.047        1001          0.511
         bert_l4_h128, 1,875,522 parameters, seed 0             0.322        59.4          0.778
         after the first command                                0.202       225.7          0.765
         SST-2 dev, classification.py --epochs 4 --learning-rate 1e-3 --seed 0, 1, 2: from these
         weights, --pooling mean, 0.8016, 0.7913, 0.7867, mean 0.7932; from random ones, --pooling
         cls, 0.7936, 0.7661, 0.7856, mean 0.7817: each the best on seed 0 of both poolings and of
         rates 3e-4 and 1e-3; a bag of words 0.8005 (benchmarks/task_baselines.py)
"""

import dataclasses
import time
from pathlib import Path
from typing import Any, Literal

import keras

import keras_transformers as kt
from keras_transformers.convert.encoders import (
    bert_size,
    load_pretrainer,
    pretrained_size,
    save_pretrainer,
)
from keras_transformers.data.pretraining.options import PretrainingFiles
from keras_transformers.evaluation.perplexity import Perplexity, TokenAccuracy
from keras_transformers.evaluation.unigrams import unigram_baseline
from keras_transformers.inspection import training_flops
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.saved_model.versions import split_target
from keras_transformers.training import optimizers
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.schedules import WarmupLinearDecay

SHAPE = ("num_layers", "num_heads", "hidden_dim")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(PretrainingFiles, runs.Run):
    """Pretrains a BERT encoder with its two heads."""

    dynamic_masking: bool = True  # other masks each time that an example comes, as in RoBERTa

    weights: Path | None = None  # go on from an earlier run's `weights`, with their vocabulary
    model: str = "bert_tiny"  # else a shape of `keras-transformers list 'bert_*'`, random weights
    num_layers: int | None = None  # this and the next two: instead of that shape's own
    num_heads: int | None = None
    hidden_dim: int | None = None
    dropout: float = 0.1  # in the encoder and its attention
    initializer_range: float = 0.02  # of a new encoder's matrices; 0.07 for a width of 128

    epochs: int = 10
    steps_per_epoch: int = 1000  # updates until the next validation and checkpoint
    phase_1_length: int = 128  # tokens of an example, in the first epochs
    phase_2_length: int = 512  # in the last
    phase_2_epochs: int = 1  # how many these are; in the paper a tenth of all
    batch_size: int = 64  # examples that go through the model at once, on all replicas together
    shard: strategies.Shard = "element"  # workers share each batch, or the files of records
    optimizer: Literal["adamw", "lamb"] = "adamw"
    learning_rate: float = 1e-3  # the highest, after the warm-up
    warmup_fraction: float = 0.1  # of all updates
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    seed: int = 0  # of new weights, dropout, the order of the examples and dynamic masks

    name: str = "pretrain_bert"  # the run's folder in runs_dir
    export: Path | None = None  # writes a fill-mask SavedModel, e.g. saved_models/fill_mask/1


def main(config: Config) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        folder = config.begin()
        if config.export and strategies.is_chief():
            split_target(config.export)
        with config.scope():
            phases, optimizer = plan(config)
        lengths = [length for length, _ in phases]
        if config.weights:
            pretrained_size(config.weights, max(lengths))  # before the records are made
        text = config.read()
        runs.start(folder, config)
        records = config.records or folder / "records"
        vocabulary = config.weights / "vocab.txt" if config.weights else config.vocabulary
        examples = strategies.chief_first(
            lambda: config.make(text, records, lengths=lengths, vocabulary=vocabulary)
        )
        with config.scope():
            model = load_pretrainer(
                weights=config.weights,
                model=config.model,
                shape={name: getattr(config, name) for name in SHAPE},
                vocabulary_size=examples.tokenizer.vocabulary_size,
                max_sequence_length=max(lengths),
                dropout=config.dropout,
                initializer_range=config.initializer_range,
            )
            model.compile(
                optimizer=optimizer,
                loss={name: TokenCrossentropy() for name in model.output},
                weighted_metrics={
                    "mask_logits": [TokenAccuracy("accuracy"), Perplexity()],
                    "next_sentence_logits": [TokenAccuracy("accuracy")],
                },
                jit_compile=False,
            )
        config.prepare(model)
        resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
        usual = runs.callbacks(folder, monitor="val_mask_logits_accuracy", log=config)
        callbacks = [*usual, resume]
        position = resume.restore(model, callbacks)

    size = config.batch_size * config.accumulate
    for length, epochs in phases:
        first = max(epochs.start, position.epoch)  # later in a run that goes on
        if first >= epochs.stop:
            continue
        done = (first - epochs.start) * config.steps_per_epoch
        if first == position.epoch:
            done += position.batch
        with runs.user_errors():
            train_batches, dev_batches = examples.batches(
                length,
                batch_size=size,
                dev_batch_size=config.batch_size,
                dynamic_masking=config.dynamic_masking,
                seed=config.seed,
                skip_batches=done,
            )
        specs = train_batches.element_spec[0]
        shapes = {name: (size, *spec.shape[1:]) for name, spec in specs.items()}
        flops = training_flops(model, shapes)
        runs.set_cost(callbacks, tokens_per_step=size * length, flops_per_step=flops)
        model.fit(
            strategies.shard(train_batches, config.shard),
            steps_per_epoch=config.steps_per_epoch,
            validation_data=strategies.shard(dev_batches),
            initial_epoch=first,
            epochs=epochs.stop,
            shuffle=False,  # the batches are shuffled already
            callbacks=callbacks,
            verbose=runs.verbosity(),
        )

    last = resume.epochs[-1]
    baseline = unigram_baseline(*examples.token_counts(length))
    metrics = {
        "parameters": model.count_params(),
        "steps": int(model.optimizer.iterations.numpy()),
        "dev_mask_accuracy": last["val_mask_logits_accuracy"],
        "dev_mask_accuracy, unigram": baseline.accuracy,
        "dev_mask_perplexity": last["val_mask_logits_perplexity"],
        "dev_mask_perplexity, unigram": baseline.perplexity,
        "dev_next_sentence_accuracy": last["val_next_sentence_logits_accuracy"],
        "epochs": resume.epochs,
        "seconds": round(time.time() - started),  # since the start, or since it was resumed
    }
    if strategies.is_chief():
        save_pretrainer(model, folder / "weights", vocabulary or records / "vocab.txt")
    runs.report(folder, metrics)
    if config.export and strategies.is_chief():
        exported = kt.export.fill_mask(
            model, examples.tokenizer, config.export, scores=runs.scores(metrics)
        )
        print(f"exported: {exported}")
    return metrics


def plan(config: Config) -> tuple[list[tuple[int, range]], keras.optimizers.Optimizer]:
    """The phases, each the length of its examples and its epochs, and the optimizer for all."""
    if not (config.data or config.records):
        raise ValueError("give --data, or --records that are there")
    bert_size(config.model)  # if there is one of that name
    if config.weights and (config.vocabulary or any(getattr(config, name) for name in SHAPE)):
        raise ValueError("--weights bring their own vocabulary and shape: leave those options out")
    if not 0 <= config.phase_2_epochs <= config.epochs:
        raise ValueError(f"--phase-2-epochs {config.phase_2_epochs}: not in 0 to {config.epochs}")
    num_updates = config.epochs * config.steps_per_epoch
    warmup = round(config.warmup_fraction * num_updates)
    schedule = WarmupLinearDecay(config.learning_rate, warmup_steps=warmup, total_steps=num_updates)
    make = optimizers.lamb if config.optimizer == "lamb" else optimizers.adamw
    optimizer = make(schedule, weight_decay=config.weight_decay, clip_norm=config.clip_norm)
    epochs = range(config.epochs)
    first = config.epochs - config.phase_2_epochs
    phases = (config.phase_1_length, epochs[:first]), (config.phase_2_length, epochs[first:])
    return [phase for phase in phases if phase[1]], optimizer


if __name__ == "__main__":
    runs.command_line(main, Config)
