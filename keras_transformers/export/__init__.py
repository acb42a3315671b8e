"""SavedModels that TF Serving takes as they are: text in, answer out, nothing of ours needed.

`classifier`, `embedder`, `fill_mask`, `generator`, `image_classifier`, `next_sentence`,
`question_answerer`, `regressor`, `tagger`, `translator` and `word_embedder` write one; `predict`
runs any, `Predictor` keeps it loaded. Everything goes through `saved_model.write`: named, typed
signatures, and a version folder that appears whole or not at all, after its answers were checked in
a fresh process.

Of an export, anybody's: `description` tells what it is, `audit` whether TF Serving takes it,
`publishing` puts it where TF Serving looks for it and takes it back, `warm_up` and `serving_config`
write the files that TF Serving is started with.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_transformers.export.classification import classifier
    from keras_transformers.export.embedding import embedder
    from keras_transformers.export.generation import generator
    from keras_transformers.export.images import image_classifier
    from keras_transformers.export.masked_language import fill_mask
    from keras_transformers.export.next_sentences import next_sentence
    from keras_transformers.export.prediction import Predictor, predict
    from keras_transformers.export.question_answering import question_answerer
    from keras_transformers.export.regression import regressor
    from keras_transformers.export.tagging import tagger
    from keras_transformers.export.translation import translator
    from keras_transformers.export.word_vectors import word_embedder

# Where the public names are. Looked up when first used: the modules import TensorFlow. No module
# may be called like a function, or importing it would hide the function.
_MODULES = {
    "Predictor": "prediction",
    "classifier": "classification",
    "embedder": "embedding",
    "fill_mask": "masked_language",
    "generator": "generation",
    "image_classifier": "images",
    "next_sentence": "next_sentences",
    "predict": "prediction",
    "question_answerer": "question_answering",
    "regressor": "regression",
    "tagger": "tagging",
    "translator": "translation",
    "word_embedder": "word_vectors",
}
__all__ = [
    "Predictor",
    "classifier",
    "embedder",
    "fill_mask",
    "generator",
    "image_classifier",
    "next_sentence",
    "predict",
    "question_answerer",
    "regressor",
    "tagger",
    "translator",
    "word_embedder",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
