"""Tiny models and pipelines of each text task, with weights so large that every input matters."""

import keras
import numpy as np

from keras_transformers import heads
from keras_transformers.families.bert import model as bert
from keras_transformers.families.fasttext import model as fasttext
from keras_transformers.pipelines import (
    Embedder,
    MaskFiller,
    MultipleChoice,
    NextSentenceClassifier,
    TextClassifier,
    TextRegressor,
)
from keras_transformers.tokenizers import NgramTokenizer

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "film", "good", "bad", "long", "very", "##s", ".", "!"),
]


def lively_encoder(*, vocabulary_size=14, num_positions=16, seed=3):
    """Returns a BERT with one layer."""
    encoder = bert.bert(
        vocabulary_size=vocabulary_size,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        max_sequence_length=num_positions,
    )
    return enlivened(encoder, seed)


def lively_classifier(num_classes=2, *, seed=22, **arguments):
    """Returns a classifier on it."""
    return enlivened(heads.classifier(lively_encoder(**arguments), num_classes), seed)


def lively_chooser(**arguments):
    """Returns a model that scores choices on it."""
    return enlivened(heads.multiple_choice(lively_encoder(**arguments)), seed=7)


def lively_pretrainer(**arguments):
    """Returns it with both pretraining heads."""
    return enlivened(heads.pretrainer(lively_encoder(**arguments)), seed=4)


def in_bfloat16(make):
    """Returns the result of `make`, computing in bfloat16 with weights in float32."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        return make()
    finally:
        keras.config.set_dtype_policy("float32")


def enlivened(model: keras.Model, seed: int) -> keras.Model:
    """Returns the model with new random matrices and slightly changed vectors."""
    generator = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        scale = 0.7 if len(variable.shape) == 2 else 0.1
        variable.assign_add(generator.normal(0.0, scale, variable.shape))
    return model


def fasttext_tokenizer():
    """Returns a tokenizer of three words, with n-grams of words and of characters."""
    return NgramTokenizer(
        ["</s>", "a", "good", "film"],
        num_buckets=500,
        word_ngrams=2,
        min_characters=2,
        max_characters=4,
    )


def _classifier(tokenizer):
    return TextClassifier(lively_classifier(), tokenizer, ["negative", "positive"])


def _bfloat16(tokenizer):
    return TextClassifier(in_bfloat16(lively_classifier), tokenizer, ["negative", "positive"])


def _pair_classifier(tokenizer):
    labels = ["entailment", "neutral", "contradiction"]
    return TextClassifier(lively_classifier(3), tokenizer, labels, pair=True, max_sequence_length=9)


def _fasttext(_):
    tokenizer = fasttext_tokenizer()
    encoder = fasttext.fasttext(vocabulary_size=tokenizer.vocabulary_size, embedding_dim=6)
    model = enlivened(heads.classifier(encoder, 2, dropout=0.0), seed=5)
    return TextClassifier(model, tokenizer, ["negative", "positive"], max_sequence_length=200)


def _regressor(tokenizer):
    model = enlivened(heads.regressor(lively_encoder()), seed=5)
    return TextRegressor(model, tokenizer, pair=True, max_sequence_length=9, scale=2.5, offset=-1.0)


# Name -> function from the tokenizer of `VOCABULARY` to the pipeline.
PIPELINES = {
    "classification": _classifier,
    "bfloat16": _bfloat16,
    "pairs": _pair_classifier,
    "fasttext": _fasttext,
    "regression": _regressor,
    "multiple_choice": lambda tokenizer: MultipleChoice(lively_chooser(), tokenizer),
    "next_sentence": lambda tokenizer: NextSentenceClassifier(lively_pretrainer(), tokenizer),
    "embedding": lambda tokenizer: Embedder(lively_encoder(), tokenizer),
    "fill_mask": lambda tokenizer: MaskFiller(lively_pretrainer(), tokenizer, top_k=3),
}
