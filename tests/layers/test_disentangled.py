"""Disentangled attention against the formula of its paper, one score after another."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import (
    DisentangledAttention,
    DistanceEmbedding,
    FeedForward,
    MultiHeadAttention,
    TransformerBlock,
)
from keras_transformers.layers.disentangled import rows_of
from keras_transformers.layers.layouts import PADDED, Rows, Selected
from keras_transformers.layers.scopes import Selection

HEADS, WIDTH, LENGTH = 2, 8, 5
RANDOM = np.random.default_rng(0)
HIDDEN = RANDOM.normal(size=(3, LENGTH, WIDTH)).astype("float32")
MASK = np.arange(LENGTH)[None] < np.array([[5], [3], [1]])


def made(**options):
    """An attention and the vectors of distances, with weights far from zero."""
    embedding = DistanceEmbedding(max_distance=3, hidden_dim=WIDTH)
    vectors = embedding(HIDDEN)
    attention = DisentangledAttention(HEADS, WIDTH, **options)
    attention(HIDDEN, distance_vectors=vectors)
    for weight in (*attention.weights, *embedding.weights):
        if weight.dtype == "float32":
            weight.assign(RANDOM.normal(size=weight.shape))
    return attention, embedding


def split(dense, vectors):
    return np.asarray(dense(vectors)).reshape(*vectors.shape[:-1], HEADS, WIDTH // HEADS)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("terms", [(True, True), (True, False), (False, True)])
def test_scores_are_those_of_the_paper(terms, shared):
    attention, embedding = made(
        content_to_position=terms[0], position_to_content=terms[1], share_projections=shared
    )
    rows = np.asarray(embedding.embeddings)
    queries, keys = split(attention.query, HIDDEN), split(attention.key, HIDDEN)
    of_keys = split(attention.key if shared else attention.distance_key or attention.key, rows)
    of_queries = split(
        attention.query if shared else attention.distance_query or attention.query, rows
    )
    wanted = np.zeros((3, HEADS, LENGTH, LENGTH))
    for i in range(LENGTH):
        for j in range(LENGTH):
            row = np.clip(i - j + 3, 0, 5)
            score = (queries[:, i] * keys[:, j]).sum(-1)
            if terms[0]:
                score = score + (queries[:, i] * of_keys[row]).sum(-1)
            if terms[1]:
                score = score + (keys[:, j] * of_queries[row]).sum(-1)
            wanted[:, :, i, j] = score / np.sqrt(WIDTH / HEADS * (1 + sum(terms)))
    wanted = np.where(MASK[:, None, None], wanted, -1e9)
    shares = np.exp(wanted - wanted.max(-1, keepdims=True))
    _, found = attention(
        HIDDEN,
        attention_mask=keras.ops.convert_to_tensor(MASK),
        distance_vectors=embedding(HIDDEN),
        return_attention_scores=True,
    )
    np.testing.assert_allclose(found, shares / shares.sum(-1, keepdims=True), atol=1e-5)


def test_every_layout_has_the_same_numbers():
    attention, embedding = made()
    vectors = embedding(HIDDEN)
    mask = keras.ops.convert_to_tensor(MASK)
    wanted = np.asarray(attention(HIDDEN, attention_mask=mask, distance_vectors=vectors))
    layout = Rows(mask)
    found = attention(
        layout.tokens(keras.ops.convert_to_tensor(HIDDEN)), layout=layout, distance_vectors=vectors
    )
    np.testing.assert_allclose(found, wanted[MASK], atol=1e-5)
    for inner in (PADDED, layout):
        first = Selected(inner, Selection(first=True))
        given = HIDDEN if inner is PADDED else layout.tokens(keras.ops.convert_to_tensor(HIDDEN))
        options = {"attention_mask": mask} if inner is PADDED else {}
        found = attention(given, layout=first, distance_vectors=vectors, **options)
        np.testing.assert_allclose(found, wanted[:, :1], atol=1e-5)


def test_rows_of_distances():
    assert rows_of(range(-5, 6), max_distance=3, num_buckets=None).tolist() == [
        *(0, 0, 0, 1, 2, 3, 4, 5, 5, 5, 5),
    ]
    rows = rows_of(np.arange(-600, 601), max_distance=512, num_buckets=256)
    assert (rows.min(), rows[600], rows.max()) == (0, 256, 511)
    assert rows[600 - 511] == 1
    assert (np.diff(rows) >= 0).all()
    assert (np.diff(rows[600 - 128 : 600 + 129]) == 1).all()


@pytest.mark.reference
@pytest.mark.parametrize(("size", "longest"), [(256, 512), (32, 128), (6, 12), (128, 1024)])
def test_rows_are_those_of_transformers(size, longest):
    import torch
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    distances = np.arange(-2 * longest, 2 * longest + 1)
    theirs = make_log_bucket_position(torch.tensor(distances), size, longest).long().numpy()
    wanted = np.clip(theirs + size, 0, 2 * size - 1)
    found = rows_of(np.clip(distances, -longest, longest), max_distance=longest, num_buckets=size)
    np.testing.assert_array_equal(found, wanted)


def test_a_block_is_saved_and_loaded(tmp_path):
    inputs = keras.Input((None, WIDTH))
    distances = DistanceEmbedding(12, WIDTH, num_buckets=6, max_sequence_length=20)(inputs)
    block = TransformerBlock(
        DisentangledAttention(HEADS, WIDTH, share_projections=False), FeedForward(16, WIDTH)
    )
    model = keras.Model(inputs, block(inputs, distance_vectors=distances))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(HIDDEN), model(HIDDEN))
    paths = {weight.path.rsplit("/", 2)[-2] for weight in again.layers[-1].self_attention.weights}
    assert {"distance_key", "distance_query"} <= paths


def test_dropout_of_distances_and_gradients():
    attention, embedding = made(distance_dropout=0.5)
    call = [
        np.asarray(attention(HIDDEN, distance_vectors=embedding(HIDDEN), training=training))
        for training in (True, True, False, False)
    ]
    assert np.abs(call[0] - call[1]).max() > 1e-3
    np.testing.assert_array_equal(call[2], call[3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DistanceEmbedding(0, 8), "max_distance=0: expected a distance"),
        (lambda: DistanceEmbedding(16, 8, num_buckets=5), "num_buckets=5: expected an even"),
        (lambda: DistanceEmbedding(4, 8, num_buckets=8), "max_distance=4 is too small"),
        (
            lambda: DisentangledAttention(
                2, 8, content_to_position=False, position_to_content=False
            ),
            "one of them must be True",
        ),
        (lambda: DisentangledAttention(2, 8)(HIDDEN), "needs distance_vectors"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_without_distances_nothing_changes():
    attention = MultiHeadAttention(HEADS, WIDTH)
    assert attention.scores_bias(None, queries=HIDDEN, keys=HIDDEN) is None
    assert attention.scale == (WIDTH // HEADS) ** -0.5
