"""BERT's pretraining against Hugging Face (losses, gradients) and against keras-bert 0.89."""

import runpy
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import near
from safetensors.numpy import load_file, save_file

import keras_transformers as kt
from keras_transformers.families.bert.files import FAMILY as BERT
from keras_transformers.families.bert.model import bert
from keras_transformers.tokenizers import WordPieceTokenizer
from keras_transformers.training.losses import TokenCrossentropy

GOLDEN = Path(__file__).parents[2] / "golden"
RANDOM = GOLDEN / "bert_random.safetensors"
# Tensors that BertForMaskedLM lacks.
OTHER_HEADS = ("bert.pooler.", "cls.seq_relationship.")


@pytest.fixture(scope="module")
def make_bert():
    return runpy.run_path(str(GOLDEN / "make_bert.py"))


@pytest.fixture(scope="module")
def make_losses():
    return runpy.run_path(str(GOLDEN / "make_bert_losses.py"))


@pytest.fixture(scope="module")
def losses():
    return np.load(GOLDEN / "bert_losses.npz")


def small_bert(make_bert, activation="gelu"):
    config = make_bert["CONFIG"]
    return bert(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        max_sequence_length=config["max_position_embeddings"],
        dropout=0.0,
        attention_dropout=0.0,
        activation=activation,
    )


def loaded_pretrainer(make_bert, activation="gelu"):
    model = kt.heads.pretrainer(small_bert(make_bert, activation), activation=activation)
    kt.convert.load_weights(model, RANDOM)
    return model


def masked_lm_file(folder):
    """The tensors that BertForMaskedLM would save."""
    tensors = load_file(RANDOM)
    kept = {name: t for name, t in tensors.items() if not name.startswith(OTHER_HEADS)}
    assert len(kept) == len(tensors) - 4
    save_file(kept, folder / "model.safetensors")
    return folder / "model.safetensors"


def test_both_losses_equal_transformers_as_fit_reports_them(make_bert, make_losses, losses):
    model = loaded_pretrainer(make_bert)
    model.compile(
        loss={"mask_logits": TokenCrossentropy(), "next_sentence_logits": TokenCrossentropy()}
    )
    wanted = make_losses["targets"]()
    reported = model.evaluate(
        make_bert["random_inputs"](),
        {
            "mask_logits": wanted["mask_ids"],
            "next_sentence_logits": wanted["next_sentence_label"],
        },
        sample_weight={
            "mask_logits": wanted["mask_weights"],
            "next_sentence_logits": np.ones(3, "float32"),
        },
        batch_size=3,
        verbose=0,
        return_dict=True,
    )
    assert reported["mask_logits_loss"] == pytest.approx(float(losses["mask_loss"]), rel=1e-5)
    assert reported["next_sentence_logits_loss"] == pytest.approx(
        float(losses["next_sentence_loss"]), rel=1e-5
    )
    assert reported["loss"] == pytest.approx(float(losses["loss"]), rel=1e-5)
    # Keras' own loss agrees for next sentences.
    logits = model.predict(make_bert["random_inputs"](), verbose=0)["next_sentence_logits"]
    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert float(keras_loss(wanted["next_sentence_label"], logits)) == pytest.approx(
        float(losses["next_sentence_loss"]), rel=1e-5
    )


def test_a_position_without_weight_changes_no_loss(make_bert, make_losses, losses):
    wanted = make_losses["targets"]()
    assert (wanted["mask_weights"] == 0).sum() == 1
    logits = loaded_pretrainer(make_bert).predict(make_bert["random_inputs"](), verbose=0)
    for mask_ids in (
        wanted["mask_ids"],
        np.where(wanted["mask_weights"] > 0, wanted["mask_ids"], 9),
    ):
        loss = TokenCrossentropy()(mask_ids, logits["mask_logits"], wanted["mask_weights"])
        assert float(loss) == pytest.approx(float(losses["mask_loss"]), rel=1e-5)


