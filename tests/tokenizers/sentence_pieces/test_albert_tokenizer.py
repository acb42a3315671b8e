"""ALBERT's tokenizer against the steps of transformers' AlbertTokenizer, and its packing."""

# ruff: noqa: RUF001

import base64
import json
import random

import albert_toy
import pytest
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer

from keras_transformers.convert.formats.tokenizer_files import read_tokenizers, write_tokenizers
from keras_transformers.families.albert.files import FAMILY
from keras_transformers.tokenizers import AlbertTokenizer
from keras_transformers.tokenizers.described.charsmap import charsmap_of, charsmap_rules

PIECES = [
    *("A Good film", "Café", "ÉTÉ", "e\u0301", "Zürich", "ﬁlm", "``", "''", "'''", "'", "İ", "Σς"),
    *("東京", "한국", "ガ", "か\u3099", "½", "№", "ǆ", "\u00a0", "\u3000", "\t", " ", "  ", "\n"),
    *("\u200b", "\u00ad", "\ufeff", "ÅΩ", "ŉ", "ß", "ẞ", "x", ",", "9,", "!", "ｇｏｏｄ", "🎬"),
    *("\u1100\u1161", "각", "क्ष", "\ue000", "\u0fb2\u0f71\u0f80"),
]
MARKS = ["\u0345", "ᾳ", "ำ"]  # Hugging Face normalizes what stands before them otherwise


def awkward_lines(pieces, count=400):
    generator = random.Random(7)
    lines = ("".join(generator.choices(pieces, k=generator.randint(1, 9))) for _ in range(count))
    return ["", " ", *pieces, *lines]


LINES = awkward_lines(PIECES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("albert")
    albert_toy.tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def ours(folder):
    return AlbertTokenizer(folder)


def description(tokenizer):
    """The tokenizer.json that transformers makes of the SentencePiece model."""
    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer._model)
    charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    parts = {"before": {"SpecialToken": {"id": "[CLS]", "type_id": 0}}}
    end = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
    first, second = ({"Sequence": {"id": letter, "type_id": 0}} for letter in "AB")
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": number, "content": name, **flags, "special": True}
            for number, name in enumerate(tokenizer.first_pieces)
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            *tokenizer.normalizers,
            {"type": "Precompiled", "precompiled_charsmap": charsmap},
        ]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        ]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [parts["before"], first, end],
            "pair": [parts["before"], first, end, second, end],
            "special_tokens": {
                name: {"id": name, "ids": [number], "tokens": [name]} for name, number in special
            },
        },
        "decoder": None,
        "model": {"type": "Unigram", "unk_id": 1, "byte_fallback": False,
            "vocab": [[piece.piece, piece.score] for piece in model.pieces]},
    }  # fmt: skip


def library(tokenizer):
    contents = description(tokenizer)
    contents["added_tokens"] = []  # as text
    return Tokenizer.from_str(json.dumps(contents))


@pytest.mark.parametrize("options", [{}, {"lowercase": False}, {"keep_accents": True}])
def test_ids_are_those_of_the_library(options, folder):
    ours = AlbertTokenizer(folder, **options)
    lines = LINES if "keep_accents" in options else awkward_lines(PIECES + MARKS)
    theirs, found = library(ours), ours.tokenize(tf.constant(lines)).to_list()
    for line, ids in zip(lines, found, strict=True):
        assert ids == theirs.encode(line, add_special_tokens=False).ids, repr(line)


def test_case_and_accents(ours):
    (plain, other) = ours.tokenize(["a cafe in zurich", "A  Café IN Zu\u0308rich"]).to_list()
    assert plain == other


def test_one_text_and_pairs_are_packed_as_in_bert(ours):
    one, other = ours.tokenize(["a good film", "two dogs"]).to_list()
    packed = ours(["a good film"], ["two dogs"], max_sequence_length=64)
    assert packed["token_ids"].numpy().tolist() == [[2, *one, 3, *other, 3]]
    assert packed["segment_ids"].numpy().tolist() == [[0] * (len(one) + 2) + [1] * (len(other) + 1)]


