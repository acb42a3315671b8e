"""Presets of keras-nlp: tiny ones, written here, whose outputs are keras-nlp's own."""

import json

import checks
import encoder_decoder_toys as toys
import keras
import keras_hub
import numpy as np
import pytest
import roberta_toy
import tensorflow as tf
import tiny
from keras_hub.src.utils.keras_utils import gelu_approximate
from logged import warnings_in

import keras_transformers as kt

SIZES = {
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 16,
}
IMAGES = {"image_shape": (8, 12, 3), "patch_size": 4, "num_layers": 2, "num_heads": 2}
models = keras_hub.models


def lengths():
    """A batch with rows of different lengths, two of them with both segments."""
    padding_mask = np.arange(9)[None] < np.array([9, 4, 6])[:, None]
    random = np.random.default_rng(2)
    return {
        "token_ids": random.integers(1, 14, padding_mask.shape).astype("int32") * padding_mask,
        "segment_ids": ((np.arange(9) > 3) & padding_mask).astype("int32"),
        "padding_mask": padding_mask,
    }


def close(found, wanted):
    """Within 1e-5 of the outputs' magnitude; the outputs differ."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    scale = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found / scale, wanted / scale, atol=1e-5)
    assert np.ptp(wanted) > 0.1


def called(model, tokens):
    """A model's outputs for those of these inputs that it has."""
    outputs = model({name: value for name, value in tokens.items() if name in model.input})
    return outputs if isinstance(outputs, dict) else {"sequence_output": outputs}


def text_assets(folder, family):
    """A vocabulary of 14 tokens in a preset's layout; byte pairs have more."""
    assets = folder / "assets/tokenizer"
    assets.mkdir(parents=True)
    described = {"registered_name": "keras_hub>Tokenizer", "config": {"lowercase": True}}
    (folder / "tokenizer.json").write_text(json.dumps(described))
    if family in ("BertBackbone", "DistilBertBackbone"):
        (assets / "vocabulary.txt").write_text("\n".join(tiny.VOCABULARY))
        return tiny.wordpiece()
    if family == "RobertaBackbone":
        tokenizer = roberta_toy.tokenizer(folder / "learned")
    else:
        tokenizer = tiny.byte_pairs()
        (folder / "learned").mkdir()
        tokenizer.save(folder / "learned")
    (folder / "learned/vocab.json").rename(assets / "vocabulary.json")
    (folder / "learned/merges.txt").rename(assets / "merges.txt")
    return tokenizer


@pytest.mark.one_case
@pytest.mark.parametrize(
    "family", ["BertBackbone", "RobertaBackbone", "DistilBertBackbone", "GPT2Backbone"]
)
def test_a_backbone_of_texts_gives_keras_nlps_outputs(family, tmp_path, caplog):
    tokenizer = text_assets(tmp_path, family)
    theirs = tiny.lively(
        getattr(models, family)(vocabulary_size=tokenizer.vocabulary_size, **SIZES)
    )
    theirs.save_to_preset(str(tmp_path))
    ours = kt.load(tmp_path)
    assert list(ours.tokenizer.vocabulary) == list(tokenizer.vocabulary)
    tokens = lengths()
    wanted = called(theirs, tokens)["sequence_output"]
    real = tokens["padding_mask"]
    if family == "GPT2Backbone":
        assert ours.task == "generation"
        hidden = ours.model.get_layer("final_norm").output
        sequence = keras.Model(ours.model.input, {"sequence_output": hidden})
    else:
        assert ours.task == "embedding"
        # A new head needs the encoder, with BERT's pooler.
        new = kt.load(tmp_path, pipeline="classification", labels=["a", "b"])
        last = f"encoder_layer_{SIZES['num_layers'] - 1}"
        outputs = {"sequence_output": new.model.get_layer(last).output}
        if family == "BertBackbone":
            outputs["pooled_output"] = new.model.get_layer("pooler").output
            assert "embedding does not use pooler/bias, pooler/kernel" in caplog.text
        sequence = keras.Model(new.model.input, outputs)
    found = called(sequence, tokens)
    close(np.asarray(found["sequence_output"])[real], np.asarray(wanted)[real])
    if "pooled_output" in found:
        close(found["pooled_output"], called(theirs, tokens)["pooled_output"])


