"""ModernBERT's tokenizer, and every task that an encoder serves, to the export."""

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.families.modern_bert.files import FAMILY as MODERN_BERT

SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
WORDS = ["a", "good", "film", "bad", "one", "Who", "went", "home", "?", "."]
TEXTS = ["a good film.", "", "a bad one?", "good  one [MASK] bad"]


def description():
    """A byte-level tokenizer.json as ModernBERT's: special tokens behind the vocabulary."""
    letters = sorted({letter for word in WORDS for letter in word} | {"Ġ"})
    tokens, merges = list(letters), []
    for word in WORDS:
        for start in (word, f"Ġ{word}"):
            for end in range(2, len(start) + 1):
                if start[:end] not in tokens:
                    tokens.append(start[:end])
                    merges.append([start[: end - 1], start[end - 1]])
    ids = {token: number for number, token in enumerate(tokens)}
    added = [
        {
            "id": len(tokens) + number,
            "content": token,
            "single_word": False,
            "lstrip": token == "[MASK]",
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number, token in enumerate(SPECIAL)
    ]
    number = {token["content"]: token["id"] for token in added}

    def special(name, kind=0):
        return {"SpecialToken": {"id": name, "type_id": kind}}

    def text(name, kind=0):
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [special("[CLS]"), text("A"), special("[SEP]")]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, text("B"), special("[SEP]")],
            "special_tokens": {
                name: {"id": name, "ids": [number[name]], "tokens": [name]}
                for name in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ids,
            "merges": merges,
        },
    }


def tokenizer():
    return kt.tokenizers.DescribedTokenizer(
        description(),
        start_token="[CLS]",
        end_token="[SEP]",
        pad_token="[PAD]",
        unknown_token="[UNK]",
        mask_token="[MASK]",
    )


def encoder(size):
    return MODERN_BERT.build(
        vocabulary_size=size,
        num_layers=4,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        max_sequence_length=64,
        local_window=2,
        initializer_range=0.4,
    )


def test_ids_and_masks_are_those_of_the_tokenizers_library(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra reference")
    ours = tokenizer()
    ours.save(tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for texts in (TEXTS, list(zip(TEXTS, TEXTS[::-1], strict=True))):
        columns = zip(*texts, strict=True) if isinstance(texts[0], tuple) else [texts]
        packed = ours.pack([ours.tokenize(list(c)) for c in columns], max_sequence_length=60)
        for row, real, text in zip(
            packed["token_ids"].numpy(), packed["padding_mask"].numpy(), texts, strict=True
        ):
            found = theirs.encode(*text) if isinstance(text, tuple) else theirs.encode(text)
            assert row[real].tolist() == found.ids
            assert set(row[~real]) <= {ours.pad_token_id}
    pieces = ours.split_at_masks(tf.constant(["good  one [MASK] bad"]))
    assert pieces.to_list() == [[b"good  one", b" bad"]]


# Task -> how to make its pipeline.
PIPELINES = {
    "classification": lambda e, t: kt.pipelines.TextClassifier(
        kt.heads.classifier(e, 2), t, ["no", "yes"], max_sequence_length=24
    ),
    "multi_label_classification": lambda e, t: kt.pipelines.MultiLabelClassifier(
        kt.heads.classifier(e, 2), t, ["no", "yes"], max_sequence_length=24
    ),
    "regression": lambda e, t: kt.pipelines.TextRegressor(
        kt.heads.regressor(e), t, max_sequence_length=24
    ),
    "tagging": lambda e, t: kt.pipelines.Tagger(
        kt.heads.tagger(e, 3), t, ["O", "B-X", "I-X"], max_sequence_length=24
    ),
    "question_answering": lambda e, t: kt.pipelines.QuestionAnswerer(
        kt.heads.span_extractor(e), t, max_sequence_length=24, max_question_length=8
    ),
    "fill_mask": lambda e, t: kt.pipelines.MaskFiller(
        kt.heads.masked_lm(e), t, top_k=2, max_sequence_length=24
    ),
    "multiple_choice": lambda e, t: kt.pipelines.MultipleChoice(
        kt.heads.multiple_choice(e), t, max_sequence_length=24
    ),
    "reranking": lambda e, t: kt.pipelines.Reranker(
        kt.heads.regressor(e), t, max_sequence_length=24
    ),
    "embedding": lambda e, t: kt.pipelines.Embedder(
        kt.heads.embedder(e), t, max_sequence_length=24
    ),
}


@pytest.mark.one_case
@pytest.mark.parametrize("task", PIPELINES)
def test_every_task_is_saved_and_loaded(task, tmp_path):
    its = tokenizer()
    pipeline = PIPELINES[task](encoder(its.vocabulary_size), its)
    kt.save(pipeline, tmp_path / "folder", format="huggingface")
    again = kt.load(tmp_path / "folder", pipeline=task)
    assert type(again) is type(pipeline)
    assert again.config() == pipeline.config()
    assert again.tokenizer.config() == its.config()
    inputs = {
        name: np.ones([2] * (len(tensor.shape) - 1) + [5], tensor.dtype)
        for name, tensor in pipeline.model.input.items()
    }
    for name, found in again.model(inputs).items():
        np.testing.assert_allclose(found, pipeline.model(inputs)[name], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("task", PIPELINES)
def test_every_task_is_exported(task, tmp_path):
    its = tokenizer()
    pipeline = PIPELINES[task](encoder(its.vocabulary_size), its)
    kt.export(pipeline, tmp_path)  # compares its answers with the pipeline's
