"""Text to token ids and back, inside the TensorFlow graph, and the training of vocabularies.

`WordPieceTokenizer` for BERT's vocabularies, `SentencePieceTokenizer` for translation,
`CharacterTokenizer` for ELMo, `NgramTokenizer` for fastText, `BytePairTokenizer` for GPT-2,
`SymbolTokenizer` for letters and phonemes. They run the same in Python, in tf.data and in a
SavedModel under TF Serving.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_transformers.tokenizers.byte_pair import BytePairTokenizer
    from keras_transformers.tokenizers.characters import CharacterTokenizer
    from keras_transformers.tokenizers.ngrams import NgramTokenizer
    from keras_transformers.tokenizers.sentencepiece import SentencePieceTokenizer
    from keras_transformers.tokenizers.symbols import SymbolTokenizer
    from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

# Where the public names are. Looked up when first used: the modules import TensorFlow.
_MODULES = {
    "BytePairTokenizer": "byte_pair",
    "CharacterTokenizer": "characters",
    "NgramTokenizer": "ngrams",
    "SentencePieceTokenizer": "sentencepiece",
    "SymbolTokenizer": "symbols",
    "WordPieceTokenizer": "wordpiece",
}
__all__ = [
    "BytePairTokenizer",
    "CharacterTokenizer",
    "NgramTokenizer",
    "SentencePieceTokenizer",
    "SymbolTokenizer",
    "WordPieceTokenizer",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
