"""The losses of sparse vectors against NumPy."""

import keras
import numpy as np
import pytest

from keras_transformers.training import InBatchContrast, MarginDistillation, WithFlops

RANDOM = np.random.default_rng(0)
VECTORS = np.maximum(RANDOM.normal(size=(4, 3, 6)), 0)
IDS = np.arange(12).reshape(4, 3)


def called(loss, targets, vectors=VECTORS):
    return loss.call(keras.ops.array(targets), keras.ops.array(vectors, "float32"))


def test_contrast_of_dot_products():
    queries = VECTORS[:, 0]
    documents = np.concatenate([VECTORS[:, 1], VECTORS[:, 2]])
    scores = queries @ documents.T / 2
    wanted = np.log(np.exp(scores).sum(axis=1)) - np.diag(scores)
    loss = InBatchContrast(temperature=2.0, symmetric=False, similarity="dot")
    np.testing.assert_allclose(called(loss, IDS.astype("int32")), wanted, rtol=1e-5)
    assert InBatchContrast.from_config(loss.get_config()).similarity == "dot"
    with pytest.raises(ValueError, match="similarity='l2': use 'cosine' or 'dot'"):
        InBatchContrast(similarity="l2")


def test_margins():
    teacher = RANDOM.normal(size=(4, 2))
    scores = np.einsum("bw,bdw->bd", VECTORS[:, 0], VECTORS[:, 1:])
    margins = scores[:, 0] - scores[:, 1]
    wanted = (margins - (teacher[:, 0] - teacher[:, 1])) ** 2
    found = called(MarginDistillation(), teacher.astype("float32"))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_flops():
    """The sum of the squared means; Paria et al. 2020, equation 4."""
    inner = MarginDistillation()
    teacher = np.zeros((4, 2), "float32")
    loss = WithFlops(inner, query_weight=0.5, document_weight=0.25)
    flops = [
        np.sum(rows.reshape(-1, 6).mean(axis=0) ** 2) for rows in (VECTORS[:, :1], VECTORS[:, 1:])
    ]
    wanted = called(inner, teacher) + 0.5 * flops[0] + 0.25 * flops[1]
    np.testing.assert_allclose(called(loss, teacher), wanted, rtol=1e-5)
    again = WithFlops.from_config(loss.get_config())
    np.testing.assert_allclose(called(again, teacher), wanted, rtol=1e-5)
    with pytest.raises(ValueError, match="query_weight=-1"):
        WithFlops(inner, query_weight=-1.0)


@pytest.mark.reference
def test_as_sentence_transformers():
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.sparse_encoder.losses")
    from sentence_transformers.util import dot_score

    vectors = VECTORS.astype("float32")
    columns = [torch.tensor(vectors[:, place]) for place in range(3)]
    teacher = RANDOM.normal(size=(4, 2)).astype("float32")
    contrast = losses.SparseMultipleNegativesRankingLoss(None, scale=1.0, similarity_fct=dot_score)
    margins = losses.SparseMarginMSELoss(None)
    for theirs, ours, labels, targets in (
        (contrast, InBatchContrast(temperature=1.0, symmetric=False, similarity="dot"), None, IDS),
        (margins, MarginDistillation(), torch.tensor(teacher), teacher),
    ):
        wanted = theirs.compute_loss_from_embeddings(columns, labels)
        flops = losses.FlopsLoss(None).compute_loss_from_embeddings
        wanted += 0.5 * flops(columns[0]) + 0.25 * flops(torch.cat(columns[1:]))
        loss = WithFlops(ours, query_weight=0.5, document_weight=0.25)
        np.testing.assert_allclose(loss(targets, vectors), wanted.item(), rtol=1e-5)
