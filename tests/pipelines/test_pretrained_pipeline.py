"""Next sentence and embedder, and what all exports of pretrained models have in common."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_transformers.export import Predictor, embedder, fill_mask, next_sentence
from pretrained_models import lively_encoder, lively_pretrainer
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformers.models import heads
from keras_transformers.saved_model import check
from keras_transformers.saved_model.description import METADATA_FILE

# What a stranger would write: nothing of ours, no Keras model, strings in.
STRANGER = """
import json, sys
import tensorflow as tf, tensorflow_text
feeds = {"next_sentence": {"text_a": ["a film", "good"], "text_b": ["good", "a film"]},
         "embedder": {"text": ["a good film", ""]}}
answers = {}
for name, folder in zip(feeds, sys.argv[1:]):
    signature = tf.saved_model.load(folder).signatures["serving_default"]
    new = signature(**{k: tf.constant(v) for k, v in feeds[name].items()})
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        definition = tf.compat.v1.saved_model.load(session, ["serve"], folder).signature_def[
            "serving_default"]
        old = session.run({k: v.name for k, v in definition.outputs.items()},
                          {definition.inputs[k].name: [t.encode() for t in v]
                           for k, v in feeds[name].items()})
    answers[name] = [{k: v.tolist() for k, v in o.items()}
                     for o in ({k: v.numpy() for k, v in new.items()}, old)]
