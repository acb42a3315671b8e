"""Decoders that embed and rerank, in the layouts of Qwen3-Embedding and Qwen3-Reranker."""

import base64
import gzip
import importlib.util
import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.models.as_encoder import as_encoder

GOLDEN = Path(__file__).parents[2] / "golden"
PACKED = json.loads(gzip.decompress((GOLDEN / "qwen3_search.json.gz").read_bytes()))
_spec = importlib.util.spec_from_file_location("make_qwen3_search", GOLDEN / "make_qwen3_search.py")
maker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(maker)


def unpack(name, folder):
    for path, contents in PACKED[name]["files"].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(base64.b64decode(contents))
    return folder


@pytest.fixture(scope="module")
def embedder_folder(tmp_path_factory):
    return unpack("embedder", tmp_path_factory.mktemp("embedder"))


@pytest.fixture(scope="module")
def embed(embedder_folder):
    return kt.load(embedder_folder)


def opened(name, folder):
    options = {"pipeline": "reranking", "max_sequence_length": maker.LENGTH}
    return name, unpack(name, folder), kt.load(folder, **options)


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    """With tied embeddings."""
    return opened("tied", tmp_path_factory.mktemp("tied"))


def vectors(embed, texts=maker.TEXTS, **options):
    return np.array([answer.vector for answer in embed(texts, **options)])


def scores(rank):
    found = rank(maker.QUERIES, [maker.DOCUMENTS] * len(maker.QUERIES))
    return np.array([each.scores for each in found])


def test_vectors_are_those_of_sentence_transformers(embed):
    assert isinstance(embed, kt.pipelines.Embedder)
    assert embed.prompts == {"query": maker.TASK, "document": ""}
    assert embed.max_sequence_length == maker.LENGTH
    for name, options in (("plain", {}), ("query", {"prompt_name": "query"})):
        np.testing.assert_allclose(vectors(embed, **options), PACKED["embedder"][name], atol=1e-5)


def test_every_text_ends_with_the_end_token_even_if_it_is_cut(embed):
    ids = embed.encode(["no", "no " * maker.LENGTH])["token_ids"].numpy()
    end = embed.tokenizer.vocabulary.index(maker.END)
    assert ids.shape == (2, maker.LENGTH)
    assert ids[1, -1] == end
    assert ids[0, 1] == end


def test_padding_on_either_side_changes_nothing(embed):
    tokens = {name: value.numpy() for name, value in embed.encode(maker.TEXTS[:2]).items()}
    right = embed.answer_tokens(**{name: tf.constant(x) for name, x in tokens.items()})
    left = {name: np.zeros((2, x.shape[1] + 3), x.dtype) for name, x in tokens.items()}
    for row, mask in enumerate(tokens["padding_mask"]):
        for name, padded in left.items():
            padded[row, -mask.sum() :] = tokens[name][row, mask]
    found = embed.answer_tokens(**{name: tf.constant(x) for name, x in left.items()})
    np.testing.assert_allclose(found["embedding"], right["embedding"], atol=1e-5)


@pytest.mark.slow
def test_the_export_embeds_texts_with_and_without_the_prompt(embed, tmp_path):
    exported = kt.export(embed, tmp_path / "export")
    signatures = tf.saved_model.load(str(exported)).signatures
    for name, signature in (("plain", "serving_default"), ("query", "query")):
        found = signatures[signature](text=tf.constant(maker.TEXTS))["embedding"]
        np.testing.assert_allclose(found, PACKED["embedder"][name], atol=1e-5)


@pytest.mark.slow
def test_an_embedder_is_saved_in_both_formats(embed, tmp_path):
    kt.save(embed, tmp_path / "own")
    np.testing.assert_array_equal(vectors(kt.load(tmp_path / "own")), vectors(embed))
    kt.save(embed, tmp_path / "theirs", format="huggingface")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["Qwen3Model"]
    np.testing.assert_array_equal(vectors(kt.load(tmp_path / "theirs")), vectors(embed))


@pytest.mark.slow
def test_a_new_head_reads_the_last_token(embedder_folder):
    classify = kt.load(embedder_folder, pipeline="classification", labels=["bad", "good"])
    assert "last_pooling" in {layer.name for layer in classify.model.layers}
    assert classify("no").label in ("bad", "good")
    ranked = kt.load(embedder_folder, pipeline="reranking")("no", ["yes", "no"])
    assert sorted(ranked.order) == [0, 1]


