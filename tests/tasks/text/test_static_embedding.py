"""Static vectors: distilled from an encoder, trained on its vectors, and served by a look-up."""

import graph_checks
import numpy as np
import pytest
import tensorflow as tf
from pretrained_models import lively_encoder

import keras_transformers as kt
from keras_transformers.fitting import distil_static, train_static
from keras_transformers.pipelines import Embedder
from keras_transformers.tasks.embedding.head import embedder_parts
from keras_transformers.tasks.embedding.static import _principal, _zipf_weights
from keras_transformers.tokenizers import BareTokenizer, BareWordPieceTokenizer

WORDS = ["a", "good", "film", "films", "very", "bad", "long", "!"]
TEXTS = ["a good film", "", "zebra", "very bad films!", b"\xff\xfe film", "good " * 40]


@pytest.fixture(scope="module")
def teacher(tokenizer):
    return Embedder(lively_encoder(), tokenizer)


@pytest.fixture
def static(teacher):
    return distil_static(teacher, dims=4)


def vectors(embed, texts=TEXTS):
    return np.array([answer.vector for answer in embed(texts)], np.float32)


def sentences(count=300, seed=0):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, generator.integers(1, 7))) for _ in range(count)]


def test_tokens_go_through_the_encoder_alone(teacher, static):
    tokenizer = teacher.tokenizer
    special = [tokenizer.vocabulary.index(name) for name in tokenizer.special_names.values()]
    tokens = [i for i in range(tokenizer.vocabulary_size) if i not in special]
    before, after = tokenizer.special_tokens(1)
    encoder = embedder_parts(teacher.model).encoder
    rows = np.array([[*before, token, *after] for token in tokens])
    inputs = {"token_ids": rows, "segment_ids": 0 * rows, "padding_mask": rows >= 0}
    vectors = np.asarray(encoder(inputs)["sequence_output"], "float64")
    found = vectors.mean(axis=1)
    expected = _principal(found, 4) * _zipf_weights(len(tokens), 1e-4)[:, None]
    (table,) = static.model.get_weights()
    np.testing.assert_allclose(table[tokens], expected, atol=1e-4 * np.abs(expected).max())
    assert not table[special].any()


def test_principal_components_and_weights():
    rows = np.random.default_rng(0).normal(size=(50, 6)) @ np.diag([5, 1, 3, 1, 1, 1])
    found = _principal(rows, 2)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-9)
    covariance = found.T @ found
    values = np.linalg.eigvalsh(np.cov(rows.T) * 49)[::-1]
    np.testing.assert_allclose(covariance, np.diag(values[:2]), atol=1e-6 * values[0])
    weights = _zipf_weights(1000, 1e-4)
    total = (1 / np.arange(2, 1002)).sum()
    np.testing.assert_allclose(
        weights[[0, 999]], [1e-4 / (1e-4 + 1 / k / total) for k in (2, 1001)]
    )
    assert (np.diff(weights) > 0).all()
    assert (_zipf_weights(3, None) == 1).all()


def test_words_of_ones_own(teacher):
    plain = teacher.tokenizer.tokenize(["goodfilm"]).to_list()
    assert plain != [[teacher.tokenizer.vocabulary_size]]
    static = distil_static(teacher, dims=4, words=["goodfilm", "zebra"])
    size = teacher.tokenizer.vocabulary_size
    assert static.tokenizer.tokenize(["goodfilm zebra good"]).to_list()[0][:2] == [size, size + 1]
    assert static.model.count_params() == 4 * (size + 2)
    assert vectors(static, ["goodfilm"]).any()
    for words, message in (
        (["Good film"], "does not find 'Good film' as one word"),
        (["good"], "'good' occurs twice"),
        ("zebra", "expected a list"),
    ):
        with pytest.raises(ValueError, match=message):
            distil_static(teacher, dims=4, words=words)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": 9}, "dims=9: expected 1 to 8; the encoder's vectors have 8"),
        ({"dims": 0}, "dims=0"),
        ({"dims": 4, "sif": 1.5}, "sif=1.5"),
    ],
)
def test_what_cannot_be_distilled(teacher, static, options, message):
    with pytest.raises(ValueError, match=message):
        distil_static(teacher, **options)
    with pytest.raises(ValueError, match="static vectors already"):
        distil_static(static, dims=2)


def bag_vectors(texts):
    """A teacher that static vectors can equal: the means of random vectors of words."""
    words = {word: np.random.default_rng(len(word) + 7).normal(size=8) for word in WORDS}
    means = np.array([np.mean([words[word] for word in text.split()], axis=0) for text in texts])
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def cosines(rows):
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows @ rows.T)[np.triu_indices(len(rows), 1)]


