"""Google's ViT files, made here from a model's weights under Google's names."""

import numpy as np
import pytest
import tiny
from logged import warnings_in

import keras_transformers as kt
from keras_transformers.families.vit.model import vit

SHAPE = {
    "patch_size": 4,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "image_size": 12,
    "activation": "gelu_approximate",
}
ATTENTION = "MultiHeadDotProductAttention_1"


def google_arrays(model):
    """Google's name -> array, as flax lays them out; written down by hand for one layer a time."""
    ours = {variable.path: np.asarray(variable) for variable in model.weights}
    found = {
        "cls": ours["class_token/class_token"][None, None],
        "embedding/kernel": ours["patch_embedding/kernel"],
        "embedding/bias": ours["patch_embedding/bias"],
        "Transformer/posembed_input/pos_embedding": ours["position_embedding/embeddings"][None],
        "Transformer/encoder_norm/scale": ours["encoder_norm/gamma"],
        "Transformer/encoder_norm/bias": ours["encoder_norm/beta"],
    }
    for name, layer in (("head", "logits"), ("pre_logits", "pooler")):
        if f"{layer}/kernel" in ours:
            found |= {f"{name}/{part}": ours[f"{layer}/{part}"] for part in ("kernel", "bias")}
    for number in range(2):
        block, layer = f"Transformer/encoderblock_{number}", f"encoder_layer_{number}"
        for part in ("query", "key", "value"):
            module = f"{layer}/self_attention/{part}"
            found[f"{block}/{ATTENTION}/{part}/kernel"] = ours[f"{module}/kernel"].reshape(8, 2, 4)
            found[f"{block}/{ATTENTION}/{part}/bias"] = ours[f"{module}/bias"].reshape(2, 4)
        out = f"{layer}/self_attention/output"
        found[f"{block}/{ATTENTION}/out/kernel"] = ours[f"{out}/kernel"].reshape(2, 4, 8)
        found[f"{block}/{ATTENTION}/out/bias"] = ours[f"{out}/bias"]
        for theirs, norm in ((0, "self_attention_norm"), (2, "feed_forward_norm")):
            found[f"{block}/LayerNorm_{theirs}/scale"] = ours[f"{layer}/{norm}/gamma"]
            found[f"{block}/LayerNorm_{theirs}/bias"] = ours[f"{layer}/{norm}/beta"]
        for theirs, dense in ((0, "intermediate"), (1, "output")):
            for part in ("kernel", "bias"):
                found[f"{block}/MlpBlock_3/Dense_{theirs}/{part}"] = ours[
                    f"{layer}/feed_forward/{dense}/{part}"
                ]
    return found


def classifier(**options):
    return tiny.lively(kt.heads.classifier(vit(**SHAPE, **options), 3))


@pytest.mark.parametrize("pretrained", [True, False])
@pytest.mark.parametrize("start", ["", "opt/target/"])
def test_a_file_becomes_the_classifier_it_is(pretrained, start, tmp_path, caplog):
    model = classifier(use_representation_layer=pretrained)
    arrays = {f"{start}{name}": array for name, array in google_arrays(model).items()}
    if start:
        arrays["opt/state/step"] = np.array(3)
    np.savez(tmp_path / "vit.npz", **arrays)
    loaded = kt.load(tmp_path / "vit.npz")
    assert list(loaded.labels) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert loaded.decoder.image_size == (12, 12)
    assert not warnings_in(caplog)
    images = np.random.default_rng(0).uniform(0, 255, (2, 12, 12, 3)).astype("float32")
    np.testing.assert_array_equal(
        loaded.model({"images": images})["logits"], model({"images": images})["logits"]
    )
    new = kt.load(tmp_path / "vit.npz", labels=["a", "b"])
    assert new.model.output["logits"].shape[-1] == 2
    assert "does not use logits/bias, logits/kernel" in caplog.text


def test_other_files_are_refused(tmp_path):
    file = tmp_path / "vit.npz"
    arrays = google_arrays(classifier())
    np.savez(file, **arrays)
    whole = file.read_bytes()
    for damaged in (whole[:-100], whole[:300] + b"???" + whole[303:], b""):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"vit.npz:.*.npz file"):
            kt.load(file)
    np.savez(file, **arrays, extra=np.ones(3))
    with pytest.raises(ValueError, match="in the file but not used.*: extra"):
        kt.load(file)
    np.savez(file, **arrays | {"cls": np.array([object()])})
    with pytest.raises(ValueError, match="not a readable .npz file .*allow_pickle"):
        kt.load(file)
    np.savez(file, **arrays, **{"conv_root/kernel": np.ones(3)})
    with pytest.raises(ValueError, match="it starts with a ResNet"):
        kt.load(file)
    np.savez(file, **{name: array for name, array in arrays.items() if name != "cls"})
    with pytest.raises(ValueError, match="one of Google's ViTs: "):
        kt.load(file)
    positions = "Transformer/posembed_input/pos_embedding"
    np.savez(file, **arrays | {positions: arrays[positions][:, :-1]})
    with pytest.raises(ValueError, match=r"the positions \(1, 9, 8\).*square image"):
        kt.load(file)
