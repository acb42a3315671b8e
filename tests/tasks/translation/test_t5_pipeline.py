"""Text to text with T5: the translator's search, saving, and an export that answers alike."""

import encoder_decoder_toys as toys
import numpy as np
import pytest
import tensorflow as tf
from tiny import lively

import keras_transformers as kt
from keras_transformers.families.t5.model import t5
from keras_transformers.pipelines import Translator
from keras_transformers.saved_model.checks import check

TEXTS = ["a small dog", "two dogs <extra_id_0> near", "ein Hund", ""]


@pytest.fixture(scope="module")
def answer():
    tokenizer = toys.t5_tokenizer(padded_to=48)
    model = lively(t5(**(toys.T5_SIZES | {"vocabulary_size": 48})), seed=4)
    options = {"max_sequence_length": 12, "num_beams": 2, "extra_length": 4}
    return Translator(model, tokenizer, **options)


def test_answers_do_not_depend_on_the_batch_and_come_back(answer, tmp_path):
    found = answer(TEXTS)
    assert found[3].text == ""
    assert len({each.text for each in found}) > 2
    for text, together in zip(TEXTS, found, strict=True):
        alone = answer(text)
        assert alone.text == together.text
        assert alone.score == pytest.approx(together.score, rel=1e-4)
    loaded = kt.load(answer.save(tmp_path / "saved"))
    assert loaded(TEXTS) == found
    assert (tmp_path / "saved" / "spiece.model").is_file()


def test_attention_names_extra_ids(answer):
    found = answer.attend(tf.constant(TEXTS[1:2]), tf.constant(["a <extra_id_1>"]))
    assert b"<extra_id_0>" in found["source_tokens"].numpy()[0]
    assert found["target_tokens"].numpy()[0].tolist()[-2:] == [b"<extra_id_1>", b"</s>"]
    np.testing.assert_allclose(np.sum(found["attention"], -1), 1, atol=1e-5)


def test_a_model_without_positions_needs_a_length(answer):
    with pytest.raises(ValueError, match="'t5' has no positions .* pass max_sequence_length"):
        Translator(answer.model, answer.tokenizer)
    wrong = "tokenizer has 49 tokens but model 't5' embeds 48: use the vocabulary"
    with pytest.raises(ValueError, match=wrong):
        Translator(answer.model, toys.t5_tokenizer(padded_to=49), max_sequence_length=9)


@pytest.mark.slow
def test_its_export_answers_alike(answer, tmp_path):
    folder = kt.export(answer, tmp_path / "export", examples=TEXTS[:2])
    assert list(check.failures(str(folder))) == []
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    found = signature(text=tf.constant(TEXTS))["translation"].numpy()
    assert [text.decode() for text in found] == [each.text for each in answer(TEXTS)]
