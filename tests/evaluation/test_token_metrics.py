"""Perplexity, token accuracy and BLEU."""

from typing import Any

import keras
import numpy as np
import pytest
import sacrebleu
import tensorflow as tf

from keras_transformers.evaluation.token_metrics import Perplexity, TokenAccuracy, bleu
from keras_transformers.training.losses import TokenCrossentropy

VOCABULARY = 7


def batches() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Two batches (targets, logits, weights) of unequal shape and number of real tokens."""
    generator = np.random.default_rng(0)
    made = []
    for rows, length in ((2, 6), (4, 3)):
        targets = generator.integers(0, VOCABULARY, (rows, length))
        logits = generator.normal(scale=3, size=(rows, length, VOCABULARY)).astype("float32")
        lengths = generator.integers(1, length + 1, (rows, 1))
        made.append((targets, logits, (np.arange(length) < lengths).astype("float32")))
    return made


def real_tokens() -> tuple[np.ndarray, np.ndarray]:
    """Targets (n,) and log probabilities (n, VOCABULARY) of the real tokens of all batches."""
    targets, logits = [], []
    for batch_targets, batch_logits, weights in batches():
        targets.append(batch_targets[weights > 0])
        logits.append(batch_logits[weights > 0])
    return np.concatenate(targets), tf.nn.log_softmax(np.concatenate(logits)).numpy()


def test_perplexity_is_over_tokens_whatever_the_batches() -> None:
    perplexity = Perplexity()
    for targets, logits, weights in batches():
        perplexity.update_state(targets, logits, weights)
    targets, log_probabilities = real_tokens()
    expected = np.exp(-log_probabilities[np.arange(len(targets)), targets].mean())
    assert float(perplexity.result()) == pytest.approx(expected, rel=1e-5)
    perplexity.reset_state()
    assert np.isnan(float(perplexity.result()))


def test_token_accuracy_is_over_tokens_whatever_the_batches() -> None:
    accuracy = TokenAccuracy()
    for targets, logits, weights in batches():
        accuracy.update_state(targets, logits, weights)
    targets, log_probabilities = real_tokens()
    expected = (log_probabilities.argmax(-1) == targets).mean()
    assert 0 < expected < 1
    assert float(accuracy.result()) == pytest.approx(expected, rel=1e-6)


def test_of_equal_logits_the_first_is_the_largest() -> None:
    accuracy = TokenAccuracy()
    accuracy.update_state(np.array([[0, 1, 2, 3]]), np.zeros((1, 4, VOCABULARY)))
    assert float(accuracy.result()) == 0.25


def test_perplexity_of_a_uniform_guess_is_the_vocabulary() -> None:
    perplexity = Perplexity()
    perplexity.update_state(np.ones((2, 3), int), np.zeros((2, 3, VOCABULARY)))
    assert float(perplexity.result()) == pytest.approx(VOCABULARY, rel=1e-6)


def test_a_weight_a_sentence_is_refused() -> None:
    targets, logits, _ = batches()[0]
    with pytest.raises(ValueError, match=r"sample_weight of shape \(2,\) for targets.*\(2, 6\)"):
        Perplexity().update_state(targets, logits, np.ones(2))


def test_in_evaluate_they_agree_with_the_loss() -> None:
    """Batches of different lengths; the smoothing of the loss does not reach the perplexity."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    logits = keras.layers.Embedding(VOCABULARY, VOCABULARY, name="logits")(token_ids)
    model = keras.Model({"token_ids": token_ids}, {"logits": logits})
    model.compile(
        loss=TokenCrossentropy(label_smoothing=0.3),
        weighted_metrics=[Perplexity(), TokenAccuracy()],
    )
    dataset = [({"token_ids": t}, t, w) for t, _, w in batches()]
    signature = (
        {"token_ids": tf.TensorSpec((None, None), tf.int32)},
        tf.TensorSpec((None, None), tf.int32),
        tf.TensorSpec((None, None), tf.float32),
    )
    results = model.evaluate(
        tf.data.Dataset.from_generator(lambda: iter(dataset), output_signature=signature),
        verbose=0,
        return_dict=True,
    )
    targets, _ = real_tokens()
    table = tf.nn.log_softmax(model.get_layer("logits").embeddings.numpy()).numpy()
    crossentropies = -table[targets, targets]
    assert results["perplexity"] == pytest.approx(np.exp(crossentropies.mean()), rel=1e-5)
    assert results["token_accuracy"] == pytest.approx(
        (table.argmax(-1) == np.arange(7))[targets].mean()
    )


@pytest.mark.parametrize("metric", [Perplexity(name="p"), TokenAccuracy(name="a")])
def test_metrics_serialize(metric: Any) -> None:
    config = keras.saving.serialize_keras_object(metric)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(metric)
    assert again.name == metric.name


def test_bleu_is_sacrebleu_13a() -> None:
    hypotheses = ["The dog , it runs on grass.", "A man is riding a Horse", "Two kids play"]
    references = ["The dog runs on the grass.", "A man is riding a horse.", "Two children play."]
    result = bleu(hypotheses, references)
    expected = sacrebleu.corpus_bleu(hypotheses, [references])
    assert result.score == expected.score > 0
    assert (result.hypothesis_length, result.reference_length) == (17, 18)
    assert result.precisions == tuple(expected.precisions)
    version = sacrebleu.__version__
    assert result.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert result.signature in str(result)
    lowered = bleu(hypotheses, references, lowercase=True)
    assert lowered.score > result.score
    assert "case:lc" in lowered.signature


def test_bleu_of_empty_hypotheses_is_zero() -> None:
    assert bleu(["", ""], ["a man", "a dog"]).score == 0.0


def test_bleu_refuses_unequal_numbers_and_nothing() -> None:
    with pytest.raises(ValueError, match="2 hypotheses for 1 references"):
        bleu(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="no sentences"):
        bleu([], [])
