"""Classification of images: trains a Vision Transformer, PNG or JPEG in, label out.

Paper:   Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929
Data:    scikit-learn's digits (1,797 of 8 x 8 pixels; a random fifth, chosen by the seed, is the
         test set); IDX files like MNIST's (Fashion-MNIST: Debian's package dataset-fashion-mnist);
         or PNG and JPEG files, one folder per class
Command: python recipes/image_classification.py --epochs 120 --rotation 8 --zoom 0.08 --seed 0
Cost:    7 to 10 minutes on one thread of a busy machine; Fashion-MNIST 32 on one (the last row)
Score:   digits, accuracy on the test set with seeds 0, 1, 2 (417b50f): 0.9861, 0.9889, 0.9833,
         mean 0.9861; without these options 0.9777, 0.9889, 0.9805, mean 0.9824; --position-range
         0.02 --epochs 100 (88e91e4): mean 0.9731
         Fashion-MNIST's test set, seed 0, with --data fashion-mnist --batch-size 64 --learning-rate
         1.5e-3 and --patch-size 4 --epochs 24 --position-range 0.02 (b6663d9): 0.9160 (205,066
         parameters), without shifts and smoothing (--crop-padding 0 --label-smoothing 0 --epochs
         13) 0.8894; with --patch-size 1 --stem-filters 32 64 --epochs 20 --flip --static-shapes 1
         (4dfcf23): 0.9230 (227,050 parameters); with --stem-filters 64 128 128 --hidden-dim 96
         --epochs 24 instead, seeds 0, 1, 2 (7b1e65f): 0.9291, 0.9294, 0.9314 (685,034)
"""

import dataclasses
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.images import ImageBatches, ImageFiles
from keras_transformers.ranges import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Rate,
    Seed,
    Share,
)
from keras_transformers.runs import Options, Run, command_line
from keras_transformers.training import WarmupCosineDecay, adamw


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(ImageFiles, Options):
    """Trains a Vision Transformer to classify images."""

    weights: Path | None = None  # a ViT to fine-tune: whatever keras_transformers.load takes
    model: str | None = None  # instead: one of `keras-transformers list 'vit_*'`, random weights
    patch_size: PositiveInt = 2  # shape of a new model: this and the next five
    num_layers: PositiveInt = 4
    num_heads: PositiveInt = 4
    hidden_dim: PositiveInt = 64
    stem_filters: tuple[
        PositiveInt, ...
    ] = ()  # widths of convolutions before the patches, stride 2
    position_range: PositiveFloat = 0.5  # standard deviation of its first position embeddings

    epochs: PositiveInt = 60
    batch_size: PositiveInt = 32
    learning_rate: PositiveFloat = 3e-3  # the highest, after the warm-up; then half a cosine to 0
    warmup_fraction: Share = 0.1  # of all updates
    weight_decay: NonNegativeFloat = 0.05
    clip_norm: PositiveFloat = 1.0
    dropout: Rate = 0.0  # in the encoder and before the classifier
    label_smoothing: Rate = 0.1
    seed: Seed = 0  # for the split, new weights, dropout, order and augmentation

    name: str = "image_classification"  # the run's folder in runs_dir

    def check(self) -> None:
        """Checks what costs nothing to check, before anything is read."""
        if self.weights and self.model:
            raise ValueError("give either --weights FOLDER or --model NAME")
        if self.stem_filters and (self.weights or self.model):
            raise ValueError("--stem-filters: only a new model has them, not --weights or --model")
        super().check()


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    decoder = kt.pipelines.ImageDecoder((config.image_size, config.image_size), config.num_channels)
    train, dev, test = config.read_images(decoder, seed=config.seed)
    with run.scope():
        model = build(config, train.shape, len(train.label_names))
        batches = ImageBatches(
            train,
            mean_length=kt.models.anatomy.anatomy(model).max_sequence_length,
            augmentation=config.augmentation(),
            **config.pick("batch_size", "accumulate", "seed", "static_shapes"),
        )
        smoothing = config.pick("label_smoothing")
        crossentropy = keras.losses.CategoricalCrossentropy(from_logits=True, **smoothing)
        model.compile(
            optimizer=optimizer(config, num_updates=config.epochs * len(batches)),
            loss={"logits": crossentropy},
            weighted_metrics={"logits": [keras.metrics.CategoricalAccuracy(name="accuracy")]},
            jit_compile=config.jit_compile,
        )
    print(f"{len(train)} images to train, {len(dev)} dev, {len(test)} test: {train.shape} each")
    print(f"{model.name}: {model.count_params():,} parameters")
    model.fit(**run.prepare(model, batches, validation=batches.of(dev), monitor="val_accuracy"))

    scores = model.evaluate(batches.of(test).dataset(), return_dict=True, verbose=0)
    figures = {
        "test_accuracy": scores["accuracy"],
        "test_majority": test.majority_share,
        "dev_accuracy": run.epochs[-1]["val_accuracy"],
        "labels": list(train.label_names),
        "num_parameters": model.count_params(),
    }
    height, width, channels = train.shape
    decoder = kt.pipelines.ImageDecoder((height, width), channels)
    return run.finish(kt.pipelines.ImageClassifier(model, decoder, train.label_names), figures)


def build(config: Config, image_shape: tuple[int, int, int], num_classes: int) -> keras.Model:
    """Returns the encoder, pretrained or not, with a classifier on top."""
    height, width, channels = image_shape
    shape: dict[str, Any] = {
        "image_size": (height, width),
        "num_channels": channels,
        "dropout": config.dropout,
    }
    if config.weights:
        encoder = kt.convert.load_image_encoder(config.weights, **shape)
    elif config.model:
        encoder = kt.create_model(config.model, **shape)
    else:
        names = ("patch_size", "num_layers", "num_heads", "hidden_dim", "position_range")
        options = config.pick(*names, "stem_filters")
        encoder = kt.models.vit.vit(**options, **shape)
    return kt.heads.classifier(encoder, num_classes, dropout=config.dropout)


def optimizer(config: Config, *, num_updates: int) -> keras.optimizers.Optimizer:
    """Returns AdamW; the learning rate warms up, then follows half a cosine to 0."""
    schedule = WarmupCosineDecay(
        config.learning_rate,
        warmup_steps=round(config.warmup_fraction * num_updates),
        total_steps=num_updates,
    )
    return adamw(schedule, weight_decay=config.weight_decay, clip_norm=config.clip_norm)


if __name__ == "__main__":
    command_line(main, Config)
