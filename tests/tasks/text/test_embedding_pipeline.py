import json

import numpy as np
import pytest
import tensorflow as tf
from answer_checks import restored
from pretrained_models import lively_encoder

from keras_transformers import heads
from keras_transformers.pipelines import Embedder
from keras_transformers.saved_model.description import METADATA_FILE

TEXTS = ["a good film", "", b"\xff\xfe\x00", "long " * 3000, "very bad films!"]


@pytest.fixture(scope="module")
def encoder():
    return lively_encoder()


def expected_embedding(encoder, tokenizer, texts, pooling="mean"):
    tokens = tokenizer(texts, max_sequence_length=16)
    vectors = encoder(tokens)["sequence_output"].numpy().astype("float64")
    rows = [
        row[mask].mean(0) if pooling == "mean" else row[0]
        for row, mask in zip(vectors, tokens["padding_mask"].numpy(), strict=True)
    ]
    return np.array([row / np.linalg.norm(row) for row in rows])


def found_vectors(embed, texts):
    return np.array([answer.vector for answer in embed(texts)])


def test_vectors_are_the_encoders_pooled_and_of_length_one(encoder, tokenizer):
    found = found_vectors(Embedder(encoder, tokenizer), TEXTS)
    expected = expected_embedding(encoder, tokenizer, TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, atol=1e-5)


def test_cls_pooling_and_no_length_of_one(encoder, tokenizer):
    embed = Embedder(encoder, tokenizer, pooling="cls", normalize=False)
    (found,) = found_vectors(embed, ["a good film"])
    assert abs(np.linalg.norm(found) - 1) > 0.1
    (expected,) = expected_embedding(encoder, tokenizer, ["a good film"], "cls")
    np.testing.assert_allclose(found / np.linalg.norm(found), expected, atol=1e-5)


def test_an_embedder_is_taken_as_it_is(encoder, tokenizer, tmp_path):
    model = heads.embedder(encoder, pooling="cls", normalize=False)
    embed = Embedder(model, tokenizer, max_sequence_length=9)
    (found,) = found_vectors(embed, ["very bad"])
    (expected,) = expected_embedding(encoder, tokenizer, ["very bad"], "cls")
    np.testing.assert_allclose(found / np.linalg.norm(found), expected, atol=1e-5)
    restored(embed, tmp_path / "saved", TEXTS)
    for choice in ({"pooling": "mean"}, {"normalize": False}):
        with pytest.raises(ValueError, match="which already pools"):
            Embedder(model, tokenizer, **choice)


def token_inputs(rows, padding_mask=None):
    token_ids = tf.constant(rows, tf.int32)
    mask = tf.ones_like(token_ids, tf.bool) if padding_mask is None else tf.constant(padding_mask)
    return {"token_ids": token_ids, "segment_ids": 0 * token_ids, "padding_mask": mask}


def test_signatures(run):
    answer = run("embedding", text=tf.constant(TEXTS))
    assert set(answer) == {"embedding"}
    assert answer["embedding"].dtype == np.float32
    assert answer["embedding"].shape == (5, 8)
    assert run("embedding", text=tf.constant([], tf.string))["embedding"].shape == (0, 8)
    tokens = run("embedding", "tokens", **token_inputs([[2, 5, 7, 6, 3]]))
    np.testing.assert_allclose(tokens["embedding"], answer["embedding"][:1], atol=1e-5)


@pytest.mark.slow
def test_metadata_tell_what_was_exported(exports):
    metadata = json.loads((exports("embedding") / METADATA_FILE).read_text())
    assert (metadata["task"], metadata["embedding_dim"]) == ("embedding", 8)


def test_tokens_that_do_not_fit_are_refused(run):
    with pytest.raises(tf.errors.InvalidArgumentError, match="token_ids.*14 tokens"):
        run("embedding", "tokens", **token_inputs([[2, 14, 3]]))
    mask = [[True, True], [False, False]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="a row has only padding"):
        run("embedding", "tokens", **token_inputs([[2, 3], [0, 0]], mask))
