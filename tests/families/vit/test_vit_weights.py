"""ViT against Hugging Face's: outputs, names, resolutions, and invalid files."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_transformers as kt
from keras_transformers.families.vit.files import FAMILY as VIT
from keras_transformers.families.vit.model import copy_weights, vit

GOLDEN = Path(__file__).parents[2] / "golden"
RANDOM = GOLDEN / "vit_random.safetensors"
TOLERANCE = 1e-5
# Hugging Face's name of an activation -> ours.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_approximate"}


@pytest.fixture(scope="module")
def maker():
    return runpy.run_path(str(GOLDEN / "make_vit.py"))


@pytest.fixture(scope="module")
def golden():
    return np.load(GOLDEN / "vit_random.npz")


def small_vit(maker, **changes):
    config = maker["CONFIG"]
    arguments = {
        "patch_size": config["patch_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "hidden_dim": config["hidden_size"],
        "intermediate_dim": config["intermediate_size"],
        "image_size": config["image_size"],
        "norm_epsilon": 1e-12,
    }
    return vit(**arguments | changes)


def loaded(maker, **changes):
    encoder = small_vit(maker, use_representation_layer=True, **changes)
    kt.convert.load_weights(encoder, RANDOM, ignore=["classifier.*"])
    return encoder


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_outputs_equal_the_frozen_reference(maker, golden, activation):
    inputs = {"images": maker["random_images"]()}
    encoder = loaded(maker, activation=ACTIVATIONS[activation])
    outputs = encoder.predict(inputs, verbose=0)
    # ViTForImageClassification has no pooler.
    plain = small_vit(maker, activation=ACTIVATIONS[activation])
    classifier = kt.heads.classifier(plain, maker["NUM_CLASSES"])
    kt.convert.load_weights(classifier, RANDOM, ignore=["vit.pooler.*"])
    outputs |= classifier.predict(inputs, verbose=0)
    assert set(outputs) == {"sequence_output", "pooled_output", "logits"}
    for key, value in outputs.items():
        np.testing.assert_allclose(
            value, golden[f"{activation}/{key}"], atol=TOLERANCE, err_msg=key
        )


@pytest.mark.slow
def test_on_jax_the_same_numbers_without_tensorflow(on_jax):
    on_jax(f"""
import runpy, keras, numpy as np, keras_transformers as kt
from keras_transformers.families.vit.model import copy_weights, vit
golden, folder = np.load({str(GOLDEN / "vit_random.npz")!r}), {str(GOLDEN)!r}
images = runpy.run_path(folder + "/make_vit.py")["random_images"]()
shape = dict(patch_size=4, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=24,
             norm_epsilon=1e-12)
