"""The contrastive losses against NumPy, and cached gradients against those of the whole batch."""

import keras
import numpy as np
import pytest

from keras_transformers.training import InBatchContrast, PairSimilarity, cache_gradients

RANDOM = np.random.default_rng(0)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def crossentropy(texts, candidates, ids, right_ids, text_ids, temperature):
    """The definition, one text at a time."""
    found = []
    for i, text in enumerate(texts):
        scores = [
            text @ candidate / temperature
            for j, candidate in enumerate(candidates)
            if j == i or ids[j] not in (right_ids[i], text_ids[i])
        ]
        found.append(np.log(np.sum(np.exp(scores))) - text @ candidates[i] / temperature)
    return np.array(found)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("dims", [(), (3, 6)])
@pytest.mark.parametrize("num_negatives", [0, 2])
def test_in_batch_contrast(symmetric, dims, num_negatives):
    vectors = RANDOM.normal(size=(5, 2 + num_negatives, 6))
    ids = np.arange(5 * (2 + num_negatives)).reshape(5, -1)
    ids[3, 1] = ids[0, 1]  # two texts have the same partner
    ids[4, 0] = ids[1, 1]  # and one is another's partner
    expected = []
    for size in dims or (6,):
        cut = unit(vectors[..., :size])
        candidates = np.concatenate([cut[:, 1], cut[:, 2:].reshape(-1, size)])
        candidate_ids = np.concatenate([ids[:, 1], ids[:, 2:].ravel()])
        loss = crossentropy(cut[:, 0], candidates, candidate_ids, ids[:, 1], ids[:, 0], 0.1)
        if symmetric:
            back = crossentropy(cut[:, 1], cut[:, 0], ids[:, 0], ids[:, 0], ids[:, 1], 0.1)
            loss = (loss + back) / 2
        expected.append(loss)
    loss = InBatchContrast(temperature=0.1, symmetric=symmetric, dims=dims)
    found = loss.call(keras.ops.array(ids, "int32"), keras.ops.array(vectors, "float32"))
    np.testing.assert_allclose(found, np.mean(expected, axis=0), rtol=2e-5)
    again = InBatchContrast.from_config(loss.get_config())
    assert again.get_config() == loss.get_config()


def test_pair_similarity():
    vectors, scores = RANDOM.normal(size=(4, 2, 6)), np.array([0.0, 1.0, 0.5, -1.0])
    cosines = np.sum(unit(vectors)[:, 0] * unit(vectors)[:, 1], axis=-1)
    found = PairSimilarity().call(keras.ops.array(scores), keras.ops.array(vectors))
    np.testing.assert_allclose(found, (cosines - scores) ** 2, rtol=1e-5)


@pytest.mark.parametrize("make", [InBatchContrast, PairSimilarity])
def test_dimensions_beyond_the_vectors(make):
    with pytest.raises(ValueError, match=r"dims=\[9\]: the vectors have 6 dimensions"):
        make(dims=[9]).call(keras.ops.zeros((2, 2), "int32"), keras.ops.ones((2, 2, 6)))
    with pytest.raises(ValueError, match=r"dims=\[0\]: each must be 1 or more"):
        make(dims=[0])


def test_temperature():
    with pytest.raises(ValueError, match="temperature=0: must be above 0"):
        InBatchContrast(temperature=0)


def model(dropout):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2, 4), name="x")
    hidden = keras.layers.Dense(8, activation="tanh")(inputs)
    hidden = keras.layers.Dropout(dropout)(hidden)
    made = keras.Model({"x": inputs}, {"embedding": keras.layers.Dense(5)(hidden)})
    made.compile(keras.optimizers.SGD(0.5), loss={"embedding": InBatchContrast(temperature=0.2)})
    return made


DATA = RANDOM.normal(size=(11, 2, 4)).astype("float32")
IDS = np.arange(22, dtype="int32").reshape(11, 2)


@pytest.mark.one_case
@pytest.mark.parametrize("chunk", [1, 4, 11, 50])
def test_cached_gradients_are_those_of_the_whole_batch(chunk):
    whole, cached = model(0.0), model(0.0)
    cache_gradients(cached, chunk=chunk)
    losses = [
        each.fit({"x": DATA}, {"embedding": IDS}, batch_size=11, epochs=3, verbose=0, shuffle=False)
        for each in (whole, cached)
    ]
    np.testing.assert_allclose(*(each.history["loss"] for each in losses), rtol=1e-5)
    for one, other in zip(whole.get_weights(), cached.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_the_second_pass_has_the_dropout_of_the_first():
    """With other dropout, the update would not be the loss's gradient."""
    cached, whole = model(0.5), model(0.5)
    cache_gradients(cached, chunk=11)  # one chunk: the dropout of the whole batch
    for each in (whole, cached):
        each.fit({"x": DATA}, {"embedding": IDS}, batch_size=11, epochs=2, verbose=0, shuffle=False)
    for one, other in zip(whole.get_weights(), cached.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_chunk():
    with pytest.raises(ValueError, match="chunk=0: must be 1 or more examples"):
        cache_gradients(model(0.0), chunk=0)
