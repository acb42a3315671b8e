"""Summaries with BART: folders with and without <mask>, and an export that answers alike."""

import json
import shutil

import encoder_decoder_toys as toys
import pytest
import tensorflow as tf
from tiny import lively

import keras_transformers as kt
from keras_transformers.convert import save_weights
from keras_transformers.families.bart.model import bart
from keras_transformers.saved_model.checks import check

TEXTS = ["two dogs run near the shore", "a very good film!", ""]
SIZES = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "hidden_dim": 16}


def write(folder, tokenizer, *, num_rows=None):
    size = num_rows or tokenizer.vocabulary_size
    model = bart(vocabulary_size=size, intermediate_dim=24, max_sequence_length=20, **SIZES)
    save_weights(lively(model), folder, tokenizer, family="bart")
    fields = {"num_beams": 2, "max_length": 9, "forced_eos_token_id": 2, "length_penalty": 2.0}
    (folder / "generation_config.json").write_text(json.dumps(fields))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("bart")
    return write(made / "folder", toys.bart_tokenizer(made / "files"))


@pytest.fixture(scope="module")
def summarize(folder):
    return kt.load(folder)


def test_a_folder_summarizes_by_its_options(summarize, tmp_path):
    options = {"num_beams": 2, "max_length": 8, "force_end": True, "length_penalty": 2.0}
    assert summarize.config().items() >= options.items()
    assert summarize.max_sequence_length == 20
    found = summarize(TEXTS)
    assert found[2].text == ""
    assert found[0].text != found[1].text
    loaded = kt.load(summarize.save(tmp_path / "saved"))
    assert loaded(TEXTS) == found
    tokens = summarize.read("two dogs")
    assert (tokens["source"][0], tokens["source"][-1]) == ("<s>", "</s>")
    assert tokens["target"][:2] == ["</s>", "<s>"]


def test_the_options_of_bart_large_cnn_are_those_of_the_search(folder, tmp_path, caplog):
    copy = shutil.copytree(folder, tmp_path / "cnn")
    fields = {"bos_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
    fields |= {"forced_bos_token_id": 0, "forced_eos_token_id": 2, "num_beams": 4}
    fields |= {"early_stopping": True, "length_penalty": 2.0, "no_repeat_ngram_size": 3}
    fields |= {"max_length": 12, "min_length": 5}
    (copy / "generation_config.json").write_text(json.dumps(fields))
    summarize = kt.load(copy)
    assert "does not support" not in caplog.text
    options = {"first_token_id": 0, "force_end": True, "early_stopping": True, "num_beams": 4}
    options |= {"no_repeat_ngram_size": 3, "max_length": 11, "rules": "transformers"}
    assert summarize.config().items() >= options.items()
    assert len(summarize(TEXTS)) == 3
    kt.save(summarize, tmp_path / "again", format="huggingface")
    written = json.loads((tmp_path / "again/generation_config.json").read_text())
    for name in ("forced_bos_token_id", "forced_eos_token_id", "no_repeat_ngram_size"):
        assert written[name] == fields[name]


@pytest.mark.slow
def test_a_model_without_a_row_for_the_mask(tmp_path):
    tokenizer = toys.bart_tokenizer(tmp_path / "files")
    rows = tokenizer.vocabulary_size - 1
    smaller = toys.bart_tokenizer(tmp_path / "again", vocabulary_size=rows)
    folder = write(tmp_path / "folder", smaller)
    assert "<mask>" in json.loads((folder / "vocab.json").read_text())
    loaded = kt.load(folder)
    assert loaded.tokenizer.vocabulary_size == rows
    again = kt.load(kt.save(loaded, tmp_path / "saved", format="huggingface"))
    assert again(TEXTS) == loaded(TEXTS)


def test_what_does_not_fit_the_weights_is_refused(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    for change, message in (
        ({"pad_token_id": 3}, "pad_token_id is 3 in config.json, but .* the id 1: use the vocab"),
        ({"architectures": ["BartForQuestionAnswering"]}, "the head of BartForQuestionAnswering"),
    ):
        (copy / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ValueError, match=message):
            kt.load(copy)


@pytest.mark.slow
def test_pairs_train_it(folder):
    pipeline = kt.load(folder, num_beams=1)
    kt.fit(pipeline, (TEXTS[:2], ["two dogs", "a film"]), epochs=1, batch_tokens=64)
    assert len(pipeline(TEXTS)) == 3


@pytest.mark.slow
def test_its_export_answers_alike(summarize, tmp_path):
    folder = kt.export(summarize, tmp_path / "export", examples=TEXTS[:2])
    assert list(check.failures(str(folder))) == []
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    found = signature(text=tf.constant(TEXTS))["translation"].numpy()
    texts = [text.decode("utf-8", "replace") for text in found]
    assert texts == [each.text for each in summarize(TEXTS)]