model = kt.heads.classifier(vit(**shape, image_size=12), 5)
kt.convert.load_weights(model, folder + "/vit_random.safetensors", ignore=["vit.pooler.*"])
logits = model.predict({{"images": images}}, verbose=0)["logits"]
np.testing.assert_allclose(logits, golden["gelu/logits"], atol=1e-5)
larger = kt.heads.classifier(vit(**shape, image_size=16), 5)
copy_weights(model, larger)
assert larger({{"images": np.zeros((1, 16, 16, 3), "float32")}})["logits"].shape == (1, 5)
""")


def test_another_resolution_equals_interpolate_pos_encoding(maker, golden):
    size = maker["OTHER_SIZE"]
    inputs = {"images": maker["random_images"](*size)}
    expected = golden["gelu/resized/sequence_output"]
    other = small_vit(maker, image_size=size, use_representation_layer=True)
    copy_weights(loaded(maker), other, interpolation="bicubic")
    found = other.predict(inputs, verbose=0)["sequence_output"]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@pytest.mark.reference
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_frozen_outputs_are_transformers_own(maker, golden, activation):
    for key, value in maker["outputs"](activation).items():
        np.testing.assert_allclose(golden[f"{activation}/{key}"], value, atol=TOLERANCE)


@pytest.mark.reference
def test_transformers_reads_what_save_vit_writes(maker, tmp_path):
    import torch
    import transformers

    model = kt.heads.classifier(small_vit(maker), maker["NUM_CLASSES"])
    kt.convert.load_weights(model, RANDOM, ignore=["vit.pooler.*"])
    config = transformers.ViTConfig(**maker["CONFIG"], num_labels=maker["NUM_CLASSES"])
    config.save_pretrained(tmp_path)
    VIT.save(model, tmp_path / "model.safetensors")
    theirs, report = transformers.ViTForImageClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    original = maker["random_models"]("gelu")[1].state_dict()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, original[name]), name
    # And we can read what it then saves.
    theirs.save_pretrained(tmp_path / "theirs")
    arguments = VIT.read(tmp_path / "theirs")
    again = kt.heads.classifier(vit(**arguments), maker["NUM_CLASSES"])
    kt.convert.load_weights(again, tmp_path / "theirs")
    for one, two in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_saving_and_loading_changes_no_bit(maker, tmp_path):
    model = loaded(maker)
    VIT.save(model, tmp_path / "copy.safetensors")
    original, copy = load_file(RANDOM), load_file(tmp_path / "copy.safetensors")
    assert {name for name in original if not name.startswith("classifier.")} == set(copy)
    for name, tensor in copy.items():
        np.testing.assert_array_equal(tensor, original[name], err_msg=name)


def test_names_without_prefix_and_those_of_transformers_in_memory(maker, tmp_path):
    tensors = {k: v for k, v in load_file(RANDOM).items() if not k.startswith("classifier.")}
    in_memory = {}
    for name, tensor in tensors.items():
        for memory_name, file_name in maker["IN_FILES"].items():
            name = name.replace(file_name, memory_name)
        in_memory[name] = tensor
    plain = {name.removeprefix("vit."): tensor for name, tensor in tensors.items()}
    plain_in_memory = {name.removeprefix("vit."): tensor for name, tensor in in_memory.items()}
    expected = [np.asarray(v) for v in loaded(maker).weights]
    for number, variant in enumerate((in_memory, plain, plain_in_memory)):
        assert variant.keys() != tensors.keys()
        file = tmp_path / f"{number}.safetensors"
        save_file(variant, file)
        model = small_vit(maker, use_representation_layer=True)
        kt.convert.load_weights(model, file)
        for one, two in zip(expected, model.weights, strict=True):
            np.testing.assert_array_equal(one, two)


def test_missing_unused_and_misshapen_tensors_are_listed_and_nothing_changes(maker, tmp_path):
    tensors = load_file(RANDOM)
    del tensors["vit.encoder.layer.1.layernorm_after.bias"]
    tensors["vit.embeddings.mask_token"] = np.zeros((1, 1, 16), "float32")
    tensors["vit.layernorm.weight"] = np.zeros(15, "float32")
    save_file(tensors, tmp_path / "model.safetensors")
    model = small_vit(maker)
    before = [np.asarray(v) for v in model.weights]
    with pytest.raises(ValueError, match="does not fit the model") as raised:
        kt.convert.load_weights(model, tmp_path, ignore=["classifier.*"])
    for part in (
        "missing from the file: vit.encoder.layer.1.layernorm_after.bias",
        "vit.layernorm.weight is (15,), encoder_norm/gamma needs (16,)",
        "vit.embeddings.mask_token, vit.pooler.dense.bias, vit.pooler.dense.weight",
    ):
        assert part in str(raised.value)
    for one, two in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_another_resolution_or_patch_size_is_an_error(maker):
    ignore = ["classifier.*", "vit.pooler.*"]
    with pytest.raises(ValueError, match=r"position_embeddings is \(1, 10, 16\).*\(1, 17, 16\)"):
        kt.convert.load_weights(small_vit(maker, image_size=16), RANDOM, ignore=ignore)
    with pytest.raises(ValueError, match=r"projection.weight is \(16, 3, 4, 4\).*\(16, 3, 2, 2\)"):
        kt.convert.load_weights(small_vit(maker, patch_size=2), RANDOM, ignore=ignore)
    with pytest.raises(ValueError, match=r"\(16, 3, 4, 4\), .* needs \(16, 1, 4, 4\)"):
        kt.convert.load_weights(small_vit(maker, num_channels=1), RANDOM, ignore=ignore)


def test_a_layer_without_a_place_there_is_named(maker, tmp_path):
    with pytest.raises(ValueError, match="'score_dense'.*Face's ViT"):
        VIT.save(kt.heads.regressor(small_vit(maker)), tmp_path / "model.safetensors")


def test_convolutions_before_the_patches_are_refused(tmp_path):
    model = vit(
        patch_size=1, num_layers=1, num_heads=1, hidden_dim=4, image_size=8, stem_filters=(2,)
    )
    for act in (VIT.save, VIT.save_config):
        with pytest.raises(ValueError, match=r"\(stem_filters\)"):
            act(model, tmp_path / "written")
    assert not list(tmp_path.iterdir())


def write_config(folder, **changes):
    config = {
        "model_type": "vit",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "image_size": 12,
        "patch_size": 4,
        "hidden_act": "gelu_new",
    } | changes
    config = {name: value for name, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_configuration_builds_its_model(tmp_path):
    arguments = VIT.read(write_config(tmp_path, hidden_dropout_prob=0.2, image_size=[8, 12]))
    assert arguments["dropout"] == 0.2
    assert arguments["activation"] == "gelu_approximate"
    assert arguments["norm_epsilon"] == 1e-12
    assert vit(**arguments).get_layer("patch_embedding").grid == (2, 3)
    assert "pixel_mean" not in arguments
    file = tmp_path / "preprocessor_config.json"
    file.write_text('{"image_mean": [0.4, 0.5, 0.6], "image_std": [0.1, 0.2, 0.3]}')
    arguments = VIT.read(tmp_path)
    assert (arguments["pixel_mean"], arguments["pixel_std"]) == ([0.4, 0.5, 0.6], [0.1, 0.2, 0.3])
    file.write_text('{"do_normalize": false}')
    assert VIT.read(tmp_path)["pixel_std"] == 1.0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model_type": "deit"}, "model_type is 'deit'; expected"),
        ({"qkv_bias": False}, "qkv_bias=False; only True"),
        ({"hidden_act": "elu"}, "hidden_act='elu'; expected one of gelu"),
        ({"hidden_size": None}, "has no field 'hidden_size'"),
        ({"patch_size": [4, 8]}, r"patch_size=\[4, 8\]; patches must be square"),
    ],
)
def test_configurations_that_do_not_fit(tmp_path, changes, text):
    with pytest.raises(ValueError, match=text):
        VIT.read(write_config(tmp_path, **changes))


@pytest.mark.parametrize(
    ("fields", "mean", "std"),
    [
        ({"do_rescale": True, "rescale_factor": 1 / 255, "image_mean": 0.4}, 0.4, None),
        ({"rescale_factor": 2 / 255, "image_mean": [0.4], "image_std": [0.6]}, [0.2], [0.3]),
        ({"do_rescale": False}, 0.5 / 255, 0.5 / 255),
        ({"do_rescale": False, "do_normalize": False}, 0.0, 1 / 255),
    ],
)
def test_rescaling_becomes_mean_and_deviation(tmp_path, fields, mean, std):
    """(factor * pixel - mean) / std, as transformers computes it, from pixels of 0 to 1."""
    size = {"height": 12, "width": 12}
    settings = {"size": size, "resample": 2, "do_center_crop": False, **fields}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    arguments = VIT.read(write_config(tmp_path))
    assert arguments["pixel_mean"] == pytest.approx(mean)
    assert arguments.get("pixel_std") == (pytest.approx(std) if std else None)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"resample": 3}, r"resample=3; only 2 \(bilinear\) is supported"),
        ({"size": {"height": 8, "width": 12}}, "size=.* resized to the model.s 12 x 12 pixels"),
        ({"size": {"shortest_edge": 12}}, "size=.* resized to the model.s 12 x 12 pixels"),
        ({"size": 14}, "size=14.* 12 x 12"),
        ({"do_center_crop": True, "crop_size": 8}, "do_center_crop with crop_size=8"),
        ({"do_center_crop": True}, "do_center_crop with crop_size=None"),
        ({"rescale_factor": 0}, "rescale_factor=0; expected a number, at least 1e-09"),
    ],
)
def test_a_preprocessor_that_prepares_images_otherwise_is_refused(tmp_path, fields, text):
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=rf"preprocessor_config\.json: {text}"):
        VIT.read(write_config(tmp_path))
    file.write_text(json.dumps({"do_resize": False, "size": 14, "do_center_crop": False}))
    assert VIT.read(tmp_path)["image_size"] == 12


def test_files_that_are_no_configuration(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json: no such file"):
        VIT.read(tmp_path)
    for text, message in (("{", "not JSON"), ("[]", "a JSON list, expected an object")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            VIT.read(tmp_path)
