"""The tokenizers of M2M-100 and NLLB: their ids, and the tokens of languages."""

import json

import m2m_100_toy as toy
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformers.convert.families import family_named, tokenizer_writer
from keras_transformers.convert.formats.tokenizer_files import read_tokenizers, write_tokenizers
from keras_transformers.tokenizers import M2M100Tokenizer, NllbTokenizer

KINDS = ("m2m_100", "nllb")


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    return tmp_path_factory.mktemp(kind)


@pytest.fixture(scope="module")
def tokenizer(kind, folder):
    return toy.tokenizer(kind, folder)


def test_ids_are_those_of_the_pieces(kind, folder, tokenizer):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / toy.MODEL_FILE))
    vocabulary = list(tokenizer.vocabulary)
    for text, ids in zip(toy.TEXTS, tokenizer.tokenize(toy.TEXTS).to_list(), strict=True):
        pieces = processor.encode(text, out_type=str)
        wanted = [vocabulary.index(piece) if piece in vocabulary[4:] else 3 for piece in pieces]
        assert ids == wanted
    assert vocabulary[:4] == ["<s>", "<pad>", "</s>", "<unk>"]


def test_texts_come_back(tokenizer):
    texts = ["a small dog", "zwei Hunde laufen am Ufer, ein Café", ""]
    ids = tokenizer.tokenize(texts, add_start=True, add_end=True)
    assert [text.decode() for text in tokenizer.detokenize(ids).numpy()] == texts
    padded = ids.to_tensor(tokenizer.pad_token_id)
    assert [text.decode() for text in tokenizer.detokenize(padded).numpy()] == texts
    assert tokenizer.detokenize([[3]]).numpy()[0].decode().strip() == "⁇"


def test_languages_stand_before_texts(kind, tokenizer):
    source, target = toy.LANGUAGES[kind]
    assert tokenizer.special_tokens(1) == [[tokenizer.languages[source]], [2]]
    ids = tokenizer.tokenize(["a"], add_start=True, add_end=True).to_list()[0]
    assert ids[:2] == [2, tokenizer.languages[target]]
    assert ids[-1] == 2
    names = [name.decode() for name in tokenizer.tokens(ids[:2]).numpy()]
    assert names[0] == "</s>"
    assert target in names[1]
    other = tokenizer.between(target, source)
    assert other.special_tokens(1) == [[tokenizer.languages[target]], [2]]
    assert other.target_start() == [2, tokenizer.languages[source]]
    assert tokenizer.source_language == source
    np.testing.assert_array_equal(
        tokenizer.language_ids(tf.constant([target, source, target])),
        [tokenizer.languages[code] for code in (target, source, target)],
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)unknown language.*xx"):
        tokenizer.language_ids(tf.constant([target, "xx"]))


def test_a_saved_tokenizer_comes_back(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    again = type(tokenizer).load(tmp_path, **tokenizer.config())
    assert again.config() == tokenizer.config()
    assert list(again.vocabulary) == list(tokenizer.vocabulary)
    ids = tokenizer.tokenize(toy.TEXTS).to_list()
    assert again.tokenize(toy.TEXTS).to_list() == ids


def test_folders_name_the_special_tokens_of_transformers(kind, tokenizer, tmp_path):
    file = toy.vocabulary_folder(kind, tmp_path) / "tokenizer_config.json"
    special = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    file.write_text(json.dumps({"tokenizer_class": type(tokenizer).__name__, **special}))
    fields = ("encoder_layers", "decoder_layers", "encoder_attention_heads", "d_model")
    fields += ("encoder_ffn_dim", "max_position_embeddings", "pad_token_id")
    sizes = {**dict.fromkeys(fields, 1), "vocab_size": tokenizer.vocabulary_size}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "m2m_100", **sizes}))
    (found,) = read_tokenizers(tmp_path, family_named("m2m_100"))
    assert found.vocabulary[found.bos_token_id] == "<s>"


def test_real_languages_have_their_own_ids():
    sizes = {M2M100Tokenizer: 100, NllbTokenizer: 202}
    for kind, size in sizes.items():
        languages = kind.__init__.__kwdefaults__["languages"]
        assert len(set(languages)) == size


def test_what_does_not_fit_is_refused(kind, folder, tokenizer):
    with pytest.raises(ValueError, match="source_language='xx': expected '.* others"):
        toy.tokenizer(kind, folder, source_language="xx")
    with pytest.raises(ValueError, match="target_language is not set: pass one of '"):
        toy.tokenizer(kind, folder, target_language=None).target_start()
    size = tokenizer.vocabulary_size
    with pytest.raises(ValueError, match=f"has {size} tokens, but the model only {size - 1}: use"):
        toy.tokenizer(kind, folder, vocabulary_size=size - 1)
    wider = toy.tokenizer(kind, folder, vocabulary_size=size + 2)
    assert list(wider.vocabulary)[size:] == [f"<unused_{size}>", f"<unused_{size + 1}>"]
    assert wider.num_tokens == size


def test_added_tokens_of_nllb_follow_its_mask(tmp_path):
    added = [{"id": 0, "content": "<b>", "normalized": False, "special": False}]
    plain = toy.tokenizer("nllb", tmp_path)
    added[0]["id"] = plain.vocabulary_size
    more = toy.tokenizer("nllb", tmp_path, added_tokens=added)
    assert more.vocabulary[-2:] == ["<mask>", "<b>"]
    assert more.tokenize(["a <b>"]).to_list()[0][-1] == plain.vocabulary_size
    assert more.config()["added_tokens"] == added


@pytest.mark.reference
def test_ids_are_those_of_transformers(kind, tokenizer, tmp_path):
    import transformers

    writer = tokenizer_writer(family_named("m2m_100"), type(tokenizer).__name__)
    write_tokenizers({"tokenizer": tokenizer}, tmp_path, writer, 20)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    source, target = toy.LANGUAGES[kind]
    assert (theirs.src_lang, theirs.tgt_lang) == (source, target)
    texts = [text.rstrip() for text in toy.TEXTS[:4]]  # not the names of special tokens
    before, after = tokenizer.special_tokens(1)
    for text, ids in zip(texts, tokenizer.tokenize(texts).to_list(), strict=True):
        assert theirs(text)["input_ids"] == [*before, *ids, *after]
        labels = tokenizer.tokenize([text], add_start=True, add_end=True).to_list()[0]
        assert theirs(text_target=text)["input_ids"] == labels[1:]
    for code, token_id in tokenizer.languages.items():
        name = f"__{code}__" if kind == "m2m_100" else code
        assert theirs.convert_tokens_to_ids(name) == token_id
