"""Translation with a pretrained encoder's own tokenizer for sources, and another for targets."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers.data.translation import PairBatches
from keras_transformers.pipelines import Translation, Translator
from keras_transformers.saved_model.checks import check

TEXTS = ["a good film!", "very bad", ""]


@pytest.fixture(scope="module")
def translate():
    target = tiny.sentence_pieces()
    model = kt.models.transformer_from_encoder(
        tiny.encoder(), vocabulary_size=target.vocabulary_size, max_sequence_length=20
    )
    return Translator(tiny.lively(model), tiny.wordpiece(), target, num_beams=2, extra_length=5)


def test_a_source_is_packed_as_its_encoder_reads_it(translate):
    packed = tiny.wordpiece()(TEXTS, max_sequence_length=16)["token_ids"]
    np.testing.assert_array_equal(translate._source(tf.constant(TEXTS)), packed)
    assert translate.max_sequence_length == 16, "the encoder's positions"
    cut = translate._source(tf.constant(["film " * 30]))
    np.testing.assert_array_equal(
        cut, tiny.wordpiece()(["film " * 30], max_sequence_length=16)["token_ids"]
    )


def test_an_empty_text_translates_to_an_empty_text(translate):
    found = translate(TEXTS)
    assert found[2] == Translation("", 0.0)
    assert found[0].text != found[1].text


def test_attention_is_shown_in_the_tokens_of_both_sides(translate):
    found = translate.attend(tf.constant(["good films"]), tf.constant(["a dog"]))
    names = [name.decode() for name in found["source_tokens"].numpy()[0]]
    assert names == ["[CLS]", "good", "film", "##s", "[SEP]"]
    assert found["target_tokens"].numpy()[0, -1] == b"</s>"


def test_training_reads_the_same_sources(translate):
    pairs = [("a good film!", "a small dog"), ("very bad", "two dogs"), ("", "dog"), ("bad", "")]
    batches = PairBatches(pairs, translate, batch_tokens=100, shuffle=False, static_shapes=1)
    assert (batches.report.num_empty, len(batches.pairs)) == (2, 2)
    inputs, targets, weights = next(iter(batches.dataset()))
    rows = {tuple(row[row != 0]) for row in inputs["source_token_ids"].numpy()}
    encoded = (tiny.wordpiece()([text], max_sequence_length=16) for text, _ in pairs[:2])
    expected = {tuple(found["token_ids"].numpy()[0]) for found in encoded}
    assert rows == expected | {(tiny.wordpiece().sep_token_id,)}, "and rows of padding"
    target = translate.target_tokenizer
    assert set(inputs["target_token_ids"].numpy()[:, 0]) == {target.start_token_id}
    ends = targets["logits"].numpy()[weights["logits"].numpy().astype(bool)]
    assert (ends == target.end_token_id).sum() == 2
    samples = batches.samples(2)
    assert sorted(samples.expected) == ["a small dog", "two dogs"]


def test_saved_and_loaded_it_translates_alike(translate, tmp_path):
    loaded = kt.load(translate.save(tmp_path / "saved"))
    assert loaded.config() == translate.config()
    expected = translate.answer(text=tf.constant(TEXTS))
    for name, value in loaded.answer(text=tf.constant(TEXTS)).items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.slow
def test_the_export_translates_as_the_pipeline_does(translate, tmp_path):
    folder = kt.export(translate, tmp_path, examples=TEXTS[:2], check=False)
    assert list(check.failures(str(folder))) == []
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    found = [text.decode() for text in served(text=tf.constant(TEXTS))["translation"].numpy()]
    assert found == translate.translate_all(TEXTS)
