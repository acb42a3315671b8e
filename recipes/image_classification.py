"""Image classification: trains a Vision Transformer on PNG or JPEG images.

Paper:   Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929
Data:    scikit-learn's digits (1,797 of 8 x 8 pixels; a random fifth, chosen by the seed, is the
         test set); IDX files like MNIST's (Fashion-MNIST: Debian's package dataset-fashion-mnist);
         or PNG and JPEG files, one folder per class
Command: python recipes/image_classification.py --epochs 120 --rotation 8 --zoom 0.08 --seed 0
         python recipes/image_classification.py --data fashion-mnist --batch-size 64
             --learning-rate 1.5e-3 --patch-size 1 --stem-filters 64 128 128 --hidden-dim 96
             --epochs 24 --flip --static-shapes 1
Cost:    7 to 10 minutes on one thread of a busy machine; Fashion-MNIST 32
Score:   digits, accuracy on the test set: mean 0.9861 of seeds 0, 1, 2 (417b50f)
         Fashion-MNIST, accuracy on the test set: 0.9291, 0.9294, 0.9314 with seeds 0, 1, 2, 685,034
         parameters (7b1e65f); with --stem-filters 32 64 --epochs 20 and the default width 0.9230,
         227,050 parameters (4dfcf23)
"""

import dataclasses
from pathlib import Path
from typing import Any, Self

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.images import ImageBatches, ImageFiles
from keras_transformers.fitting import reports_on, set_confidence
from keras_transformers.ranges import (
    Default,
    PositiveFloat,
    PositiveInt,
)
from keras_transformers.runs import Run, command_line
from keras_transformers.tasks import ImageClassificationOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(ImageFiles, ImageClassificationOptions):
    """Trains a Vision Transformer to classify images."""

    weights: Path | None = None  # a ViT to fine-tune: anything that keras_transformers.load reads
    model: str | None = None  # instead: one of `keras-transformers list 'vit_*'`, random weights
    patch_size: PositiveInt = 2  # this and the next five: shape of a new model
    num_layers: PositiveInt = 4
    num_heads: PositiveInt = 4
    hidden_dim: PositiveInt = 64
    stem_filters: tuple[
        PositiveInt, ...
    ] = ()  # widths of convolutions before the patches, stride 2
    position_range: PositiveFloat = 0.5  # standard deviation of the initial position embeddings

    name: str = "image_classification"  # the run's folder in runs_dir

    def fitted(self) -> Self:
        """Returns the options; images have the size of the weights' unless the user sets it."""
        if not self.weights:
            return self
        inputs = kt.convert.find_weights(self.weights).build().input
        if "images" not in inputs:  # loading them says why
            return self
        height, width, channels = inputs["images"].shape[1:]
        own = {"num_channels": self.num_channels or channels}
        if isinstance(self.image_size, Default) and height == width:
            own["image_size"] = Default(height)
        return dataclasses.replace(self, **own)

    def check(self) -> None:
        """Checks the options before any data is read."""
        if self.weights and self.model:
            raise ValueError("give either --weights FOLDER or --model NAME")
        if self.stem_filters and (self.weights or self.model):
            raise ValueError("--stem-filters: only a new model has them, not --weights or --model")
        super().check()


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    size, channels = config.image_size, config.num_channels or 3
    decoder = kt.pipelines.ImageDecoder((size, size), channels)
    train, dev, test = config.read_images(decoder, seed=config.seed)
    with run.scope():
        model = build(config, train.shape, len(train.label_names))
        batches = ImageBatches(
            train,
            mean_length=kt.models.anatomy.anatomy(model).max_sequence_length,
            **config.batching(),
        )
        smoothing = config.pick("label_smoothing")
        crossentropy = keras.losses.CategoricalCrossentropy(from_logits=True, **smoothing)
        model.compile(
            optimizer=config.optimizer(model, len(batches)),
            loss={"logits": crossentropy},
            weighted_metrics={"logits": [keras.metrics.CategoricalAccuracy(name="accuracy")]},
            jit_compile=config.jit_compile,
        )
    print(f"{len(train)} images to train, {len(dev)} dev, {len(test)} test: {train.shape} each")
    print(f"{model.name}: {model.count_params():,} parameters")
    model.fit(**run.prepare(model, batches, validation=batches.of(dev), monitor="val_accuracy"))
    reached = run.epochs[-1]
    if config.monitor:  # otherwise the last epoch is kept, as for ViT
        run.load_best()
        reached = run.best_figures

    scores = model.evaluate(batches.of(test).dataset(), return_dict=True, verbose=0)
    figures = {
        "test_accuracy": scores["accuracy"],
        "test_majority": test.majority_share,
        "dev_accuracy": reached["val_accuracy"],
        "labels": list(train.label_names),
        "num_parameters": model.count_params(),
    }
    height, width, channels = train.shape
    decoder = kt.pipelines.ImageDecoder((height, width), channels)
    classify = kt.pipelines.ImageClassifier(model, decoder, train.label_names)
    figures |= set_confidence(classify, batches.of(dev), dev, config)
    reports = reports_on(classify, batches, dev=dev, test=test)
    return run.finish(classify, figures, reports=reports)


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
        encoder = kt.families.vit.vit(**options, **shape)
    return kt.heads.classifier(encoder, num_classes, dropout=config.dropout)


if __name__ == "__main__":
    command_line(main, Config)
