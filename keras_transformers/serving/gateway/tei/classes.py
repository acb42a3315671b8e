"""Classifies texts by the signature of TF Serving's Classify API, which names all labels."""

from collections.abc import Sequence

import numpy as np

from keras_transformers.serving.gateway.backend import Model
from keras_transformers.serving.gateway.refusals import refusal
from keras_transformers.serving.protocol.examples import text_example
from keras_transformers.serving.protocol.floats import shorten_floats
from keras_transformers.serving.protocol.signatures import DEFAULT_SIGNATURE

_CLASSIFY = "classify"
_TEXTS = ("text", "text_b")  # the features of an example


def classified(model: Model) -> bool:
    """Returns whether a model classifies texts."""
    default = model.signatures.get(DEFAULT_SIGNATURE)
    return (
        _CLASSIFY in model.signatures and default is not None and set(default.inputs) <= {*_TEXTS}
    )


async def label_scores(
    model: Model, rows: Sequence[Sequence[str]], field: str
) -> list[list[tuple[str, float]]]:
    """Returns the (label, probability) of each label of each row, in the model's order.

    Args:
        model: a model that classifies texts.
        rows: a text, or a pair of texts.
        field: the request's field that has them.

    Raises:
        RefusalError: a row is a pair but the model reads single texts, or the reverse.
    """
    wanted = len(model.signatures[DEFAULT_SIGNATURE].inputs)
    examples = np.empty(len(rows), object)
    for index, row in enumerate(rows):
        if len(row) != wanted:
            raise refusal(
                f"{field}: row {index} has {len(row)} texts, but model {model.name!r} reads "
                f"{wanted}: send {'[text, text]' if wanted == 2 else 'single texts'}",
                field=field,
            )
        examples[index] = text_example(dict(zip(_TEXTS, row, strict=False)))
    answers = await model.rows(_CLASSIFY, {"inputs": examples})
    return [
        list(zip(answer["classes"], shorten_floats(answer["scores"]), strict=True))
        for answer in answers
    ]
