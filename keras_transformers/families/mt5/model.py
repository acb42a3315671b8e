"""mT5: Xue et al. 2021, "mT5: A Massively Multilingual Pre-trained Text-to-Text Transformer".

T5 1.1 with a vocabulary for 101 languages; `families.t5` builds it.
"""

from typing import Any

from keras_transformers.families.t5.model import V1_1, size_of, t5_entry

__all__ = ["SIZES"]

_PAPER = "Xue et al. 2021, https://arxiv.org/abs/2010.11934"
_VOCABULARY_SIZE = 250112

SIZES: dict[str, dict[str, Any]] = {
    "mt5_small": size_of(8, 6, 512, 1024) | V1_1,
    "mt5_base": size_of(12, 12, 768, 2048) | V1_1,
    "mt5_large": size_of(24, 16, 1024, 2816) | V1_1,
    "mt5_xl": size_of(24, 32, 2048, 5120) | V1_1,
    "mt5_xxl": size_of(24, 64, 4096, 10240) | V1_1,
}

# The exact count and the paper's (section 3.2).
_COUNTS = {
    "mt5_small": (300_176_768, "300M"),
    "mt5_base": (582_401_280, "580M"),
    "mt5_large": (1_229_581_312, "1.2B"),
    "mt5_xl": (3_742_619_648, "3.7B"),
    "mt5_xxl": (12_921_057_280, "13B"),
}

MODELS = {
    name: t5_entry(
        name,
        size,
        title="mT5",
        paper=_PAPER,
        exact=_COUNTS[name][0],
        vocabulary_size=_VOCABULARY_SIZE,
        paper_figure=_COUNTS[name][1],
    )
    for name, size in SIZES.items()
}
