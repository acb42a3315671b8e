"""CamemBERT: Martin et al. 2020, "CamemBERT: a Tasty French Language Model".

RoBERTa's layers with a French vocabulary; `families.roberta` builds them.
"""

import functools

from keras_transformers.families.roberta.model import num_parameters, roberta
from keras_transformers.models.entry import Entry, named_factory

__all__ = [
    "SIZES",
]

_PAPER = "Martin et al. 2020, https://arxiv.org/abs/1911.03894"
_VOCABULARY_SIZE = 32005

SIZES: dict[str, dict[str, int]] = {
    "camembert_base": {"num_layers": 12, "num_heads": 12, "hidden_dim": 768},
    "camembert_large": {"num_layers": 24, "num_heads": 16, "hidden_dim": 1024},
}

_NUM_PARAMETERS = {"camembert_base": 110_621_952, "camembert_large": 336_661_504}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            roberta,
            name,
            {**size, "vocabulary_size": _VOCABULARY_SIZE},
            summary=f"CamemBERT with {size['num_layers']} layers, {size['num_heads']} heads and "
            f"width {size['hidden_dim']}, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPER,
        symbols={
            "V": _VOCABULARY_SIZE,
            "P": 512,
            "H": size["hidden_dim"],
            "I": 4 * size["hidden_dim"],
        },
        count=functools.partial(
            num_parameters,
            vocabulary_size=_VOCABULARY_SIZE,
            num_layers=size["num_layers"],
            hidden_dim=size["hidden_dim"],
        ),
    )
    for name, size in SIZES.items()
}
