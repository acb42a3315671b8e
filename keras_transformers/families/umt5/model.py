"""UMT5: Chung et al. 2023, "UniMax: Fairer and More Effective Language Sampling ...".

mT5 whose every layer has its own relative positions; `families.t5` builds it.
"""

from typing import Any

from keras_transformers.families.t5.model import V1_1, size_of, t5_entry

__all__ = ["SIZES"]

_PAPER = "Chung et al. 2023, https://arxiv.org/abs/2304.09151"
_VOCABULARY_SIZE = 256384
_OWN = {**V1_1, "shared_position_bias": False}

SIZES: dict[str, dict[str, Any]] = {
    "umt5_small": size_of(8, 6, 512, 1024) | _OWN,
    "umt5_base": size_of(12, 12, 768, 2048) | _OWN,
    "umt5_xl": size_of(24, 32, 2048, 5120) | _OWN,
    "umt5_xxl": size_of(24, 64, 4096, 10240) | _OWN,
}

_NUM_PARAMETERS = {
    "umt5_small": 306_601_984,
    "umt5_base": 592_043_520,
    "umt5_xl": 3_768_356_864,
    "umt5_xxl": 12_972_531_712,
}

MODELS = {
    name: t5_entry(
        name,
        size,
        title="UMT5",
        paper=_PAPER,
        exact=_NUM_PARAMETERS[name],
        vocabulary_size=_VOCABULARY_SIZE,
    )
    for name, size in SIZES.items()
}
