"""XLM-RoBERTa: Conneau et al. 2019, "Unsupervised Cross-lingual Representation Learning at Scale".

RoBERTa's layers with a vocabulary for 100 languages; `models.roberta` builds them.
"""

import functools

from keras_transformers.families.roberta.model import num_parameters, roberta
from keras_transformers.models.entry import Entry, named_factory

__all__ = [
    "SIZES",
]

_PAPER = "Conneau et al. 2019, https://arxiv.org/abs/1911.02116"
_VOCABULARY_SIZE = 250002

SIZES: dict[str, dict[str, int]] = {
    "xlm_roberta_base": {"num_layers": 12, "num_heads": 12, "hidden_dim": 768},
    "xlm_roberta_large": {"num_layers": 24, "num_heads": 16, "hidden_dim": 1024},
}

_NUM_PARAMETERS = {"xlm_roberta_base": 278_043_648, "xlm_roberta_large": 559_890_432}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            roberta,
            name,
            {**size, "vocabulary_size": _VOCABULARY_SIZE},
            summary=f"XLM-RoBERTa with {size['num_layers']} layers, {size['num_heads']} heads and "
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
