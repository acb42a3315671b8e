"""A tiny pipeline of each task, weights far from zero: for tests of what holds for all of them.

Pipelines are made once per process, their exports once for all processes of a test session, when
a test first asks for one.
"""

import fcntl
import functools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.families.bert.model import bert
from keras_transformers.families.elmo.model import elmo
from keras_transformers.families.gpt.model import gpt
from keras_transformers.families.transformer.model import transformer
from keras_transformers.families.vit.model import vit
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tokenizers import (
    BytePairTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
)

VOCABULARY = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "film", "good", "bad", "long", "very", "##s", ".", "!"),
)
LINES = ["a small dog runs", "two dogs are near the shore", "ein kleiner Hund läuft"] * 3


def lively(model: keras.Model, seed: int = 3) -> keras.Model:
    """The model with weights far from zero, the same ones every time: every input matters."""
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(random.normal(0.0, 0.5, variable.shape))
        else:  # the vectors start at 0 or 1
            variable.assign_add(random.normal(0.0, 0.1, variable.shape))
    return model


def encoder(vocabulary_size: int = len(VOCABULARY)) -> keras.Model:
    """A BERT of one layer and 16 positions."""
    return bert(
        vocabulary_size=vocabulary_size,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        max_sequence_length=16,
    )


def seq2seq(**options) -> keras.Model:
    """A recurrent model; `options` are those of `kt.seq2seq_multi30k`, without that one's sizes."""
    plain = {"cell": "gru", "readout_dim": None, "encoder_hidden_dim": None, "name": "seq2seq"}
    return kt.seq2seq_multi30k(**(plain | options))


def tokenizer_json(*, lowercase: bool = True) -> dict:
    """What the `tokenizers` library writes of the vocabulary, as in folders of transformers."""
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {token: token_id for token_id, token in enumerate(VOCABULARY)},
    }
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 0, "content": "[PAD]", **flags, "special": True}],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": None,
        "model": model,
    }


@functools.cache
def wordpiece() -> WordPieceTokenizer:
    """The tokenizer of `VOCABULARY`."""
    return WordPieceTokenizer(list(VOCABULARY))


@functools.cache
def byte_pairs() -> BytePairTokenizer:
    """270 byte pairs of `LINES`."""
    with tempfile.TemporaryDirectory() as folder:
        return BytePairTokenizer.train(LINES, Path(folder, "vocabulary"), vocabulary_size=270)


@functools.cache
def sentence_pieces() -> SentencePieceTokenizer:
    """290 sentence pieces of `LINES`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text").write_text("\n".join(LINES), "utf-8")
        return SentencePieceTokenizer.train(
            [Path(folder, "text")], Path(folder, "model"), vocabulary_size=290
        )


def _classifier() -> Pipeline:
    model = lively(heads.classifier(encoder(), 2))
    return kt.pipelines.TextClassifier(model, wordpiece(), ["negative", "positive"])


def _multi_label_classifier() -> Pipeline:
    model = lively(heads.classifier(encoder(), 3))
    return kt.pipelines.MultiLabelClassifier(
        model, wordpiece(), ["joy", "anger", "surprise"], thresholds=[0.275, 0.3, 0.7]
    )


def _regressor() -> Pipeline:
    model = lively(heads.regressor(encoder()))
    return kt.pipelines.TextRegressor(model, wordpiece(), pair=True)


def _next_sentence_classifier() -> Pipeline:
    return kt.pipelines.NextSentenceClassifier(lively(heads.pretrainer(encoder())), wordpiece())


def _multiple_choice() -> Pipeline:
    return kt.pipelines.MultipleChoice(lively(heads.multiple_choice(encoder())), wordpiece())


def _embedder() -> Pipeline:
    return kt.pipelines.Embedder(lively(encoder()), wordpiece())


def _sparse_embedder() -> Pipeline:
    return kt.pipelines.SparseEmbedder(lively(heads.sparse_embedder(encoder())), wordpiece())


def _mask_filler() -> Pipeline:
    return kt.pipelines.MaskFiller(lively(heads.pretrainer(encoder())), wordpiece(), top_k=3)


def _reranker() -> Pipeline:
    return kt.pipelines.Reranker(lively(heads.regressor(encoder())), wordpiece())


def _zero_shot_classifier() -> Pipeline:
    labels = ["contradiction", "neutral", "entailment"]
    return kt.pipelines.ZeroShotClassifier(
        lively(heads.classifier(encoder(), 3)), wordpiece(), labels
    )


def _late_interaction() -> Pipeline:
    return kt.pipelines.LateInteraction(
        lively(heads.token_embedder(encoder(), width=6)),
        wordpiece(),
        query_length=8,
        document_length=12,
        query_expansion="unattended",
        skipped_tokens=[".", "!", "?"],
    )


def _tagger() -> Pipeline:
    model = lively(heads.tagger(encoder(), 3))
    return kt.pipelines.Tagger(model, wordpiece(), ["O", "B-X", "I-X"])


def _question_answerer() -> Pipeline:
    return kt.pipelines.QuestionAnswerer(
        lively(heads.span_extractor(encoder())),
        wordpiece(),
        max_sequence_length=16,
        doc_stride=3,
        max_question_length=4,
    )


def _translator() -> Pipeline:
    tokenizer = sentence_pieces()
    model = transformer(
        vocabulary_size=tokenizer.vocabulary_size,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=16,
        max_sequence_length=16,
        norm_position="pre",
    )
    return kt.pipelines.Translator(lively(model), tokenizer, num_beams=3, extra_length=5)


def _text_generator() -> Pipeline:
    tokenizer = byte_pairs()
    model = gpt(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        max_sequence_length=24,
    )
    return kt.pipelines.TextGenerator(lively(model), tokenizer, max_length=4, top_k=0)


def _word_embedder() -> Pipeline:
    model = elmo(
        lstm_dim=10, projection_dim=6, num_highways=1, filters=[(1, 4), (3, 5)], character_dim=4
    )
    return kt.pipelines.WordEmbedder(lively(model))


def _image_classifier() -> Pipeline:
    from keras_transformers.tasks.image_classification.pipeline import ImageDecoder

    of_images = vit(patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, image_size=(8, 12))
    model = lively(heads.classifier(of_images, 2))
    return kt.pipelines.ImageClassifier(model, ImageDecoder((8, 12)), ["a", "b"])


@functools.cache
def talker() -> Pipeline:
    """A Llama of letters with SmolLM2's chat template, which answers with the likeliest tokens."""
    return fresh_talker()