assert not [name for name in sys.modules if name.startswith("keras_transformers")]
print(json.dumps(answers))
"""
EXPORTERS = {"next_sentence": next_sentence, "embedder": embedder, "fill_mask": fill_mask}
PARTS = {  # what is left out of the model that is given
    "next_sentence": ("masked_lm_dense", "masked_lm_norm", "mask_logits"),
    "embedder": ("pooler",),
    "fill_mask": ("pooler", "next_sentence_logits"),
}


@pytest.fixture(scope="module")
def models():
    pretrainer = lively_pretrainer()
    return {
        "next_sentence": pretrainer,
        "fill_mask": pretrainer,
        "embedder": lively_encoder(),
    }


@pytest.fixture(scope="module")
def exports(models, tokenizer, tmp_path_factory):
    """Name of the exporter -> its export, not yet checked: read only."""
    return {
        name: export(models[name], tokenizer, tmp_path_factory.mktemp(name), check=False)
        for name, export in EXPORTERS.items()
    }


@pytest.fixture(scope="module")
def loaded(exports):
    return {name: tf.saved_model.load(str(folder)) for name, folder in exports.items()}


def run(loaded, name, signature="serving_default", **inputs):
    outputs = loaded[name].signatures[signature](**inputs)
    return {key: value.numpy() for key, value in outputs.items()}


def strings(*texts):
    return tf.constant(texts, tf.string)


def token_inputs(rows, padding_mask=None):
    token_ids = tf.constant(rows, tf.int32)
    mask = tf.ones_like(token_ids, tf.bool) if padding_mask is None else tf.constant(padding_mask)
    return {"token_ids": token_ids, "segment_ids": 0 * token_ids, "padding_mask": mask}


def nodes(folder):
    parsed = saved_model_pb2.SavedModel()
    parsed.ParseFromString((folder / "saved_model.pb").read_bytes())
    graph = parsed.meta_graphs[0].graph_def
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def expected_probability(model, tokenizer, text_a, text_b, length=16):
    tokens = tokenizer(text_a, text_b, max_sequence_length=length)
    positions = tf.zeros((len(text_a), 1), tf.int32)
    logits = model({**tokens, "mask_positions": positions})["next_sentence_logits"].numpy()
    return 1 / (1 + np.exp(logits[:, 1] - logits[:, 0]))  # class 0: is next


def expected_embedding(encoder, tokenizer, texts, pooling="mean"):
    tokens = tokenizer(texts, max_sequence_length=16)
    vectors = encoder(tokens)["sequence_output"].numpy().astype("float64")
    rows = [
        row[mask].mean(0) if pooling == "mean" else row[0]
        for row, mask in zip(vectors, tokens["padding_mask"].numpy(), strict=True)
    ]
    return np.array([row / np.linalg.norm(row) for row in rows])


def test_a_process_without_this_package_gets_the_models_answers(exports, models, tokenizer):
    folders = [str(exports[name]) for name in ("next_sentence", "embedder")]
    process = subprocess.run(
        [sys.executable, "-I", "-c", STRANGER, *folders], capture_output=True, check=True
    )
    answers = json.loads(process.stdout.splitlines()[-1])
    probability = expected_probability(
        models["next_sentence"], tokenizer, ["a film", "good"], ["good", "a film"]
    )
    embedding = expected_embedding(models["embedder"], tokenizer, ["a good film", ""])
    assert abs(probability[0] - probability[1]) > 1e-3  # which text comes first matters
    for answer in answers["next_sentence"]:
        np.testing.assert_allclose(answer["probability"], probability, atol=1e-5)
    for answer in answers["embedder"]:
        np.testing.assert_allclose(answer["embedding"], embedding, atol=1e-5)


@pytest.mark.parametrize("name", EXPORTERS)
def test_stored_examples_are_repeated_by_both_loaders(exports, name):
    assert list(check.failures(str(exports[name]))) == []
    metadata = json.loads((exports[name] / METADATA_FILE).read_text())
    for signature in metadata["signatures"].values():
        sizes = [next(iter(e["inputs"].values()))["shape"][0] for e in signature["examples"]]
        assert 0 in sizes  # the empty batch is among them
        assert max(sizes) >= 3


@pytest.mark.parametrize("name", EXPORTERS)
def test_only_ops_that_stock_tf_serving_has(exports, name):
    found = {node.op for node in nodes(exports[name])}
    core = {op for op in found if not op.startswith(("Fast", "TFText", "Sentencepiece"))}
    assert found - core == {"FastBertNormalize", "FastWordpieceTokenizeWithOffsets"}
    assert not {op for op in core if "PyFunc" in op or "Lookup" in op or ">" in op}


@pytest.mark.parametrize("name", EXPORTERS)
def test_string_ops_are_pinned_to_the_cpu(exports, name):
    # These pass strings along between the outside and the functions.
    plumbing = {"Placeholder", "Identity", "StatefulPartitionedCall", "PartitionedCall"}
    pinned = 0
    for node in nodes(exports[name]):
        attributes = node.attr.values()
        types = {a.type for a in attributes} | {t for a in attributes for t in a.list.type}
        if types_pb2.DT_STRING in types and node.op not in plumbing:
            assert "device:CPU" in node.device, node.name
            pinned += 1
    assert pinned > 5


@pytest.mark.parametrize("name", EXPORTERS)
def test_only_the_needed_part_of_a_model_is_exported(exports, models, name):
    metadata = json.loads((exports[name] / METADATA_FILE).read_text())
    dropped = sum(models[name].get_layer(layer).count_params() for layer in PARTS[name])
    assert metadata["model"]["num_parameters"] == models[name].count_params() - dropped
    assert metadata["model"]["name"] == models[name].name
    assert metadata["max_sequence_length"] == 16
    assert metadata["vocabulary_size"] == 14


def test_next_sentence_signature(loaded):
    answer = run(
        loaded, "next_sentence", text_a=strings("a film", "", b"\xff"), text_b=strings("", "", "!")
    )
    assert set(answer) == {"probability"}
    assert answer["probability"].shape == (3,)
    assert answer["probability"].dtype == np.float32
    assert ((answer["probability"] > 0) & (answer["probability"] < 1)).all()
    empty = run(loaded, "next_sentence", text_a=strings(), text_b=strings())
    assert empty["probability"].shape == (0,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in number"):
        run(loaded, "next_sentence", text_a=strings("a", "b"), text_b=strings("c"))


def test_next_sentence_of_tokens(loaded):
    token_ids = tf.constant([[2, 5, 6, 3, 7, 3]])  # [CLS] a film [SEP] good [SEP]
    given = token_inputs(token_ids) | {"segment_ids": tf.constant([[0, 0, 0, 0, 1, 1]])}
    tokens = run(loaded, "next_sentence", "tokens", **given)
    text = run(loaded, "next_sentence", text_a=strings("a film"), text_b=strings("good"))
    np.testing.assert_allclose(tokens["probability"], text["probability"], atol=1e-6)


def test_long_pairs_are_trimmed_to_the_length_asked_for(models, tokenizer, tmp_path):
    folder = next_sentence(
        models["next_sentence"],
        tokenizer,
        tmp_path / "4",
        max_sequence_length=7,
        examples=[("a film", "good")],
        check=False,
    )
    assert folder.name == "4"
    long = ["a film " * 9], ["good " * 9]
    (row,) = Predictor(folder)({"text_a": long[0], "text_b": long[1]})
    expected = expected_probability(models["next_sentence"], tokenizer, *long, length=7)
    assert row["probability"] == pytest.approx(expected[0], abs=1e-5)


def test_embedder_signature(loaded, models, tokenizer):
    texts = ["a good film", "", b"\xff\xfe\x00", "long " * 3000, "very bad films!"]
    answer = run(loaded, "embedder", text=strings(*texts))
    assert set(answer) == {"embedding"}
    assert answer["embedding"].dtype == np.float32
    expected = expected_embedding(models["embedder"], tokenizer, texts)
    np.testing.assert_allclose(answer["embedding"], expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(answer["embedding"], axis=-1), 1, atol=1e-5)
    assert run(loaded, "embedder", text=strings())["embedding"].shape == (0, 8)
    tokens = run(loaded, "embedder", "tokens", **token_inputs([[2, 5, 7, 6, 3]]))
    np.testing.assert_allclose(tokens["embedding"], answer["embedding"][:1], atol=1e-5)


def test_tokens_that_do_not_fit_are_refused(loaded):
    mask = [[True, True], [False, False]]
    for name in ("embedder", "next_sentence"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="token_ids beyond the 14 tokens"):
            run(loaded, name, "tokens", **token_inputs([[2, 14, 3]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="a row is padding alone"):
        run(loaded, "embedder", "tokens", **token_inputs([[2, 3], [0, 0]], mask))


def test_cls_pooling_and_no_length_of_one(models, tokenizer, tmp_path):
    encoder = models["embedder"]
    folder = embedder(encoder, tokenizer, tmp_path, pooling="cls", normalize=False, check=False)
    (row,) = Predictor(folder)({"text": ["a good film"]})
    expected = expected_embedding(encoder, tokenizer, ["a good film"], "cls")[0]
    found = np.array(row["embedding"])
    assert abs(np.linalg.norm(found) - 1) > 0.1
    np.testing.assert_allclose(found / np.linalg.norm(found), expected, atol=1e-5)


def test_an_embedder_is_exported_as_it_is(models, tokenizer, tmp_path):
    model = heads.embedder(models["embedder"], pooling="cls")
    folder = embedder(model, tokenizer, tmp_path / "one", check=False)
    (row,) = Predictor(folder)({"text": ["very bad"]})
    expected = expected_embedding(models["embedder"], tokenizer, ["very bad"], "cls")[0]
    np.testing.assert_allclose(row["embedding"], expected, atol=1e-5)
    for choice in ({"pooling": "mean"}, {"normalize": False}):
        with pytest.raises(ValueError, match="which pools already"):
            embedder(model, tokenizer, tmp_path / "two", **choice)
    assert not (tmp_path / "two").exists()


def test_bfloat16_models_pass_their_wider_tolerance(tokenizer, tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        encoder = lively_encoder()
    finally:
        keras.config.set_dtype_policy("float32")
    folder = embedder(encoder, tokenizer, tmp_path, check=False)
    assert json.loads((folder / METADATA_FILE).read_text())["tolerance"] == 2e-2
    assert list(check.failures(str(folder))) == []


@pytest.mark.parametrize(
    ("name", "output"), [("next_sentence", "next_sentence_logits"), ("fill_mask", "mask_logits")]
)
def test_models_that_lack_the_head(models, tokenizer, tmp_path, name, output):
    with pytest.raises(ValueError, match=rf"'bert' must take token_ids, .* and return {output}"):
        EXPORTERS[name](models["embedder"], tokenizer, tmp_path)
    inputs = keras.Input((3,))
    table = keras.Model(inputs, keras.layers.Dense(2)(inputs), name="table")
    with pytest.raises(ValueError, match=rf"'table' must take token_ids, .* and return {output}"):
        EXPORTERS[name](table, tokenizer, tmp_path)
    with pytest.raises(ValueError, match="'table' has no output 'sequence_output'"):
        embedder(table, tokenizer, tmp_path)


@pytest.mark.parametrize("name", EXPORTERS)
def test_vocabularies_lengths_and_versions_that_do_not_fit(models, tokenizer, tmp_path, name):
    export = EXPORTERS[name]
    other = (lively_encoder if name == "embedder" else lively_pretrainer)(vocabulary_size=99)
    with pytest.raises(ValueError, match=r"tokenizer has 14 tokens and model .* embeds 99"):
        export(other, tokenizer, tmp_path / "new")
    with pytest.raises(ValueError, match=r"max_sequence_length=17: .* at most 16"):
        export(models[name], tokenizer, tmp_path / "new", max_sequence_length=17)
    with pytest.raises(ValueError, match="examples must be"):
        export(models[name], tokenizer, tmp_path / "new", examples=[3])
    assert not (tmp_path / "new").exists()
    (tmp_path / "3").mkdir()
    with pytest.raises(FileExistsError, match="a version is never overwritten"):
        export(models[name], tokenizer, tmp_path / "3")
