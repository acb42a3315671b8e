"""The tokenizer that recipes load with an encoder is the one that the folder's files describe."""

import json

import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt

WORDS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "Film",
    "film",
    "schön",
    "schon",
    "日",
    "<x>",
)


@pytest.fixture
def folder(tmp_path):
    encoder = tiny.encoder(len(WORDS))
    kt.families.bert.FAMILY.save(encoder, tmp_path / "model.safetensors")
    kt.families.bert.FAMILY.save_config(encoder, tmp_path / "config.json")
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", "utf-8")
    return tmp_path


def tokens(folder, text, **options):
    _, tokenizer = kt.convert.load_encoder(weights=folder, **options)
    return [WORDS[i] for i in tokenizer.tokenize(tf.constant([text])).values.numpy()]


def say(folder, **config):
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def test_case_is_what_the_files_say(folder):
    say(folder, do_lower_case=False)
    assert tokens(folder, "Film film") == ["Film", "film"]
    say(folder, do_lower_case=True)
    assert tokens(folder, "Film film") == ["film", "film"]
    with pytest.raises(ValueError, match=r"tokenizer_config\.json.*lowercase=True,.*False"):
        tokens(folder, "Film", lowercase=False)


def test_without_files_the_option_decides_or_the_words(folder):
    assert tokens(folder, "Film") == ["Film"]  # its vocabulary has capitals
    assert tokens(folder, "Film", lowercase=True) == ["film"]


def test_accents_chinese_and_added_tokens_are_what_the_files_say(folder):
    say(folder, do_lower_case=True)
    assert tokens(folder, "Schön") == ["schon"]
    say(folder, do_lower_case=True, strip_accents=False)
    assert tokens(folder, "Schön") == ["schön"]
    say(folder, tokenize_chinese_chars=False, do_lower_case=True)
    assert tokens(folder, "film日") == ["[UNK]"]
    say(folder, do_lower_case=True, additional_special_tokens=["<x>"])
    (folder / "added_tokens.json").write_text(json.dumps({"<x>": WORDS.index("<x>")}))
    assert tokens(folder, "film<x>") == ["film", "<x>"]


def test_a_compact_bert_has_a_name_without_being_listed(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(tiny.VOCABULARY), "utf-8")
    encoder, tokenizer = kt.convert.load_encoder(model="bert_l2_h128", vocabulary=vocabulary)
    assert encoder.name == "bert_l2_h128"
    assert tokenizer.vocabulary_size == len(tiny.VOCABULARY)
    for unknown in ("bert_l3_h128", "gpt2_small"):
        with pytest.raises(ValueError, match=f"model='{unknown}': use one of"):
            kt.convert.load_encoder(model=unknown, vocabulary=vocabulary)