def fresh_talker() -> Pipeline:
    """A `talker` of its own, to train."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    described = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    described.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    described.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer = kt.tokenizers.DescribedTokenizer(
        json.loads(described.to_str()), start_token="<|im_start|>", end_token="<|im_end|>"
    )
    model = kt.families.llama.llama(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=1,
        num_heads=2,
        num_key_value_heads=1,
        hidden_dim=16,
        intermediate_dim=16,
        max_sequence_length=600,
    )
    return kt.pipelines.TextGenerator(
        lively(model), tokenizer, max_length=12, top_k=1, chat_template="smollm2"
    )


_MAKERS: dict[str, Callable[[], Pipeline]] = {
    "classification": _classifier,
    "embedding": _embedder,
    "fill_mask": _mask_filler,
    "generation": _text_generator,
    "image_classification": _image_classifier,
    "late_interaction": _late_interaction,
    "multi_label_classification": _multi_label_classifier,
    "multiple_choice": _multiple_choice,
    "next_sentence": _next_sentence_classifier,
    "question_answering": _question_answerer,
    "regression": _regressor,
    "reranking": _reranker,
    "sparse_embedding": _sparse_embedder,
    "tagging": _tagger,
    "translation": _translator,
    "word_embedding": _word_embedder,
    "zero_shot_classification": _zero_shot_classifier,
}
# Wide enough for the forms of exports that replace matrices: int8, and float32 in panels.
_WIDE = {"num_layers": 2, "num_heads": 2, "hidden_dim": 64, "max_sequence_length": 64}


def wide_mask_filler() -> Pipeline:
    """BERT's masked words, 64 wide and 72 inside."""
    tokenizer = wordpiece()
    encoder = bert(vocabulary_size=tokenizer.vocabulary_size, intermediate_dim=72, **_WIDE)
    return kt.pipelines.MaskFiller(heads.pretrainer(lively(encoder)), tokenizer, top_k=3)


def wide_generator() -> Pipeline:
    """GPT-2, 64 wide."""
    tokenizer = byte_pairs()
    model = lively(gpt(vocabulary_size=tokenizer.vocabulary_size, **_WIDE))
    return kt.pipelines.TextGenerator(model, tokenizer, max_length=5, top_k=0)


TASKS = tuple(_MAKERS)
_own_folder = functools.cache(
    functools.partial(tempfile.TemporaryDirectory, prefix="tiny_exports-")
)


@functools.cache
def pipeline(task: str) -> Pipeline:
    """The tiny pipeline of a task, one of `TASKS`: do not change its weights."""
    return _MAKERS[task]()


def searcher() -> kt.pipelines.Searcher:
    """A search with every kind of index, whose hits are reranked."""
    corpus = kt.pipelines.Corpus(["a good film", "very bad", "long film"], ids="xyz")
    embed, sparse = pipeline("embedding"), pipeline("sparse_embedding")
    vectors = [
        kt.pipelines.VectorIndex(embed, corpus, vectors_dtype=dtype)
        for dtype in ("float32", "int8", "binary")
    ]
    others = [kt.pipelines.WordIndex(corpus), kt.pipelines.TermIndex(sparse, corpus)]
    return kt.pipelines.Searcher(
        *(corpus, [*vectors, *others]), top_k=2, rerank=pipeline("reranking")
    )


def export_tiny(task: str, base: Path) -> Path:
    """Exports the tiny pipeline of a task to `base`; not checked.

    Returns:
        The version folder.
    """
    return kt.export(pipeline(task), base, check=False)


@functools.cache
def exported(task: str) -> Path:
    """The version folder of one export of the tiny pipeline, for all tests: read only."""
    return _shared(task, lambda base: export_tiny(task, base))


@functools.cache
def exported_talker() -> Path:
    """The version folder of one export of `talker`, for all tests: read only, not checked."""
    return _shared("talker", lambda base: kt.export(talker(), base, check=False))


def _shared(name: str, export: Callable[[Path], Path]) -> Path:
    """The version that the first process to ask exports into the folder of its session.

    conftest.py names that folder; a process outside of a session has one of its own.
    """
    base = Path(os.environ.get("PYTEST_TINY_EXPORTS") or _own_folder().name, name)
    with open(base.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        versions = [path for path in base.glob("*") if path.name.isdigit()]
        return versions[0] if versions else export(base)