@pytest.mark.one_case
@pytest.mark.parametrize("family", ["Bert", "Roberta", "DistilBert"])
def test_a_text_classifier_gives_keras_nlps_logits(family, tmp_path, caplog):
    size = text_assets(tmp_path, f"{family}Backbone").vocabulary_size
    backbone = getattr(models, f"{family}Backbone")(vocabulary_size=size, **SIZES)
    theirs = tiny.lively(getattr(models, f"{family}TextClassifier")(backbone, num_classes=3))
    theirs.save_to_preset(str(tmp_path))
    ours = kt.load(tmp_path, labels=["x", "y", "z"])
    assert (ours.task, list(ours.labels)) == ("classification", ["x", "y", "z"])
    assert not warnings_in(caplog)
    tokens = lengths()
    given = {name: value for name, value in tokens.items() if name in theirs.input}
    close(called(ours.model, tokens)["logits"], theirs(given))


def test_a_folder_named_like_a_preset_of_keras_nlps_is_read_itself(tmp_path, monkeypatch):
    text_assets(tmp_path / "bert_tiny_en_uncased", "BertBackbone")
    theirs = models.BertBackbone(vocabulary_size=14, **SIZES)
    theirs.save_to_preset(str(tmp_path / "bert_tiny_en_uncased"))
    monkeypatch.chdir(tmp_path)
    ours = kt.load("bert_tiny_en_uncased")
    wanted = theirs.get_layer("token_embedding").embeddings
    found = ours.model.get_layer("token_embedding").embeddings
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_a_masked_language_model_fills_masks(tmp_path):
    size = text_assets(tmp_path, "BertBackbone").vocabulary_size
    theirs = tiny.lively(models.BertMaskedLM(models.BertBackbone(vocabulary_size=size, **SIZES)))
    theirs.save_to_preset(str(tmp_path))
    ours = kt.load(tmp_path)
    assert ours.task == "fill_mask"
    tokens = lengths() | {"mask_positions": np.array([[1, 2], [3, 0], [5, 1]], "int32")}
    close(called(ours.model, tokens)["mask_logits"], theirs(tokens))
    (tmp_path / "task.weights.h5").unlink()
    with pytest.raises(FileNotFoundError, match="task.weights.h5,.*BertMaskedLM"):
        kt.load(tmp_path)


@pytest.mark.one_case
@pytest.mark.parametrize("converter", [None, "plain", "cropping"])
def test_an_image_classifier_gives_keras_nlps_logits(converter, tmp_path):
    backbone = models.ViTBackbone(**IMAGES, hidden_dim=8, mlp_dim=12)
    theirs = tiny.lively(models.ViTImageClassifier(backbone, num_classes=3, activation=None))
    theirs.save_to_preset(str(tmp_path))
    scale, offset = 1 / 127.5, -1.0
    if converter:
        scale, offset = 1 / 100, -0.7
        made = keras_hub.layers.ImageConverter(
            image_size=(8, 12),
            scale=scale,
            offset=offset,
            crop_to_aspect_ratio=converter == "cropping",
        )
        made.save_to_preset(str(tmp_path))
    ours = kt.load(tmp_path)
    assert list(ours.labels) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    images = np.random.default_rng(0).uniform(0, 255, (2, 8, 12, 3)).astype("float32")
    close(ours.model({"images": images})["logits"], theirs(images * scale + offset))
    if converter:
        picture = np.random.default_rng(1).integers(0, 256, (30, 22, 3), "uint8")
        resized = made(picture[None].astype("float32"))
        answer = ours(tf.io.encode_png(picture).numpy())
        close(answer.probabilities, keras.ops.softmax(theirs(resized))[0])
    if converter == "cropping":
        assert (ours.decoder.crop_to_aspect_ratio, ours.decoder.antialias) == (True, False)
        with pytest.raises(ValueError, match="crop_to_aspect_ratio=True, .* resizes the whole"):
            kt.save(ours, tmp_path / "hf", format="huggingface")


