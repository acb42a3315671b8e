"""Sparse embeddings against their definition, in Python and in the graph of an export."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.tasks.sparse_embedding import pipeline as module

# ids: [PAD] [UNK] [CLS] [SEP] [MASK] a film good bad long very ##s . !
TEXTS = ["a good film", "", "very bad films !", "long " * 40]
ROWS = [[2, 5, 7, 6, 3], [2, 3], [2, 10, 8, 6, 11, 13, 3], [2, *[9] * 14, 3]]
TABLE = {"good": 1.5, "film": 0.5, "bad": 2.25, "very": 0.0}


@pytest.fixture(scope="module")
def embed():
    return tiny.pipeline("sparse_embedding")


@pytest.fixture(scope="module")
def with_sides(embed):
    """One with a table and prompts."""
    prompts = {"query": "bad ", "document": "very ", "empty": ""}
    return embed.with_options(query_weights=TABLE, prompts=prompts)


def defined(model, row, *, mode="max", activation="relu"):
    """The weights of a row of token ids, from the logits that the masked-LM head predicts."""
    layers = {layer.name: layer for layer in model.layers}
    inputs = {
        "token_ids": np.array([row]),
        "segment_ids": np.zeros((1, len(row)), "int32"),
        "padding_mask": np.ones((1, len(row)), bool),
    }
    encoder = tiny.keras.Model(model.input, layers["masked_lm_norm"].output)
    vectors = encoder(inputs).numpy()[0].astype("float64")
    matrix, bias = (
        layers[name].weights[0].numpy().astype("float64")
        for name in ("token_embedding", "mask_logits")
    )
    weights = np.log1p(np.maximum(vectors @ matrix.T + bias, 0))
    if activation == "log1p_relu":
        weights = np.log1p(weights)
    return weights.max(axis=0) if mode == "max" else weights.sum(axis=0)


def dense(answer):
    vector = np.zeros(len(tiny.VOCABULARY))
    vector[list(answer.indices)] = answer.weights
    return vector


@pytest.mark.parametrize("mode", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_weights_are_those_of_the_definition(mode, activation):
    model = heads.sparse_embedder(tiny.encoder(), pooling=mode, weight_activation=activation)
    pipeline = kt.pipelines.SparseEmbedder(tiny.lively(model), tiny.wordpiece())
    for answer, row in zip(pipeline(TEXTS), ROWS, strict=True):
        wanted = defined(model, row, mode=mode, activation=activation)
        assert 0 < len(answer.indices) < len(wanted)  # not trivial
        np.testing.assert_allclose(dense(answer), wanted, rtol=1e-5, atol=1e-6)
        assert list(answer.weights) == sorted(answer.weights, reverse=True)
        assert answer.tokens == [tiny.VOCABULARY[index] for index in answer.indices]


def test_the_head_has_the_weights_of_the_one_that_fills_masks():
    encoder = tiny.encoder()
    sparse, fill = heads.sparse_embedder(encoder), heads.masked_lm(encoder)
    assert {w.path for w in sparse.weights} == {w.path for w in fill.weights}


def test_padding_never_counts(embed):
    together = embed(TEXTS)
    for text, answer in zip(TEXTS, together, strict=True):
        alone = embed(text)
        assert alone.tokens == answer.tokens
        np.testing.assert_allclose(alone.weights, answer.weights, atol=1e-6)
    tokens = {
        "token_ids": np.full((2, 5), 7),
        "segment_ids": np.zeros((2, 5), "int32"),
        "padding_mask": np.array([[True] * 5, [False] * 5]),
    }
    for mode in ("max", "sum"):
        model = tiny.lively(heads.sparse_embedder(tiny.encoder(), pooling=mode))
        rows = model(tokens)["sparse_embedding"].numpy()
        assert (rows[0] > 0).any()
        assert (rows[1] == 0).all()


def test_only_the_highest_weights_are_kept(embed):
    for whole, kept in zip(embed(TEXTS), embed(TEXTS, max_active_dims=2), strict=True):
        assert len(kept.indices) == 2 < len(whole.indices)
        assert kept.indices == whole.indices[:2]


def test_a_table_embeds_queries_without_a_model(with_sides):
    answers = with_sides(["film good film", "", "long"], side="query")
    # The prompt of queries is "bad ".
    assert [answer.tokens for answer in answers] == [["bad", "good", "film"], ["bad"], ["bad"]]
    assert answers[0].weights == [2.25, 1.5, 0.5]
    document = with_sides("a film", side="document")
    assert document == with_sides("very a film")
    assert document != with_sides("a film")
    assert with_sides.sides == ("query", "document")
    assert dict(with_sides.query_weights) == {k: v for k, v in TABLE.items() if v}
    same = with_sides.with_options(query_weights=[TABLE.get(t, 0.0) for t in tiny.VOCABULARY])
    assert same.config() == with_sides.config()


def test_dot_products(with_sides):
    query = with_sides("good film", side="query")
    document = with_sides("a good film")
    assert query.dot(document) == pytest.approx(dense(query) @ dense(document))
    assert query.dot(document) == document.dot(query) > 0


def test_chunks_of_a_batch_change_nothing(embed, monkeypatch):
    wanted = embed(TEXTS)
    monkeypatch.setattr(module, "_MOST_LOGITS", 1)  # a row at a time
    for answer, other in zip(embed.with_options()(TEXTS), wanted, strict=True):
        assert answer.tokens == other.tokens
        np.testing.assert_allclose(answer.weights, other.weights, atol=1e-6)


def test_an_empty_batch_and_any_bytes(embed):
    found = embed.answer(text=tf.constant([], tf.string))
    assert {name: tuple(x.shape) for name, x in found.items()} == {
        "indices": (0, 0), "weights": (0, 0), "tokens": (0, 0), "num_active": (0,),
    }  # fmt: skip
    assert embed([b"\xff\xfe \x00"])[0].indices


def test_rows_are_json_and_end_with_their_weights(embed):
    rows = embed.rows({"text": TEXTS})
    assert json.loads(json.dumps(rows)) == rows
    for row in rows:
        lengths = {len(row[name]) for name in ("indices", "weights", "tokens")}
        assert lengths == {row["num_active"]}


@pytest.mark.slow
def test_the_export_answers_alike(with_sides, tmp_path):
    version = kt.export(with_sides, tmp_path / "export")  # checks it in a fresh process
    for side in (None, "query", "document"):
        predict = kt.saved_model.Predictor(version, signature=side or "serving_default")
        for row, answer in zip(predict({"text": TEXTS}), with_sides(TEXTS, side=side), strict=True):
            assert row["tokens"] == answer.tokens
            assert row["indices"] == answer.indices
            np.testing.assert_allclose(row["weights"], answer.weights, atol=1e-5)
    signatures = kt.saved_model.describe(version)["signatures"]
    assert set(signatures) == {"serving_default", "query", "document", "tokens", "tokenize"}


def test_saved_and_loaded(with_sides, tmp_path):
    chosen = with_sides.with_options(side="query", max_active_dims=3, default_prompt_name="empty")
    chosen.save(tmp_path / "saved")
    again = kt.load(tmp_path / "saved")
    assert again.config() == chosen.config()
    assert again(TEXTS) == chosen(TEXTS)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"max_active_dims": 0}, ["max_active_dims=0", "1 to 14"]),
        ({"max_active_dims": 15}, ["max_active_dims=15", "1 to 14"]),
        ({"side": "passage"}, ["'passage'", "'query' or 'document'"]),
        ({"default_prompt_name": "query"}, ["'query'", "none"]),
        ({"query_weights": {"boat": 1.0, "good": 1.0}}, ["'boat'", "1 of 2", "vocabulary"]),
        ({"query_weights": [1.0] * 13}, ["(13,)", "14 tokens"]),
        ({"query_weights": {"good": -1.0}}, ["'good'", "-1.0", "0 or above"]),
        ({"query_weights": {"good": float("nan")}}, ["'good'", "nan", "0 or above"]),
        ({"max_sequence_length": 17}, ["max_sequence_length=17", "16"]),
    ],
)
def test_bad_options(embed, options, parts):
    with pytest.raises(ValueError, match=".") as caught:
        embed.with_options(**options)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_models():
    tokenizer = tiny.wordpiece()
    with pytest.raises(ValueError, match=r"14 tokens.*embeds 11: use the vocabulary"):
        kt.pipelines.SparseEmbedder(heads.sparse_embedder(tiny.encoder(11)), tokenizer)
    with pytest.raises(ValueError, match="sparse_embedding"):
        kt.pipelines.SparseEmbedder(tiny.encoder(), tokenizer)
    with pytest.raises(ValueError, match="mode='mean': use 'max' or 'sum'"):
        heads.sparse_embedder(tiny.encoder(), pooling="mean")
