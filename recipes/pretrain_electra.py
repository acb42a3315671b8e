"""ELECTRA pretraining from raw text: a discriminator detects tokens that a generator replaced.

Paper:   Clark et al. 2020, https://arxiv.org/abs/2003.10555, sections 2 and 3
Data:    as for pretrain_bert.py, whose records it also reads; 15 % of the chosen tokens are kept
Command: python recipes/pretrain_bert.py --data DATA --corpora brown movie_reviews state_union
             wikitext2 --model bert_l4_h128 --initializer-range 0.07 --dropout 0 --phase-1-length 32
             --phase-2-epochs 0 --epochs 2 --batch-size 64 --learning-rate 1.5e-3
             --warmup-fraction 0.05 --seed 0
         python recipes/pretrain_electra.py --records runs/pretrain_bert/records
             --weights runs/pretrain_bert/weights --dropout 0 --length 32 --epochs 6
             --batch-size 64 --learning-rate 1e-3 --warmup-fraction 0.05 --seed 0
Cost:    12 and 46 minutes on one thread of a busy machine, 2,000 and 6,000 steps
Score:   held-out documents: the generator predicts 0.334 of the masked tokens, perplexity 68.0
         (unigrams 0.047, 1016). Of the tokens, 11.8 % are replaced; the discriminator finds 1.8 %
         of these with a precision of 0.56. Its loss is 0.339; predicting only the share gives 0.362
"""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.pretraining import PretrainingFiles, ReplacedTokenBatches
from keras_transformers.evaluation import (
    Perplexity,
    ReplacedTokenAccuracy,
    ReplacedTokenPrecision,
    ReplacedTokenRecall,
    ReplacedTokenShare,
    TokenAccuracy,
)
from keras_transformers.ranges import (
    Default,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Rate,
    Seed,
)
from keras_transformers.runs import Pretraining, Run, chief_first, command_line, is_chief
from keras_transformers.training import ReplacedTokenCrossentropy, TokenCrossentropy, adamw

SHAPE = ("num_layers", "num_heads", "hidden_dim", "embedding_dim")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(PretrainingFiles, Pretraining):
    """Pretrains an ELECTRA: its generator and its discriminator."""

    dynamic_masking: bool = True  # new masks each time an example is used

    weights: Path | None = None  # start both models from `weights` of pretrain_bert, with its width
    model: str = "electra_small"  # otherwise a name from `keras-transformers list 'electra_*'`
    num_layers: PositiveInt | None = None  # this and the next three override the model's shape
    num_heads: PositiveInt | None = None
    hidden_dim: PositiveInt | None = None
    embedding_dim: PositiveInt | None = None
    dropout: Rate = 0.1  # in both models and their attention
    initializer_range: PositiveFloat = 0.02  # of the matrices; for a width of 128: 0.07
    generator_size: PositiveFloat = 0.25  # the generator's share of the width and of the heads
    discriminator_weight: NonNegativeFloat = 50.0  # weight of its loss; the generator's is 1

    length: PositiveInt = Default(128)  # tokens per example
    batch_size: PositiveInt = 64  # examples per forward pass, over all replicas
    learning_rate: PositiveFloat = 5e-4  # peak, after the warm-up
    weight_decay: NonNegativeFloat = 0.01
    seed: Seed = 0  # for new weights, dropout, samples, the order of the examples and dynamic masks

    name: str = "pretrain_electra"  # the run's folder in runs_dir

    lengths: ClassVar[tuple[str, ...]] = ("length",)


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    if config.weights and (config.vocabulary or any(config.pick(*SHAPE).values())):
        raise ValueError("--weights has its own vocabulary and shape: leave out those options")
    if config.model not in kt.list_models("electra_*"):
        known = ", ".join(kt.list_models("electra_*"))
        raise ValueError(f"--model {config.model}: take one of {known}")
    schedule, options = config.schedule(), {"lengths": [config.length]}
    if config.weights:
        options["tokenizer"] = kt.convert.pretrained_tokenizer(config.weights, config.length)
    text = config.read()
    records = config.records or run.make_folder() / "records"
    examples = chief_first(lambda: config.make(text, records, **options))
    tokenizer = examples.tokenizer
    with run.scope():
        generator, discriminator = kt.convert.load_electra_pair(
            **config.pick("weights", "model", "generator_size", "dropout", "initializer_range"),
            shape=config.pick(*SHAPE),
            vocabulary_size=tokenizer.vocabulary_size,
            max_sequence_length=config.length,
        )
        model = kt.heads.electra_pretrainer(generator, discriminator)
        model.compile(
            optimizer=adamw(schedule, **config.pick("weight_decay", "clip_norm")),
            loss={"mask_logits": TokenCrossentropy(), "replaced": ReplacedTokenCrossentropy()},
            loss_weights={"mask_logits": 1.0, "replaced": config.discriminator_weight},
            weighted_metrics=metrics(),
            jit_compile=config.jit_compile,
        )
    batching = config.batching() | config.pick("dynamic_masking")
    batches, dev = (
        ReplacedTokenBatches(part, tokenizer.mask_token_id)
        for part in examples.batches(config.length, **batching)
    )
    tagger = kt.heads.replaced_token_tagger(discriminator)
    find = kt.pipelines.Tagger(tagger, tokenizer, ["original", "replaced"])
    model.fit(**run.prepare(model, batches, validation=dev, samples=find))

    last = run.epochs[-1]
    if is_chief():
        for folder, part in (("weights", discriminator), ("generator", generator)):
            kt.convert.save_weights(part, run.folder / folder, tokenizer, family="electra")
    figures = {
        "parameters": model.count_params(),
        "parameters, discriminator": discriminator.count_params(),
        "steps": int(model.optimizer.iterations.numpy()),
        "dev_mask_accuracy": last["val_mask_logits_accuracy"],
        "dev_mask_perplexity": last["val_mask_logits_perplexity"],
        "dev_replaced_accuracy": last["val_replaced_accuracy"],
        "dev_replaced_accuracy, none": 1 - last["val_replaced_share"],
        "dev_replaced_precision": last["val_replaced_precision"],
        "dev_replaced_recall": last["val_replaced_recall"],
    }
    return run.finish(find, figures)


def metrics() -> dict[str, list[keras.metrics.Metric]]:
    """Returns the metrics of each output."""
    return {
        "mask_logits": [TokenAccuracy("accuracy"), Perplexity()],
        "replaced": [
            ReplacedTokenAccuracy(),
            ReplacedTokenPrecision(name="precision"),
            ReplacedTokenRecall(name="recall"),
            ReplacedTokenShare(),
        ],
    }


if __name__ == "__main__":
    command_line(main, Config)