def test_a_folder_of_a_class_with_a_projection_embeds_too(embedder_folder, tmp_path, embed):
    """As Qwen3-Embedding's, whose config.json names the class of language models."""
    folder = unpack("embedder", tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["Qwen3ForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config))
    np.testing.assert_array_equal(vectors(kt.load(folder)), vectors(embed))


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["tied", "untied"])
def test_scores_are_those_of_the_model_card(name, tmp_path):
    _, _, rank = opened(name, tmp_path)
    assert isinstance(rank, kt.pipelines.Reranker)
    np.testing.assert_allclose(scores(rank), PACKED[name]["scores"], atol=1e-5)
    other = rank.with_options(instruction=maker.OTHER_INSTRUCTION)
    np.testing.assert_allclose(scores(other), PACKED[name]["other_scores"], atol=1e-5)
    assert np.abs(scores(other) - scores(rank)).max() > 1e-3


def test_a_long_document_is_cut_before_the_end_of_the_prompt(reranker):
    _, _, rank = reranker
    ids = rank.encode(["no"], [maker.DOCUMENTS[-1]])["token_ids"].numpy()[0]
    assert len(ids) == maker.LENGTH
    end = rank.tokenizer.tokenize([maker.SUFFIX]).to_list()[0]
    assert ids[-len(end) :].tolist() == end
    with pytest.raises(ValueError, match=r"max_sequence_length=20: the prompt alone has \d+ tok"):
        rank.with_options(max_sequence_length=20)


@pytest.mark.parametrize("prompt", ["{document} {text}", "{text}", "a", "{text}{text}{document}"])
def test_prompts_without_their_places_are_refused(prompt, reranker):
    with pytest.raises(ValueError, match=r"prompt=.*\{text\} once, then \{document\} once"):
        reranker[2].with_options(prompt=prompt)


@pytest.mark.slow
def test_the_export_reranks(reranker, tmp_path):
    name, _, rank = reranker
    loaded = tf.saved_model.load(str(kt.export(rank, tmp_path / "export")))
    documents = tf.constant([[*maker.DOCUMENTS, ""]] * 2)
    found = loaded.signatures["serving_default"](
        text=tf.constant(maker.QUERIES), documents=documents
    )
    np.testing.assert_allclose(found["scores"][:, :3], PACKED[name]["scores"], atol=1e-5)
    expected = np.argsort(-np.array(PACKED[name]["scores"]), axis=1)
    np.testing.assert_array_equal(found["order"][:, :3], expected)
    assert found["num_documents"].numpy().tolist() == [3, 3]


@pytest.mark.slow
def test_a_reranker_is_saved_in_both_formats(reranker, tmp_path):
    _, folder, rank = reranker
    kt.save(rank, tmp_path / "own")
    again = kt.load(tmp_path / "own")
    assert again.config() == rank.config()
    np.testing.assert_array_equal(scores(again), scores(rank))
    kt.save(rank, tmp_path / "theirs", format="huggingface")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    again = kt.load(tmp_path / "theirs")
    assert isinstance(again, kt.pipelines.Reranker)
    np.testing.assert_array_equal(scores(again), scores(rank))
    # Nothing in the original says that it is a reranker.
    assert isinstance(kt.load(folder), kt.pipelines.TextGenerator)


@pytest.mark.slow
def test_a_language_model_learns_to_rerank(reranker):
    _, folder, _ = reranker
    keras.utils.set_random_seed(0)
    rank = kt.load(folder, pipeline="reranking", max_sequence_length=maker.LENGTH)
    rows = [(q, d, float(d == "no")) for q in ("no", "yes") for d in ("no", "yes", "dogs")]
    history = kt.fit(rank, rows, epochs=12, learning_rate=1e-2, batch_size=6, quiet=True)
    assert history.history["loss"][-1] < history.history["loss"][0] / 2
    assert kt.evaluate(rank, rows)["ndcg_at_10"] == 1.0


def test_explanations_and_answers_of_several_tokens_are_refused(reranker):
    _, folder, rank = reranker
    with pytest.raises(ValueError, match="without a prompt"):
        rank.explain_rows({"text": ["a"], "text_b": ["b"]})
    model = kt.load(folder).model
    letters = {**rank.tokenizer.description}
    letters["model"] = {**letters["model"], "merges": []}
    plain = kt.tokenizers.DescribedTokenizer(letters, end_token=maker.END)
    with pytest.raises(ValueError, match="'yes' has 3 tokens"):
        kt.pipelines.Reranker(model, plain)


def test_a_decoder_as_an_encoder_has_the_vectors_below_its_projection(reranker):
    model = kt.load(reranker[1]).model
    encoder = as_encoder(model)
    ids = np.arange(12, dtype="int32").reshape(2, 6)
    mask = np.ones((2, 6), bool)
    hidden = encoder({"token_ids": ids, "padding_mask": mask})["sequence_output"]
    scorer = kt.heads.answer_scorer(model, 5, 7)
    logits = np.asarray(model({"token_ids": ids})["logits"])[:, -1]
    found = scorer({"token_ids": ids, "padding_mask": mask})["score"]
    np.testing.assert_allclose(found, logits[:, 5] - logits[:, 7], atol=1e-5)
    assert hidden.shape == (2, 6, 16)
    with pytest.raises(ValueError, match=r"token 10000 .*predicts \d+ tokens"):
        kt.heads.answer_scorer(model, 5, 10_000)


@pytest.mark.reference
def test_golden_vectors_are_what_sentence_transformers_computes(embedder_folder, embed, tmp_path):
    pytest.importorskip("sentence_transformers", reason="needs the extra reference")
    kt.save(embed, tmp_path / "written", format="huggingface")
    for folder in (embedder_folder, tmp_path / "written"):
        found = maker.embeddings(folder)
        for name in ("plain", "query"):
            np.testing.assert_allclose(found[name], PACKED["embedder"][name], atol=1e-5)


@pytest.mark.reference
def test_golden_scores_are_what_the_model_card_computes(reranker, tmp_path):
    pytest.importorskip("transformers", reason="needs the extra reference")
    name, folder, rank = reranker
    kt.save(rank, tmp_path / "written", format="huggingface")
    for source in (folder, tmp_path / "written"):
        found = maker.card_scores(source, maker.INSTRUCTION)
        np.testing.assert_allclose(found, PACKED[name]["scores"], atol=1e-5)