@pytest.mark.slow
@pytest.mark.parametrize("version", [pytest.param("1.0", marks=pytest.mark.slow), "1.1"])
def test_a_t5_gives_keras_nlps_logits(version, tmp_path, caplog):
    old = version == "1.0"
    sizes = {name: size for name, size in SIZES.items() if name != "max_sequence_length"}
    backbone = models.T5Backbone(
        vocabulary_size=40,
        key_value_dim=None if old else 6,
        activation="relu" if old else gelu_approximate,
        use_gated_activation=not old,
        tie_embedding_weights=old,
        **sizes,
    )
    tokenizer = models.T5Tokenizer(toys.t5_model())
    theirs = tiny.lively(models.T5Seq2SeqLM(backbone))
    (backbone if old else theirs).save_to_preset(str(tmp_path))
    tokenizer.save_to_preset(str(tmp_path))
    ours = kt.load(tmp_path)
    assert not warnings_in(caplog)
    assert (ours.task, ours.max_sequence_length) == ("translation", 512)
    for text in toys.T5_LINES:
        assert ours.tokenizer.tokenize([text]).to_list()[0] == np.asarray(tokenizer(text)).tolist()
    sources = np.array([[5, 9, 4, 1], [7, 1, 0, 0]], "int32")
    targets = np.array([[0, 8, 6], [0, 3, 9]], "int32")
    given = {
        "encoder_token_ids": sources,
        "encoder_padding_mask": (sources != 0).astype("int32"),
        "decoder_token_ids": targets,
        "decoder_padding_mask": np.ones_like(targets),
    }
    found = ours.model({"source_token_ids": sources, "target_token_ids": targets})
    close(found["logits"], theirs(given))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "elu"}, "activation='elu'; expected one of relu"),
        ({"use_gated_activation": 1}, "use_gated_activation=1; expected true or false"),
        ({"key_value_dim": -1}, "key_value_dim=-1; expected an integer"),
        ({"layer_norm_epsilon": "x"}, "layer_norm_epsilon='x'; expected a number"),
        ({"num_layers": 0}, "num_layers=0 is out of range"),
    ],
)
def test_a_t5_that_cannot_be_built_is_refused(change, message, tmp_path):
    config = {**SIZES, "vocabulary_size": 40, "dropout": 0.1, "activation": "relu"}
    config |= {"use_gated_activation": False, "tie_embedding_weights": True} | change
    described = {"registered_name": "keras_hub>T5Backbone", "config": config}
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match=message):
        kt.load(tmp_path)


@pytest.fixture
def preset(tmp_path):
    """A preset of a BERT."""
    size = text_assets(tmp_path, "BertBackbone").vocabulary_size
    models.BertBackbone(vocabulary_size=size, **SIZES).save_to_preset(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"registered_name": "keras_hub>LlamaBackbone"},
            "'LlamaBackbone'",
        ),
        ({"registered_name": "mine>BertBackbone"}, "not the configuration"),
        ({"config": {}}, "has no field 'vocabulary_size'"),
    ],
)
def test_another_class_is_refused_by_name(preset, change, message):
    file = preset / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        kt.load(preset)


def test_damaged_weights_are_refused(preset):
    weights = preset / "model.weights.h5"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(
        ValueError, match=r"keras-hub cannot read this preset \(.*download"
    ) as found:
        kt.load(preset)
    assert "\n" not in str(found.value)
    weights.unlink()
    with pytest.raises(ValueError, match="keras-hub cannot read this preset"):
        kt.load(preset)


def test_a_task_without_a_pipeline_is_refused_by_name(preset):
    task = {"registered_name": "keras_hub>BertTextEmbedder", "config": {}}
    (preset / "task.json").write_text(json.dumps(task))
    with pytest.raises(ValueError, match="no pipeline .*BertTextEmbedder"):
        kt.load(preset)
    assert kt.load(preset, pipeline="embedding").task == "embedding"


@pytest.mark.slow
def test_layers_of_keras_nlp_and_ours_train_in_one_functional_model(tmp_path):
    import keras_nlp

    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    hidden = keras_nlp.layers.TokenAndPositionEmbedding(50, 8, 16, name="embedding")(token_ids)
    hidden = kt.layers.TransformerBlock(
        attention=kt.layers.MultiHeadAttention(num_heads=2, hidden_dim=16),
        feed_forward=kt.layers.FeedForward(32, 16, activation="gelu"),
        name="ours",
    )(hidden)
    hidden = keras_nlp.layers.TransformerEncoder(32, 2, name="theirs")(hidden)
    logits = keras.layers.Dense(2, name="logits")(hidden[:, 0])
    model = keras.Model({"token_ids": token_ids}, {"logits": logits})
    model.compile(kt.training.adamw(1e-2), loss={"logits": kt.training.TokenCrossentropy()})
    random = np.random.default_rng(0)
    ids = random.integers(0, 50, (64, 8)).astype("int32")
    labels = (ids[:, 0] < 25).astype("int32")
    before = {layer.name: [np.asarray(w) for w in layer.weights] for layer in model.layers}
    model.fit({"token_ids": ids}, {"logits": labels}, epochs=20, batch_size=32, verbose=0)
    for name in ("embedding", "ours", "theirs"):
        weights = model.get_layer(name).weights
        assert any((np.asarray(w) != b).any() for w, b in zip(weights, before[name], strict=True))
    found = called(model, {"token_ids": ids})["logits"]
    assert (np.asarray(found).argmax(axis=-1) == labels).mean() > 0.9
    again = checks.round_trip(model, tmp_path)
    np.testing.assert_array_equal(called(again, {"token_ids": ids})["logits"], found)