def test_gradients_of_both_losses_equal_transformers(make_bert, make_losses, losses):
    model = loaded_pretrainer(make_bert)
    wanted = make_losses["targets"]()
    variables = {
        "token_embedding": model.get_layer("token_embedding").embeddings,
        "query": model.get_layer("encoder_layer_0").self_attention.query.kernel,
        "pooler": model.get_layer("pooler").kernel,
        "masked_lm_dense": model.get_layer("masked_lm_dense").kernel,
        "mask_bias": model.get_layer("mask_logits").bias,
        "next_sentence": model.get_layer("next_sentence_logits").kernel,
    }
    with tf.GradientTape() as tape:
        outputs = model(make_bert["random_inputs"](), training=True)
        loss = TokenCrossentropy()(
            wanted["mask_ids"], outputs["mask_logits"], wanted["mask_weights"]
        ) + TokenCrossentropy()(wanted["next_sentence_label"], outputs["next_sentence_logits"])
    gradients = tape.gradient(loss, {name: v.value for name, v in variables.items()})
    assert set(gradients) == set(make_losses["GRADIENTS"].values())
    for name, gradient in gradients.items():
        expected = losses[f"gradient/{name}"]
        found = tf.convert_to_tensor(gradient).numpy()
        if name.endswith(("query", "pooler", "dense", "sentence")):  # transposed in PyTorch
            expected = expected.T
        if name == "token_embedding":  # in transformers, lookups give the padding row no gradient
            found, expected = found[1:], expected[1:]
        scale = np.abs(expected).max()
        assert scale > 1e-3, name
        np.testing.assert_allclose(found, expected, atol=1e-5 * max(scale, 1), err_msg=name)


def test_masked_lm_equals_bert_for_masked_lm(make_bert, losses, tmp_path):
    model = kt.heads.masked_lm(small_bert(make_bert))
    kt.convert.load_weights(model, masked_lm_file(tmp_path))  # uses exactly the file's tensors
    logits = model.predict(make_bert["random_inputs"](), verbose=0)["mask_logits"]
    near(logits, losses["masked_lm_logits"])


def test_a_pretrainers_file_fills_a_masked_lm_on_request(make_bert, losses):
    model = kt.heads.masked_lm(small_bert(make_bert))
    with pytest.raises(ValueError, match=r"cls.seq_relationship"):
        kt.convert.load_weights(model, RANDOM)
    kt.convert.load_weights(model, RANDOM, ignore=[f"{prefix}*" for prefix in OTHER_HEADS])
    logits = model.predict(make_bert["random_inputs"](), verbose=0)["mask_logits"]
    near(logits, losses["masked_lm_logits"])


def test_keras_bert_computes_the_same_probabilities(make_bert):
    golden = np.load(GOLDEN / "keras_bert.npz")
    inputs = runpy.run_path(str(GOLDEN / "make_keras_bert.py"))["inputs"]()
    outputs = loaded_pretrainer(make_bert, "gelu_approximate").predict(inputs, verbose=0)
    for name in ("mask", "next_sentence"):
        probabilities = keras.ops.softmax(outputs[f"{name}_logits"])
        np.testing.assert_allclose(probabilities, golden[f"{name}_probabilities"], atol=1e-6)


def test_embeddings_of_minilm_equal_the_frozen_reference(minilm_dir):
    maker = runpy.run_path(str(GOLDEN / "make_minilm_embeddings.py"))
    encoder = bert(**BERT.read(minilm_dir))
    kt.convert.load_weights(encoder, minilm_dir)
    tokens = WordPieceTokenizer(minilm_dir / "vocab.txt")(
        maker["SENTENCES"], max_sequence_length=maker["MAX_SEQUENCE_LENGTH"]
    )
    embedding = kt.heads.embedder(encoder)(tokens)["embedding"].numpy()
    golden = np.load(GOLDEN / "minilm_embeddings.npz")["embedding"]
    np.testing.assert_allclose(embedding, golden, atol=1e-5)
    cosines = golden @ golden.T
    assert cosines[0, 1] > 0.4 > 0.2 > cosines[0, 2]  # the first two mean the same


@pytest.mark.reference
def test_the_frozen_losses_are_transformers_own(make_losses, losses):
    recomputed = make_losses["outputs"]()
    assert set(recomputed) == set(losses.files)
    for name, value in recomputed.items():
        np.testing.assert_allclose(losses[name], value, atol=1e-5, err_msg=name)


@pytest.mark.reference
def test_the_frozen_embeddings_are_transformers_own(minilm_dir):
    maker = runpy.run_path(str(GOLDEN / "make_minilm_embeddings.py"))
    golden = np.load(GOLDEN / "minilm_embeddings.npz")
    recomputed = maker["embeddings"](minilm_dir)
    np.testing.assert_allclose(golden["embedding"], recomputed["embedding"], atol=1e-5)


@pytest.mark.reference
def test_transformers_reads_a_masked_lm_that_save_bert_writes(make_bert, tmp_path):
    import torch
    import transformers

    model = kt.heads.masked_lm(small_bert(make_bert))
    kt.convert.load_weights(model, RANDOM, ignore=[f"{prefix}*" for prefix in OTHER_HEADS])
    config = transformers.BertConfig(**make_bert["CONFIG"], architectures=["BertForMaskedLM"])
    config.save_pretrained(tmp_path)
    BERT.save(model, tmp_path / "model.safetensors")
    theirs, report = transformers.BertForMaskedLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    original = make_bert["random_model"]("gelu").state_dict()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, original[name]), name