@pytest.mark.one_case
@pytest.mark.parametrize("loss", ["cosine", "mse"])
def test_training_gets_nearer_to_the_teacher(static, loss):
    texts, others = sentences(), sentences(50, seed=1)
    wanted = cosines(bag_vectors(others))
    before = np.corrcoef(cosines(vectors(static, others)), wanted)[0, 1]
    options = {"learning_rate": 0.05, "epochs": 20, "batch_size": 32, "verbose": 0}
    found = train_static(static, bag_vectors(texts), texts, loss=loss, **options)
    assert found["val_cosine_before"] <= found["val_cosine"] + 1e-3
    assert 0.9 < found["val_cosine"] <= 1
    after = np.corrcoef(cosines(vectors(static, others)), wanted)[0, 1]
    assert before < after
    assert after > 0.8


@pytest.mark.slow
def test_training_on_an_embedder_and_with_frequencies(teacher, static):
    texts = sentences(100)
    options = {"epochs": 1, "verbose": 0, "seed": 3}
    train_static(static, vectors(teacher, texts), texts, **options)
    again = distil_static(teacher, dims=4)
    train_static(again, teacher, texts, **options)
    np.testing.assert_allclose(
        cosines(vectors(again, texts)), cosines(vectors(static, texts)), atol=1e-3
    )
    weighted = distil_static(teacher, dims=4)
    train_static(weighted, teacher, texts, sif=1e-3, **options)
    frequent = static.tokenizer.vocabulary.index("good")
    before, after = again.model.get_weights()[0], weighted.model.get_weights()[0]
    assert np.linalg.norm(after[frequent]) < 0.1 * np.linalg.norm(before[frequent])


def test_what_cannot_be_trained(teacher, static):
    texts = sentences(40)
    targets = vectors(teacher, texts)
    broken = targets.copy()
    broken[7, 0] = np.nan
    cases = [
        ((teacher, targets, texts), {}, "not the mean of static vectors"),
        ((static, broken, texts), {}, "vector of text 7 has NaN"),
        ((static, targets[:-1], texts), {}, "for 40 texts"),
        ((static, targets[:, :2], texts), {}, "2 dimensions, the static ones 4"),
        ((static, targets, ["zebra"] * 40), {}, "0 texts with known tokens"),
        ((static, targets, texts), {"loss": "dot"}, "loss='dot'"),
        ((static, targets, texts), {"epochs": 0}, "epochs=0"),
        ((static, targets, texts), {"validation_share": 1.0}, "validation_share=1.0"),
    ]
    for arguments, options, message in cases:
        with pytest.raises(ValueError, match=message):
            train_static(*arguments, verbose=0, **options)


@pytest.mark.one_case
@pytest.mark.parametrize("weights_dtype", ["float32", "bfloat16", "int8"])
def test_the_export_gives_the_same_vectors(static, weights_dtype, tmp_path):
    folder = kt.export(static, tmp_path / "static", weights_dtype=weights_dtype)
    served = tf.saved_model.load(str(folder)).signatures
    found = served["serving_default"](text=tf.constant(TEXTS))["embedding"].numpy()
    tolerance = {"float32": 1e-6, "bfloat16": 1e-2, "int8": 2e-2}[weights_dtype]
    np.testing.assert_allclose(found, vectors(static), atol=tolerance)
    assert not found[[1, 2]].any()
    tokens = static.encode(tf.constant(TEXTS))
    again = served["tokens"](**tokens)["embedding"].numpy()
    np.testing.assert_allclose(again, found, atol=1e-6)
    if weights_dtype == "float32":
        products = {node.op for node in graph_checks.nodes(folder)} & {"MatMul", "BatchMatMulV2"}
        assert not products  # a look-up, and a mean


def test_it_is_a_pipeline_as_any_other(teacher, static, tmp_path):
    pairs = (["a good film", "very bad", "a film"] * 4, ["good film", "bad films", "films"] * 4)
    kt.fit(static, pairs, epochs=1, batch_size=4, quiet=True)
    assert "ndcg_at_10" in kt.evaluate(static, pairs)
    table = kt.predict(static, {"text": ["a good film", ""]})
    assert len(table["embedding"][0]) == 4
    assert not np.any(table["embedding"][1])
    kt.save(static, tmp_path / "theirs", format="huggingface")
    again = kt.load(tmp_path / "theirs")
    assert isinstance(again.tokenizer, BareTokenizer)
    assert isinstance(again.tokenizer.tokenizer, BareWordPieceTokenizer)
    np.testing.assert_allclose(vectors(again), vectors(static), atol=1e-6)
