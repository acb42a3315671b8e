"""Translation with Marian: two tokenizers, folders, and an export that answers alike."""

import encoder_decoder_toys as toys
import numpy as np
import pytest
import tensorflow as tf
from tiny import lively

import keras_transformers as kt
from keras_transformers.convert import save_weights
from keras_transformers.families.marian.model import marian
from keras_transformers.saved_model.checks import check
from keras_transformers.tokenizers import MarianTokenizer

TEXTS = ["two dogs", ">>deu<< a small dog runs", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of ours in Hugging Face's layout."""
    files = toys.marian_folder(tmp_path_factory.mktemp("files"))
    tokenizers = [MarianTokenizer(files, side=side) for side in ("source", "target")]
    model = marian(
        vocabulary_size=tokenizers[0].vocabulary_size,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        max_sequence_length=12,
    )
    bias = lively(model).get_layer("logits").bias
    bias.assign(np.where(np.arange(bias.shape[0]) == bias.shape[0] - 1, 9.0, bias))  # padding
    path = tmp_path_factory.mktemp("marian")
    save_weights(model, path, *tokenizers, family="marian")
    return path


@pytest.fixture(scope="module")
def translate(folder):
    options = {"num_beams": 2, "extra_length": 4, "rules": "gnmt"}
    return kt.load(folder, **options)


def test_a_folder_translates_without_padding(translate, tmp_path):
    found = translate(TEXTS)
    assert found[2].text == ""
    assert found[0].text != found[1].text
    ids = translate._hypotheses(tf.constant(TEXTS[:2]), 1)
    for row, length in zip(ids.token_ids.numpy()[:, 0], ids.lengths.numpy()[:, 0], strict=True):
        assert length > 0
        assert translate.tokenizer.pad_token_id not in row[:length]
    loaded = kt.load(translate.save(tmp_path / "saved"))
    assert loaded(TEXTS) == found
    assert (tmp_path / "saved" / "target_tokenizer" / "target.spm").is_file()


def test_a_vocabulary_that_does_not_belong_to_the_weights_is_refused(folder, tmp_path):
    made = kt.load(folder)
    source = made.tokenizer
    save_weights(made.model, tmp_path, source, made.target_tokenizer, family="marian")
    vocabulary = (tmp_path / "vocab.json").read_text()
    more = vocabulary.replace("}", f', "more": {source.vocabulary_size}}}')
    (tmp_path / "vocab.json").write_text(more)
    with pytest.raises(ValueError, match="vocab.json has .* use the vocabulary that belongs"):
        kt.load(tmp_path)


@pytest.mark.slow
def test_its_export_answers_alike(translate, tmp_path):
    folder = kt.export(translate, tmp_path / "export", examples=TEXTS[:2])
    assert list(check.failures(str(folder))) == []
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    found = signature(text=tf.constant(TEXTS))["translation"].numpy()
    assert [text.decode() for text in found] == [each.text for each in translate(TEXTS)]
