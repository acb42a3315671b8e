"""Search: hits are the exact best texts, in Python and in the export; bad corpora are refused."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers.evaluation import bm25_similarities
from keras_transformers.tasks.embedding import searching
from keras_transformers.tasks.search.postings import Postings

TEXTS = [
    "a good film .",
    "very bad film !",
    "long and good , very good",
    "not a film",
    "bad",
    "A film, a good film; a very GOOD film",
    "naïve Übung ÜBUNG x1_y 42",
]
QUERIES = ["good film", "bad ?", "übung good good", "unknown", ""]


@pytest.fixture(scope="module")
def embed():
    return tiny.pipeline("embedding")


@pytest.fixture(scope="module")
def corpus():
    return kt.pipelines.Corpus(TEXTS, ids=[f"doc{i}" for i in range(len(TEXTS))])


@pytest.fixture(scope="module")
def words(corpus):
    return kt.pipelines.WordIndex(corpus)


def test_words_score_as_bm25s(words):
    found = words.scores(tf.constant(QUERIES)).numpy()
    np.testing.assert_allclose(found, bm25_similarities(QUERIES, TEXTS), atol=1e-6)
    assert found.any(axis=1).tolist() == [True, True, True, False, False]


def test_k1_and_b(corpus):
    index = kt.pipelines.WordIndex(corpus, k1=0.0, b=0.0)
    # Without saturation and length, a word counts its idf wherever it is.
    assert len({*index.scores(tf.constant(["good"])).numpy()[0].tolist()}) == 2
    for options in ({"k1": -1}, {"b": 1.5}, {"k1": float("nan")}):
        with pytest.raises(ValueError, match="expected k1 from 0 and b from 0 to 1"):
            kt.pipelines.WordIndex(corpus, **options)


def test_postings_are_dot_products():
    matrix = np.random.default_rng(0).normal(size=(5, 9)).astype(np.float32)
    matrix[matrix < 0.3] = 0
    terms, documents = np.nonzero(matrix)
    index = Postings(*(terms, documents, matrix[terms, documents]), num_terms=5, num_documents=9)
    query = tf.ragged.constant([[0, 3, 3], [], [4]], dtype=tf.int64)
    weights = tf.constant([1.0, 2.0, 0.5, -1.0])
    expected = np.stack([matrix[0] + 2.5 * matrix[3], np.zeros(9), -matrix[4]])
    np.testing.assert_allclose(index.scores(query, weights), expected, atol=1e-6)


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-6), ("int8", 4e-3)])
def test_vectors_score_cosines(embed, corpus, dtype, error):
    index = kt.pipelines.VectorIndex(embed, corpus, vectors_dtype=dtype)
    queries, texts = (searching.unit(searching.vectors(embed, x)) for x in (QUERIES, TEXTS))
    np.testing.assert_allclose(index.scores(tf.constant(QUERIES)), queries @ texts.T, atol=error)


@pytest.mark.parametrize("width", [8, 64, 100])
def test_bits_are_compared_and_the_best_again(width, monkeypatch):
    monkeypatch.setattr(kt.tasks.search.vectors, "_COMPARED_AGAIN", 20)
    rng = np.random.default_rng(0)
    texts, queries = (rng.normal(size=(n, width)).astype(np.float32) for n in (300, 3))
    stored = kt.tasks.search.vectors._KINDS["binary"](texts)
    found = stored.cosines(tf.constant(queries)).numpy()
    signs = np.where(texts > 0, 1, -1)
    in_common = (np.where(queries > 0, 1, -1) @ signs.T) / width
    for row, query, common in zip(found, queries, in_common, strict=True):
        best = np.argsort(-common, kind="stable")[:20]
        np.testing.assert_allclose(row[best], signs[best] @ query / np.sqrt(width), rtol=1e-5)
        others = np.setdiff1d(np.arange(300), best)
        assert row[others].max() <= row[best].min() + 1e-6
        order = np.argsort(-row[others], kind="stable")
        np.testing.assert_array_equal(order, np.argsort(-common[others], kind="stable"))
    assert stored.variables[0].shape == (300, -(-width // 64))


def test_many_chunks(embed):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1300, 8)).astype(np.float32)
    corpus = kt.pipelines.Corpus([f"text {i}" for i in range(len(vectors))])
    unit = searching.unit(vectors)
    query = searching.unit(rng.normal(size=(3, 8)).astype(np.float32))
    for kind, atol in (("int8", 0.02), ("float32", 1e-6)):
        stored = kt.tasks.search.vectors._KINDS[kind](unit)
        np.testing.assert_allclose(stored.cosines(tf.constant(query)), query @ unit.T, atol=atol)
    assert len(corpus) == 1300


@pytest.mark.parametrize("dtype", ["float32", "int8", "binary"])
def test_no_queries(embed, corpus, dtype):
    index = kt.pipelines.VectorIndex(embed, corpus, vectors_dtype=dtype)
    search = kt.pipelines.Searcher(corpus, [index], top_k=3)
    hits = search.answer(text=tf.zeros([0], tf.string))
    assert {name: len(output) for name, output in hits.items()} == dict.fromkeys(hits, 0)


def test_hits_are_the_best_texts(embed, corpus, words):
    vectors = kt.pipelines.VectorIndex(embed, corpus)
    search = kt.pipelines.Searcher(corpus, [vectors, words], index_weights=[1, 0.5], top_k=3)
    found = search(QUERIES)
    each = [index.scores(tf.constant(QUERIES)).numpy() for index in (vectors, words)]
    scaled = [
        np.divide(x - x.mean(1, keepdims=True), x.std(1, keepdims=True),
                  out=np.zeros_like(x), where=x.std(1, keepdims=True) > 0)
        for x in each
    ]  # fmt: skip
    sums = scaled[0] + 0.5 * scaled[1]
    order = np.argsort(-sums, axis=1, kind="stable")[:, :3]
    for hits, row, best in zip(found, sums, order, strict=True):
        assert hits.ids == [f"doc{i}" for i in best]
        assert hits.texts == [TEXTS[i] for i in best]
        np.testing.assert_allclose(hits.scores, row[best], atol=1e-4)
    assert search("good film").ids == found[0].ids
    assert len(search("good film", top_k=1).ids) == 1


@pytest.mark.slow
def test_reranked_hits(embed, corpus):
    rank = tiny.pipeline("reranking")
    search = kt.pipelines.Searcher.of(embed, corpus, rerank=rank, num_candidates=4, top_k=2)
    candidates = kt.pipelines.Searcher.of(embed, corpus, top_k=4)("good film").texts
    found = search("good film")
    scores = rank("good film", candidates).scores
    best = np.argsort(-np.array(scores), kind="stable")[:2]
    assert found.texts == [candidates[i] for i in best]
    np.testing.assert_allclose(found.scores, np.array(scores)[best], atol=1e-6)
    assert len(search("good film", top_k=6).ids) == 6  # more candidates than usual


def test_a_reranker_and_the_indexes_decide_together(embed, corpus):
    rank = tiny.pipeline("reranking")
    first = kt.pipelines.Searcher.of(embed, corpus, top_k=4)("good film")
    search = kt.pipelines.Searcher.of(
        *(embed, corpus), rerank=rank, num_candidates=4, first_stage_weight=0.5, top_k=4
    )
    ranked, cosines = np.array(rank("good film", first.texts).scores), np.array(first.scores)
    sums = (ranked - ranked.mean()) / ranked.std()
    sums += 0.5 * (cosines - cosines.mean()) / cosines.std()
    found = search("good film")
    assert found.ids == [first.ids[i] for i in np.argsort(-sums)]
    np.testing.assert_allclose(found.scores, np.sort(sums)[::-1], atol=1e-3)
    assert search("good film", first_stage_weight=100.0).ids == first.ids


@pytest.fixture(scope="module")
def exported(embed, corpus, words, tmp_path_factory):
    search = kt.pipelines.Searcher(
        corpus,
        [kt.pipelines.VectorIndex(embed, corpus, vectors_dtype="int8"), words],
        rerank=tiny.pipeline("reranking"),
        num_candidates=3,
        top_k=2,
    )
    return search, kt.export(search, tmp_path_factory.mktemp("search") / "search")


def test_the_export_finds_the_same(exported):
    search, folder = exported
    loaded = tf.saved_model.load(str(folder))
    found = loaded.signatures["serving_default"](text=tf.constant(QUERIES))
    for row, hits in enumerate(search(QUERIES)):
        assert [x.decode() for x in found["ids"][row].numpy()] == hits.ids
        np.testing.assert_allclose(found["scores"][row], hits.scores, atol=1e-5)
    by_k = loaded.signatures["search"](
        query=tf.constant(QUERIES[:3]), k=tf.constant([1, 7, 2], tf.int32)
    )
    assert by_k["num_hits"].numpy().tolist() == [1, 7, 2]
    assert by_k["ids"].numpy()[0, 1:].tolist() == [b""] * 6
    assert sorted(by_k["ids"].numpy()[1].tolist()) == sorted(f"doc{i}".encode() for i in range(7))
    nothing = loaded.signatures["search"](query=tf.zeros([0], tf.string), k=tf.zeros([0], tf.int32))
    assert nothing["ids"].shape[0] == 0


def test_the_v1_loader_finds_the_same(exported):
    search, folder = exported
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
        signature = loaded.signature_def["serving_default"]
        found = session.run(signature.outputs["ids"].name, {signature.inputs["text"].name: QUERIES})
    assert [[x.decode() for x in row] for row in found] == [hits.ids for hits in search(QUERIES)]


@pytest.mark.one_case
@pytest.mark.parametrize("k", [0, -1, 8])
def test_k_beyond_the_corpus(exported, k):
    _, folder = exported
    search = tf.saved_model.load(str(folder)).signatures["search"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="k must be from 1 to 7"):
        search(query=tf.constant(["good"]), k=tf.constant([k], tf.int32))


def test_what_the_export_says_of_itself(exported):
    _, folder = exported
    facts = kt.saved_model.describe(folder)
    assert facts["num_texts"] == 7
    assert [index["kind"] for index in facts["indexes"]] == ["vectors", "words"]


def test_export_with_a_corpus(embed, tmp_path):
    folder = kt.export(embed, tmp_path / "faq", corpus=TEXTS, ids=range(7), vectors_dtype="int8")
    found = kt.saved_model.Predictor(folder)({"text": ["good film"]})
    expected = kt.pipelines.Searcher.of(embed, TEXTS, vectors_dtype="int8", top_k=7)("good film")
    assert found[0]["ids"] == expected.ids
    with pytest.raises(ValueError, match="ids without a corpus"):
        kt.export(embed, tmp_path / "faq", ids=range(7))
    with pytest.raises(ValueError, match="a corpus for a TextClassifier"):
        kt.export(tiny.pipeline("classification"), tmp_path / "faq", corpus=TEXTS)
    assert [x.name for x in (tmp_path / "faq").iterdir()] == ["1"]


@pytest.mark.slow
def test_sparse_embeddings_score_dot_products(corpus, tmp_path):
    embed = tiny.pipeline("sparse_embedding")
    index = kt.pipelines.TermIndex(embed, corpus)
    size = embed.tokenizer.vocabulary_size

    def dense(texts, side):
        rows = np.zeros((len(texts), size), np.float32)
        for row, one in zip(rows, embed(texts, side=side), strict=True):
            row[one.indices] = one.weights
        return rows

    expected = dense(QUERIES, "query") @ dense(TEXTS, "document").T
    np.testing.assert_allclose(index.scores(tf.constant(QUERIES)), expected, rtol=1e-5, atol=1e-5)
    folder = kt.export(embed, tmp_path / "sparse", corpus=corpus)
    found = kt.saved_model.Predictor(folder)({"text": ["good film"]})[0]
    assert found["ids"] == kt.pipelines.Searcher.of(embed, corpus, top_k=7)("good film").ids
    with pytest.raises(ValueError, match="SparseEmbedder without vectors_dtype"):
        kt.export(embed, tmp_path / "sparse", corpus=corpus, vectors_dtype="int8")


@pytest.mark.parametrize(
    ("texts", "ids", "message"),
    [
        ([], None, "no texts"),
        ("a text", None, "is one text: pass a list"),
        (["a", ""], None, "text 1 is ''"),
        (["a", None], None, "text 1 is None"),
        (["a", "b"], ["x"], "1 ids for 2 texts"),
        (["a", "b", "c"], ["x", "y", "x"], "such as 'x' for texts 0 and 2"),
        (["a", "b"], ["1", 1], "such as '1' for texts 0 and 1"),
        (["a"], [None], "id 0 is None"),
        (["a"], [1.0], "id 0 is 1.0"),
        (["\ud800"], None, "text 0"),
    ],
)
def test_bad_corpora(texts, ids, message):
    with pytest.raises(ValueError, match=message):
        kt.pipelines.Corpus(texts, ids=ids)


def test_vectors_of_another_model(embed, corpus, tmp_path):
    vectors = kt.pipelines.CorpusVectors.of(embed, corpus)
    read = kt.pipelines.CorpusVectors.load(vectors.save(tmp_path / "vectors.safetensors"))
    index = kt.pipelines.VectorIndex(embed, corpus, vectors=read)
    np.testing.assert_array_equal(
        index.scores(tf.constant(QUERIES)),
        kt.pipelines.VectorIndex(embed, corpus).scores(tf.constant(QUERIES)),
    )
    with pytest.raises(FileExistsError, match="exists"):
        vectors.save(tmp_path / "vectors.safetensors")
    other = kt.pipelines.CorpusVectors(vectors.vectors, "0" * 64)
    with pytest.raises(ValueError, match="of another embedder"):
        kt.pipelines.VectorIndex(embed, corpus, vectors=other)
    with pytest.raises(ValueError, match="7 vectors for 1 texts"):
        kt.pipelines.VectorIndex(embed, kt.pipelines.Corpus(["a"]), vectors=vectors)
    broken = vectors.vectors.copy()
    broken[2, 1] = np.nan
    with pytest.raises(ValueError, match="1 texts have numbers that are not finite.*text 2"):
        kt.pipelines.CorpusVectors(broken, vectors.fingerprint)
    (tmp_path / "no").write_text("x")
    with pytest.raises(ValueError, match="is not a file from CorpusVectors"):
        kt.pipelines.CorpusVectors.load(tmp_path / "no")


def test_long_texts_are_counted(embed, caplog):
    corpus = kt.pipelines.Corpus(["film " * 600, "good", "bad " * 600])
    kt.pipelines.CorpusVectors.of(embed, corpus)
    assert "2 of 3 texts have more than" in caplog.text
    caplog.clear()
    windows = embed.with_options(long_texts="windows")
    kt.pipelines.CorpusVectors.of(windows, corpus)
    assert "texts have more than" not in caplog.text


def test_predict_answers_the_rows_of_a_table(embed, corpus, exported, tmp_path):
    search = kt.pipelines.Searcher.of(embed, corpus, top_k=2)
    answered = kt.predict(search, {"text": QUERIES, "row": list(range(len(QUERIES)))}, quiet=True)
    assert [answered[name] for name in ("ids", "texts")] == [
        [getattr(hits, name) for hits in search(QUERIES)] for name in ("ids", "texts")
    ]
    assert list(answered) == ["text", "row", "ids", "texts", "scores"]


def test_a_search_is_not_loaded_from_weights_nor_saved(embed, corpus, tmp_path):
    kt.save(embed, tmp_path / "embedder", format="huggingface")
    with pytest.raises(ValueError, match="not made from weights alone: use pipelines.Searcher"):
        kt.load(tmp_path / "embedder", pipeline="search")
    for format in ("keras_transformers", "huggingface"):
        with pytest.raises(ValueError, match="is not saved as weights: export it"):
            kt.save(kt.pipelines.Searcher.of(embed, corpus), tmp_path / "new", format=format)
    assert not (tmp_path / "new").exists()


def test_bad_options(embed, corpus, words):
    for options, message in (
        ({"top_k": 8}, "top_k=8: the corpus has 7 texts"),
        ({"top_k": 0}, "top_k=0"),
        ({"index_weights": [1, 2]}, "a number from 0 for each of 1"),
        ({"index_weights": [-1]}, "a number from 0"),
        ({"num_candidates": 0}, "num_candidates=0"),
        ({"first_stage_weight": -1}, "first_stage_weight=-1: expected a number from 0"),
    ):
        with pytest.raises(ValueError, match=message):
            kt.pipelines.Searcher(corpus, [words], **{"top_k": 1, **options})
    with pytest.raises(ValueError, match="no index"):
        kt.pipelines.Searcher(corpus, [])
    with pytest.raises(ValueError, match="index 0 is of 7 texts, the corpus has 1"):
        kt.pipelines.Searcher(kt.pipelines.Corpus(["a"]), [words], top_k=1)
    with pytest.raises(ValueError, match="vectors_dtype='int4'"):
        kt.pipelines.VectorIndex(embed, corpus, vectors_dtype="int4")
    with pytest.raises(ValueError, match="truncate_dim=0"):
        kt.pipelines.VectorIndex(embed, corpus, truncate_dim=0)
    with pytest.raises(ValueError, match="is not saved as weights"):
        kt.save(kt.pipelines.Searcher(corpus, [words], top_k=1), "nowhere")


@pytest.mark.slow
def test_words_alone_are_exported_and_served(corpus, words, tmp_path):
    search = kt.pipelines.Searcher(corpus, [words], top_k=2)
    folder = kt.export(search, tmp_path / "faq")
    assert kt.saved_model.describe(folder)["model"]["num_parameters"] == 0
    models = [kt.serving.ModelSettings("faq", folder.parent)]
    with (
        kt.serving.Server(models, rest_port=0, grpc_port=None) as server,
        kt.serving.Client(f"http://127.0.0.1:{server.rest_port}", timeout_s=120) as client,
    ):
        found = client.ask("Good film?", model="faq")
    assert found.ids == search("Good film?").ids
