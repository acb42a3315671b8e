"""An export of each kind, as small as can be, weights far from zero: for tests of all of them."""

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from keras_transformers import export
from keras_transformers.data.images.decoder import ImageDecoder
from keras_transformers.models import heads
from keras_transformers.models.bert import bert
from keras_transformers.models.elmo import elmo
from keras_transformers.models.gpt import gpt
from keras_transformers.models.transformer import transformer
from keras_transformers.models.vit import vit
from keras_transformers.tokenizers import (
    BytePairTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
)

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_WORDS = ["a", "film", "good", "bad", "long", "very", "##s", ".", "!"]
_LINES = ["a small dog runs", "two dogs are near the shore", "ein kleiner Hund läuft"] * 3


def _lively(model: keras.Model, seed: int = 3) -> keras.Model:
    generator = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        scale = 0.5 if len(variable.shape) > 1 else 0.1
        variable.assign_add(generator.normal(0.0, scale, variable.shape))
    return model


def _encoder() -> keras.Model:
    return bert(vocabulary_size=14, num_layers=1, num_heads=2, hidden_dim=8, max_sequence_length=16)


def _wordpiece() -> WordPieceTokenizer:
    return WordPieceTokenizer([*_SPECIAL, *_WORDS])


def _classifier(base: Path) -> Path:
    model = _lively(heads.classifier(_encoder(), 2))
    return export.classifier(model, _wordpiece(), ["negative", "positive"], base, check=False)


def _embedder(base: Path) -> Path:
    return export.embedder(_lively(_encoder()), _wordpiece(), base, check=False)


def _fill_mask(base: Path) -> Path:
    model = _lively(heads.pretrainer(_encoder()))
    return export.fill_mask(model, _wordpiece(), base, top_k=3, check=False)


def _generator(base: Path) -> Path:
    tokenizer = BytePairTokenizer.train(_LINES, base.with_suffix(".bpe"), vocabulary_size=270)
    model = gpt(
        vocabulary_size=270, num_layers=1, num_heads=2, hidden_dim=16, max_sequence_length=48
    )
    return export.generator(_lively(model), tokenizer, base, max_length=4, check=False)


def _image_classifier(base: Path) -> Path:
    encoder = vit(patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, image_size=(8, 12))
    model = _lively(heads.classifier(encoder, 2))
    return export.image_classifier(model, ImageDecoder((8, 12)), ["a", "b"], base, check=False)


def _next_sentence(base: Path) -> Path:
    model = _lively(heads.pretrainer(_encoder()))
    return export.next_sentence(model, _wordpiece(), base, check=False)


def _question_answerer(base: Path) -> Path:
    model = _lively(heads.span_extractor(_encoder()))
    lengths = {"max_sequence_length": 16, "doc_stride": 3, "max_question_length": 4}
    return export.question_answerer(model, _wordpiece(), base, **lengths, check=False)


def _regressor(base: Path) -> Path:
    model = _lively(heads.regressor(_encoder()))
    return export.regressor(model, _wordpiece(), base, pair=True, check=False)


def _tagger(base: Path) -> Path:
    model = _lively(heads.tagger(_encoder(), 3))
    return export.tagger(model, _wordpiece(), ["O", "B-X", "I-X"], base, check=False)


def _translator(base: Path) -> Path:
    base.parent.mkdir(parents=True, exist_ok=True)
    text = base.with_suffix(".txt")
    text.write_text("\n".join(_LINES), "utf-8")
    tokenizer = SentencePieceTokenizer.train([text], base.with_suffix(".m"), vocabulary_size=290)
    model = transformer(
        vocabulary_size=290,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=16,
        max_sequence_length=24,
        norm_position="pre",
    )
    options = {"max_sequence_length": 24, "num_beams": 2, "extra_length": 5}
    return export.translator(_lively(model), tokenizer, base, **options, check=False)


def _word_embedder(base: Path) -> Path:
    model = elmo(
        lstm_dim=10, projection_dim=6, num_highways=1, filters=[(1, 4), (3, 5)], character_dim=4
    )
    return export.word_embedder(_lively(model), base, check=False)


# Name of the function of `keras_transformers.export` -> makes such an export at a BASE.
EXPORTERS: dict[str, Callable[[Path], Path]] = {
    "classifier": _classifier,
    "embedder": _embedder,
    "fill_mask": _fill_mask,
    "generator": _generator,
    "image_classifier": _image_classifier,
    "next_sentence": _next_sentence,
    "question_answerer": _question_answerer,
    "regressor": _regressor,
    "tagger": _tagger,
    "translator": _translator,
    "word_embedder": _word_embedder,
}
