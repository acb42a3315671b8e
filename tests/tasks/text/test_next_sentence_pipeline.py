import numpy as np
import pytest
import tensorflow as tf
from pretrained_models import lively_pretrainer

from keras_transformers.pipelines import NextSentenceClassifier


@pytest.fixture(scope="module")
def pretrainer():
    return lively_pretrainer()


def expected_probability(pretrainer, tokenizer, text, text_b, length=16):
    tokens = tokenizer(text, text_b, max_sequence_length=length)
    positions = tf.zeros((len(text), 1), tf.int32)
    logits = pretrainer({**tokens, "mask_positions": positions})["next_sentence_logits"].numpy()
    return 1 / (1 + np.exp(logits[:, 1] - logits[:, 0]))  # class 0: text_b follows


def test_probabilities_are_the_models(pretrainer, tokenizer):
    follows = NextSentenceClassifier(pretrainer, tokenizer)
    texts = ["a film", "good"], ["good", "a film"]
    expected = expected_probability(pretrainer, tokenizer, *texts)
    assert abs(expected[0] - expected[1]) > 1e-3  # the order of the texts matters
    found = [answer.probability for answer in follows(*texts)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert follows("a film", "good").probability == pytest.approx(expected[0], abs=1e-5)


def test_long_pairs_are_trimmed_to_the_length_asked_for(pretrainer, tokenizer):
    follows = NextSentenceClassifier(pretrainer, tokenizer, max_sequence_length=7)
    long = ["a film " * 9], ["good " * 9]
    expected = expected_probability(pretrainer, tokenizer, *long, length=7)
    assert follows(*long)[0].probability == pytest.approx(expected[0], abs=1e-5)


def strings(*texts):
    return tf.constant(texts, tf.string)


def test_signature(run):
    name = "next_sentence"
    answer = run(name, text=strings("a film", "", b"\xff"), text_b=strings("", "", "!"))
    assert set(answer) == {"probability"}
    assert answer["probability"].shape == (3,)
    assert answer["probability"].dtype == np.float32
    assert ((answer["probability"] > 0) & (answer["probability"] < 1)).all()
    assert run(name, text=strings(), text_b=strings())["probability"].shape == (0,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="text_b.*number"):
        run(name, text=strings("a", "b"), text_b=strings("c"))


def test_tokens_in_place_of_texts(run):
    token_ids = tf.constant([[2, 5, 6, 3, 7, 3]])  # [CLS] a film [SEP] good [SEP]
    given = {
        "token_ids": token_ids,
        "segment_ids": tf.constant([[0, 0, 0, 0, 1, 1]]),
        "padding_mask": tf.ones([1, 6], tf.bool),
    }
    tokens = run("next_sentence", "tokens", **given)
    text = run("next_sentence", text=strings("a film"), text_b=strings("good"))
    np.testing.assert_allclose(tokens["probability"], text["probability"], atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="token_ids.*14 tokens"):
        run("next_sentence", "tokens", **given | {"token_ids": token_ids + 14})
