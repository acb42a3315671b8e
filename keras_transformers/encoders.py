"""An encoder with its tokenizer, as recipes ask for them: pretrained from files, or new by name."""

from pathlib import Path

import keras

from keras_transformers.convert import load_bert, read_bert_config
from keras_transformers.models.bert import bert
from keras_transformers.registry import create_model
from keras_transformers.tokenizers import WordPieceTokenizer


def load_encoder(
    *,
    weights: Path | None = None,
    model: str | None = None,
    vocabulary: Path | None = None,
    lowercase: bool = True,
    dropout: float = 0.1,
) -> tuple[keras.Model, WordPieceTokenizer]:
    """A BERT encoder and the tokenizer whose ids it reads.

    Args:
        weights: folder in Hugging Face's layout, pretrained: config.json, model.safetensors and
            vocab.txt. The heads of its own pretraining are left behind.
        model: instead, a name of `keras-transformers list 'bert_*'`, with random weights.
        vocabulary: vocab.txt for `model`; `weights` bring their own.
        lowercase: False for cased vocabularies.
        dropout: in the encoder and its attention.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: neither kind is asked for, or both; or what the files hold does not fit.
    """
    rates = {"dropout": dropout, "attention_dropout": dropout}
    if weights and not model and not vocabulary:
        encoder = bert(**(read_bert_config(weights) | rates))
        tokenizer = WordPieceTokenizer(weights / "vocab.txt", lowercase=lowercase)
        load_bert(encoder, weights, ignore=["cls.*"])
    elif model and vocabulary and not weights:
        tokenizer = WordPieceTokenizer(vocabulary, lowercase=lowercase)
        encoder = create_model(model, vocabulary_size=tokenizer.vocabulary_size, **rates)
    else:
        raise ValueError("give either --weights FOLDER, or --model NAME and --vocabulary FILE")
    return encoder, tokenizer
