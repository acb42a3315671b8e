"""Writes models that no pipeline serves as they are, such as one with both pretraining heads."""

import os
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.families import family_named
from keras_transformers.convert.formats.tokenizer_files import write_tokenizers
from keras_transformers.models.anatomy import anatomy

__all__ = ["save_weights"]


def save_weights(
    model: keras.Model, folder: str | os.PathLike[str], *tokenizers: Any, family: str
) -> None:
    """Writes a model in Hugging Face's layout, for `load`, recipes and `from_pretrained`.

    A pipeline is better saved by `keras_transformers.save`, which also writes its task and options.

    Args:
        model: a model of the family, with any of its heads.
        folder: gets model.safetensors, config.json, the vocabulary and tokenizer_config.json.
        tokenizers: the model's tokenizer; of a translator, the sources' and the targets'.
        family: the family's `model_type` in config.json, such as "bert".

    Raises:
        ValueError: the model is of another family, or its embeddings are fewer than the tokenizer's
            tokens.

    Example:
        kt.convert.save_weights(model, "weights/", tokenizer, family="bert")
    """
    known, folder = family_named(family), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ids: dict[str, Any] = {}
    if tokenizers:
        size = anatomy(model, "token_embedding").token_embedding.input_dim
        found = max(tokenizer.vocabulary_size for tokenizer in tokenizers)
        if found > size:
            raise ValueError(
                f"the tokenizer has {found} tokens, but model {model.name!r} embeds {size}: give "
                "the tokenizer that belongs to the model"
            )
        names = ("tokenizer", "target_tokenizer")
        assert known.writer is not None
        ids = write_tokenizers(
            dict(zip(names, tokenizers, strict=False)), folder, known.writer, None
        )
    known.save(model, folder / "model.safetensors")
    known.save_config(model, folder / "config.json", **ids)
