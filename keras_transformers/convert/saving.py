"""Saves models that no pipeline serves as they are, such as one with both pretraining heads."""

import os
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.families import families, family_named, tokenizer_writer
from keras_transformers.convert.family import Family
from keras_transformers.convert.formats.tokenizer_files import write_tokenizers
from keras_transformers.models.anatomy import anatomy

__all__ = ["save_weights"]


def save_weights(
    model: keras.Model, folder: str | os.PathLike[str], *tokenizers: Any, family: str | None = None
) -> None:
    """Writes a model in Hugging Face's layout, for `load`, recipes and `from_pretrained`.

    Save a pipeline with `keras_transformers.save` instead, which also writes its task and options.

    Args:
        model: a model of the family, with any of its heads.
        folder: gets model.safetensors, config.json, the vocabulary and tokenizer_config.json.
        tokenizers: the model's tokenizer; for a translator, the sources' and the targets'.
        family: the family's `model_type` in config.json, such as "bert". By default, the one that
            fits all the model's layers.

    Raises:
        ValueError: the model is of another family, or `family` is missing and several fit; it has
            fewer embeddings than the tokenizer has tokens; or transformers has no class for the
            tokenizer.

    Example:
        kt.convert.save_weights(model, "weights/", tokenizer, family="bert")
    """
    kind, folder = family_named(family) if family else _family_of(model), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ids: dict[str, Any] = {}
    if tokenizers:
        size = anatomy(model, "token_embedding").token_embedding.input_dim
        count = max(tokenizer.vocabulary_size for tokenizer in tokenizers)
        if count > size:
            raise ValueError(
                f"the tokenizer has {count} tokens, but model {model.name!r} embeds {size}: pass "
                "the tokenizer that belongs to the model"
            )
        names = ("tokenizer", "target_tokenizer")
        kinds = [type(tokenizer).__name__ for tokenizer in tokenizers]
        writer = tokenizer_writer(kind, *kinds)
        if writer is None:
            raise ValueError(
                f"family {kind.model_type!r}: transformers has no class for it with "
                f"{' and '.join(kinds)}: pass the family's own tokenizer"
            )
        ids = write_tokenizers(dict(zip(names, tokenizers, strict=False)), folder, writer, None)
    kind.save(model, folder / "model.safetensors")
    kind.save_config(model, folder / "config.json", **ids, **_pretraining_class(kind, model))


def _pretraining_class(family: Family, model: keras.Model) -> dict[str, Any]:
    """Returns config.json's field with the class of a pretrained encoder's heads, if any.

    Without it, `load` would not know that the file has these heads.
    """
    outputs = model.output if isinstance(model.output, dict) else {}
    if family.writer is None or "mask_logits" not in outputs:
        return {}
    end = "ForPreTraining" if "next_sentence_logits" in outputs else "ForMaskedLM"
    return {"architectures": [family.writer.class_for("fill_mask", end)]}


def _family_of(model: keras.Model) -> Family:
    candidates = [family for family in families() if family.fits(model)]
    if len(candidates) != 1:
        fit = ", ".join(family.model_type for family in candidates) or "none"
        raise ValueError(f"model {model.name!r} is of one of these families: {fit}: pass family=")
    return candidates[0]
