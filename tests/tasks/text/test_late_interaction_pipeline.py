"""Late interaction: vectors of tokens, MaxSim, its options, its export and its training."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers import heads

QUERIES = ["a good film", "very bad", ""]
DOCUMENTS = [["bad film .", "good !", "a"], ["", "very long film", ""], []]


@pytest.fixture(scope="module")
def rank():
    return tiny.pipeline("late_interaction")


def vectors(rank, side, text):
    """The vectors of one text, computed eagerly, which takes less time than a graph."""
    signature = rank.other_signatures([])[side]
    return signature.function(text=tf.constant([text]))["vectors"][0].numpy()


def make(**options):
    model = tiny.lively(heads.token_embedder(tiny.encoder(), width=6))
    return kt.pipelines.LateInteraction(model, tiny.wordpiece(), **options)


def test_scores_are_those_of_the_vectors(rank):
    found = rank(QUERIES, DOCUMENTS)
    for query, documents, ranking in zip(QUERIES, DOCUMENTS, found, strict=True):
        pairs = [(i, document) for i, document in enumerate(documents) if document]
        tokens = rank.query_vectors(query)
        expected = [(tokens @ rank.document_vectors(text).T).max(axis=1).sum() for _, text in pairs]
        np.testing.assert_allclose([ranking.scores[i] for i, _ in pairs], expected, rtol=1e-5)
        best_first = [pairs[i][0] for i in np.argsort(-np.array(expected), kind="stable")]
        assert [i for i in ranking.order if i >= 0] == best_first
        assert all(score == 0 for score, text in zip(ranking.scores, documents, strict=False)
                   if not text)  # fmt: skip


def test_one_query_and_many(rank):
    assert rank("a film", ["bad", "good"]) == rank(["a film"], [["bad", "good"]])[0]
    one, other = rank.document_vectors(["a very long film", "bad"])
    np.testing.assert_allclose(one, rank.document_vectors("a very long film"), atol=1e-6)
    assert (one.shape, other.shape) == ((6, 6), (3, 6))
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1, rtol=1e-5)
    assert rank.query_vectors([]) == []
    with pytest.raises(ValueError, match=r"text\[1\] is None"):
        rank.document_vectors(["a", None])


def test_a_batch_changes_no_answer(rank):
    documents = ["a very long film " * 4, "good", "bad film !", ""]
    together = rank(["good film"] * 2, [documents, documents[::-1]], batch_size=2)
    for text, one, other in zip(
        documents, together[0].scores, [*together[1].scores[::-1]], strict=False
    ):
        alone = rank("good film", [text]).scores
        np.testing.assert_allclose([one, other], [*alone, *alone] or [0, 0], atol=1e-5)


def tokens_of(tokens, counts):
    vocabulary = np.array(tiny.VOCABULARY)
    return [
        " ".join(vocabulary[row[mask]])
        for row, mask in zip(tokens["token_ids"].numpy(), counts.numpy(), strict=True)
    ]


def test_what_the_model_reads():
    texts = tf.constant(["a film", "a very long good film"])
    rank = make(query_length=6, query_prefix="good ", query_expansion="attended")
    tokens, counts = rank.encode_queries(texts)
    assert tokens_of(tokens, counts) == [
        "[CLS] good a film [SEP] [MASK]",
        "[CLS] good a very long [SEP]",
    ]
    assert tokens["padding_mask"].numpy().all()
    shorter = rank.with_options(expansion_length=4, expansion_token="bad", query_prefix="")
    tokens, counts = shorter.encode_queries(tf.constant(["a", "a very long film"]))
    assert tokens_of(tokens, counts) == ["[CLS] a [SEP] bad", "[CLS] a very long film [SEP]"]
    skipping = make(document_length=5, skipped_tokens=["film", ".", "no such token"])
    tokens, counts = skipping.encode_documents(tf.constant(["a film . good"]))
    assert tokens_of(tokens, counts) == ["[CLS] a [SEP]"]
    assert tokens["padding_mask"].numpy().sum() == 5  # the others attend to them
    tokens, counts = make().encode_queries(tf.constant(["a", ""]))
    assert tokens_of(tokens, counts) == ["[CLS] a [SEP]", "[CLS] [SEP]"]


def test_a_prefix_is_a_token_or_a_text(caplog):
    text = tf.constant(["a"])

    def read(**options):
        return tokens_of(*make(**options).encode_queries(text))[0]

    assert read(query_prefix="[MASK] ") == "[CLS] [MASK] a [SEP]"  # which the tokenizer splits
    unknown = "[CLS] [UNK] [UNK] [UNK] a [SEP]"
    assert read(query_prefix="[MASK] ", prefix_as_text=True) == unknown
    with caplog.at_level(logging.WARNING):
        assert read(query_prefix="[Q] ") == unknown
    assert "'[Q]' is not a token of the vocabulary" in caplog.text


def test_unattended_tokens_change_no_others():
    plain = make(query_length=8)
    read = {name: make(query_length=8, query_expansion=name) for name in ("attended", "unattended")}
    alone = vectors(plain, "query", "a good film")
    found = {name: vectors(rank, "query", "a good film") for name, rank in read.items()}
    assert (alone.shape, found["attended"].shape) == ((5, 6), (8, 6))
    np.testing.assert_allclose(found["unattended"][:5], alone, atol=1e-5)
    assert np.abs(found["attended"][:5] - alone).max() > 1e-2
    # The option gives the model its input, or takes it away.
    again = read["unattended"].with_options(query_expansion="attended")
    np.testing.assert_array_equal(vectors(again, "query", "a good film"), found["attended"])
    assert set(again.model.input) == set(plain.model.input)


def test_a_document_of_skipped_tokens_has_the_special_ones(rank):
    assert rank.document_vectors("! . !").shape == (2, 6)
    assert np.isfinite(rank("a film", ["! . !"]).scores).all()


def test_the_export_answers_the_same(rank):
    loaded = tf.saved_model.load(str(tiny.exported("late_interaction"))).signatures
    given = {
        "text": tf.constant(["a good film", "bad"]),
        "documents": tf.constant([["bad film .", "good !", ""], ["film", "", ""]]),
    }
    found, expected = loaded["serving_default"](**given), rank.answer(**given)
    assert found["num_documents"].numpy().tolist() == [2, 1]
    np.testing.assert_array_equal(found["order"], expected["order"])
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-5)
    texts = ["a good film", "", "very long . film !"]
    for name, wanted in (
        ("query", rank.query_vectors(texts)),
        ("document", rank.document_vectors(texts)),
    ):
        found = loaded[name](text=tf.constant(texts))
        assert found["num_vectors"].numpy().tolist() == [len(rows) for rows in wanted]
        for rows, row, count in zip(wanted, found["vectors"], found["num_vectors"], strict=True):
            np.testing.assert_allclose(row[:count], rows, atol=1e-5)
            assert not row[count:].numpy().any()


@pytest.mark.slow
@pytest.mark.parametrize("expansion", [None, "attended", "unattended"])
def test_every_expansion_is_exported(expansion, tmp_path):
    options = {} if expansion is None else {"query_expansion": expansion}
    rank = make(query_length=10, **options)
    export = kt.export(rank, tmp_path / "export")  # which checks it in a fresh process
    found = kt.saved_model.Predictor(export)({"text": ["a film"], "documents": [["good", "bad"]]})
    np.testing.assert_allclose(found[0]["scores"], rank("a film", ["good", "bad"]).scores, 1e-4)


def test_saved_pipelines_come_back(rank, tmp_path):
    rank.save(tmp_path / "saved")
    again = kt.load(tmp_path / "saved")
    assert again.config() == rank.config()
    one, other = (vectors(each, "query", "a film") for each in (rank, again))
    np.testing.assert_array_equal(one, other)
    encoder = kt.load(tmp_path / "saved", pipeline="embedding")  # without the head and its input
    assert set(encoder.model.input) == {"token_ids", "segment_ids", "padding_mask"}


def test_a_new_projection(caplog):
    with caplog.at_level(logging.WARNING):
        rank = kt.pipelines.LateInteraction(tiny.encoder(), tiny.wordpiece())
    assert "projection to 128 dimensions is new" in caplog.text
    assert vectors(rank, "query", "a film").shape == (4, 128)
    assert (rank.query_length, rank.document_length) == (16, 16)  # the model's positions


WORDS = ("good", "bad", "long", "very")
DATA = {
    "query": [f"a {word} film" for word in WORDS] * 4,
    "positive": [f"{word} !" for word in WORDS] * 4,
    "negatives": [[f"{WORDS[i - 1]} !", "film"] for i in range(4)] * 4,
}


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"scores": [[9.0, 1.0, 0.0]] * 16}])
def test_training_learns_from_negatives_and_a_teacher(more):
    keras.utils.set_random_seed(0)
    model = heads.token_embedder(tiny.encoder(), width=6)
    rank = kt.pipelines.LateInteraction(model, tiny.wordpiece())
    options = {"epochs": 4, "batch_size": 4, "learning_rate": 2e-2, "quiet": True}
    losses = kt.fit(rank, DATA | more, **options).history["loss"]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"scores": [[1.0, 0.0]] * 16}, r"row 0.*2 teacher's scores for 3 documents"),
        ({"scores": [0.5] * 16}, r"row 0.*0\.5, expected a list with a teacher's score"),
        ({"negatives": [3] * 16}, r"row 0.*\[3\], expected a text that does not answer"),
    ],
)
def test_bad_data(columns, message):
    with pytest.raises(ValueError, match=message):
        kt.fit(make(), DATA | columns)


def test_a_report_on_an_export_is_that_of_the_pipeline(rank):
    data = [(f"a {word} film", f"{word} !") for word in ("good", "bad", "long", "very")]
    report = kt.saved_model.evaluate_export(tiny.exported("late_interaction"), data)
    figures = kt.evaluate(rank, data)
    assert {"recall_at_1", "recall_at_10", "mrr_at_10", "ndcg_at_10"} <= set(figures)
    for name in ("recall_at_1", "mrr_at_10", "ndcg_at_10"):
        assert report.figures[name] == pytest.approx(figures[name])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query_length": 2}, "query_length=2: expected at least 3, to hold the special tokens"),
        ({"query_length": 3, "query_prefix": "good "}, "query_length=3: expected at least 4"),
        ({"document_length": 17}, "document_length=17: expected at least 3.* at most 16"),
        ({"query_length": True}, "query_length=True"),
        ({"query_prefix": 3}, "query_prefix=3: expected a string"),
        ({"query_expansion": "yes"}, "query_expansion='yes': use 'attended' or 'unattended'"),
        ({"expansion_length": 8}, "expansion_length=8.*leave them out, or choose"),
        (
            {"query_expansion": "attended", "expansion_length": 17},
            "expansion_length=17: expected 1 to 16",
        ),
        (
            {"query_expansion": "attended", "expansion_token": "[Q]"},
            r"expansion_token='\[Q\]' is not a token of the vocabulary",
        ),
        ({"skipped_tokens": ".!"}, "skipped_tokens='.!': expected a list of tokens"),
        ({"width": 8}, "width=8 for model .*already has token vectors"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_models_and_tokenizers_that_do_not_fit():
    with pytest.raises(ValueError, match="'embedding'.*no output 'sequence_output'|no output"):
        kt.pipelines.LateInteraction(heads.embedder(tiny.encoder()), tiny.wordpiece())
    dense = keras.layers.Dense(4, use_bias=False)
    dense.build((None, 9))
    with pytest.raises(ValueError, match="takes 9 dimensions, but gets 8 in model 'bert'"):
        heads.token_embedder(tiny.encoder(), projections=[dense])
    with pytest.raises(ValueError, match="width=3: the last of projections has it"):
        heads.token_embedder(tiny.encoder(), projections=[], width=3)
    tokenizer = tiny.talker().tokenizer  # of a language model
    encoder = tiny.encoder(tokenizer.vocabulary_size)
    with pytest.raises(ValueError, match="DescribedTokenizer has no mask token: pass expansion_"):
        kt.pipelines.LateInteraction(encoder, tokenizer, query_expansion="attended")