def test_spans_are_those_of_the_words(ours):
    texts = ["A  Café in Zu\u0308rich", "``Two'' dogs", "", "東京 🎬🎬"]
    ids, starts, ends = tf.function(ours.tokenize_with_offsets)(tf.constant(texts))
    assert ids.to_list() == ours.tokenize(texts).to_list()
    for text, first, last in zip(texts, starts.to_list(), ends.to_list(), strict=True):
        found = [text.encode()[a:b].decode() for a, b in zip(first, last, strict=True)]
        assert "".join(found) == "".join(text.split())


def test_texts_come_back_without_special_tokens(ours):
    packed = ours(["two dogs run"], ["a film"], max_sequence_length=40, pad_to_max_length=True)
    assert ours.detokenize(packed["token_ids"]).numpy().tolist() == [b"two dogs run a film"]
    assert ours.detokenize([[4, 1]]).numpy().tolist() == [" ⁇ ".encode()]
    assert ours.vocabulary[:5] == list(ours.first_pieces)


def test_a_mask_takes_the_white_space_before_it(ours):
    pieces = ours.split_at_masks(["a [MASK] film", "x \u00a0[MASK]"])
    assert pieces.to_list() == [[b"a", b" film"], [b"x", b""]]


@pytest.mark.one_case
@pytest.mark.parametrize("options", [{}, {"lowercase": False, "keep_accents": True}])
def test_it_is_saved_and_loaded(options, folder, tmp_path):
    new = {"id": 110, "content": "<concept>", "normalized": True, "special": False}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    size = AlbertTokenizer(folder).vocabulary_size
    ours = AlbertTokenizer(folder, added_tokens=[{**new, "id": size, **flags}], **options)
    ours.save(tmp_path)
    again = AlbertTokenizer.load(tmp_path, **ours.config())
    assert again.vocabulary == ours.vocabulary == [*AlbertTokenizer(folder).vocabulary, "<concept>"]
    texts = ["A Café <concept> film", "<CONCEPT>"]
    assert again.tokenize(texts).to_list() == ours.tokenize(texts).to_list()
    assert size in again.tokenize(texts).to_list()[0]
    assert ours.detokenize(ours.tokenize(texts)).numpy()[0].decode().count("<concept>") == 1


@pytest.mark.parametrize("kind", ["AlbertTokenizer", "PreTrainedTokenizerFast", None])
def test_its_tokenizer_json_is_enough(kind, ours, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(description(ours)))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({} if kind is None else {"tokenizer_class": kind})
    )
    (found,) = read_tokenizers(tmp_path, FAMILY)
    assert isinstance(found, AlbertTokenizer)
    assert found.tokenize(LINES).to_list() == ours.tokenize(LINES).to_list()


def test_a_file_that_normalizes_otherwise_is_refused(ours, tmp_path):
    contents = description(ours)
    del contents["normalizer"]["normalizers"][4]
    (tmp_path / "tokenizer.json").write_text(json.dumps(contents))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )
    message = "normalizes by Replace, Replace, NFKD, StripAccents before Precompiled; only .*Lower"
    with pytest.raises(ValueError, match=message):
        read_tokenizers(tmp_path, FAMILY)


def test_what_is_written_is_read(folder, tmp_path):
    ours = AlbertTokenizer(folder, lowercase=False, keep_accents=True)
    write_tokenizers({"tokenizer": ours}, tmp_path, FAMILY.writer, 16)
    (found,) = read_tokenizers(tmp_path, FAMILY)
    assert found.config() == ours.config()
    assert found.tokenize(LINES).to_list() == ours.tokenize(LINES).to_list()


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"spiece\.model: no such file"):
        AlbertTokenizer(tmp_path)


def test_a_normalization_is_taken_apart_and_put_together(ours):
    model = sentencepiece_model_pb2.ModelProto.FromString(ours._model)
    rules = charsmap_rules(model.normalizer_spec.precompiled_charsmap)
    assert rules["ﬁ"] == "fi"
    assert charsmap_rules(charsmap_of(rules)) == rules
