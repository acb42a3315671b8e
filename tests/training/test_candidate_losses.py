"""The losses over scores of candidates: the contrast of queries' own, and a teacher's scores."""

import keras
import numpy as np
import pytest

from keras_transformers.training import CandidateContrast, CandidateDistillation, InBatchContrast


def test_contrast_of_scores_is_that_of_vectors():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(4, 3, 5)).astype("float32")  # a text, its partner, a negative
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    ids = np.arange(12).reshape(4, 3)
    ids[2, 1] = ids[0, 1]  # the partner of two texts
    ids[3, 2] = ids[1, 0]  # a negative that is another text itself
    scores = vectors[:, 0] @ vectors[:, 1:].reshape(-1, 5).T  # (batch, batch * group)
    expected = InBatchContrast(temperature=0.1, symmetric=False)(ids, vectors)
    found = CandidateContrast(temperature=0.1)(ids, scores)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    plain = CandidateContrast(temperature=0.1)(np.arange(12).reshape(4, 3), scores)
    assert float(plain) > float(found)  # equal texts do not count as wrong


def test_distillation_is_the_divergence_over_a_querys_own_documents():
    random = np.random.default_rng(1)
    scores, teacher = random.normal(size=(3, 6)), random.normal(size=(3, 2))
    own = np.stack([scores[i, 2 * i : 2 * i + 2] for i in range(3)])
    ours, theirs = (np.exp(x / 2) / np.exp(x / 2).sum(1, keepdims=True) for x in (own, teacher))
    expected = (theirs * np.log(theirs / ours)).sum(axis=1).mean()
    found = CandidateDistillation(temperature=2.0)(teacher, scores)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("kind", [CandidateContrast, CandidateDistillation])
def test_losses_come_back_from_their_configuration(kind):
    loss = keras.losses.deserialize(keras.losses.serialize(kind(temperature=0.3)))
    assert (type(loss), loss.temperature) == (kind, 0.3)
    with pytest.raises(ValueError, match="temperature=0: must be above 0"):
        kind(temperature=0)
