import keras
import numpy as np
import pytest
from checks import compile_toy, in_float64, round_trip, same_but_for_rounding, same_outputs

import keras_transformers as kt
from keras_transformers.families.vit.model import copy_weights, num_parameters, vit
from keras_transformers.layers.patches import StemConvolution
from keras_transformers.models import vit as family

SMALL = {"patch_size": 4, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}
# With heads of 1,000 and 21,843 classes, and of 1,000 at 384 x 384: published counts.
COUNTS = {
    "vit_b16": (86_567_656, 102_595_923, 86_859_496),
    "vit_b32": (88_224_232, 104_252_499, 88_297_192),
    "vit_l16": (304_326_632, 325_690_707, 304_715_752),
    "vit_l32": (306_535_400, 327_899_475, 306_632_680),
    "vit_h14": (632_045_800, 658_745_683, 632_651_240),
    "vit_tiny16": (5_717_416, 9_740_115, 5_790_376),
    "vit_small16": (22_050_664, 30_075_219, 22_196_584),
}
# Parameters of the representation layer.
REPRESENTATION = {"vit_b16": 590_592, "vit_l16": 1_049_600, "vit_h14": 1_639_680}


def images(rows=3, height=12, width=12, channels=3):
    random = np.random.default_rng(0)
    return random.integers(0, 256, (rows, height, width, channels)).astype("float32")


@pytest.fixture(scope="module")
def encoder():
    return vit(**SMALL, image_size=12)


def test_all_sizes_have_counts_here():
    assert set(COUNTS) == set(family.SIZES) == set(family.MODELS)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_by_arithmetic_at_both_resolutions(name):
    size = {k: v for k, v in family.SIZES[name].items() if k != "num_heads"}
    h = size["hidden_dim"]
    encoder = num_parameters(**size)
    imagenet, imagenet21k, larger = COUNTS[name]
    assert encoder + (h + 1) * 1000 == imagenet
    assert encoder + (h + 1) * 21_843 == imagenet21k
    assert num_parameters(**size, image_size=384) + (h + 1) * 1000 == larger
    with_representation = num_parameters(**size, use_representation_layer=True)
    assert with_representation - encoder == REPRESENTATION.get(name, h * h + h)


@pytest.mark.parametrize("use_representation_layer", [False, True])
@pytest.mark.parametrize("image_size", [224, 384])
@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny16",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("vit_small16", "vit_b16", "vit_b32")),
    ],
)
def test_counts_of_built_models(name, image_size, use_representation_layer, zero_weights):
    """Larger models are counted above and built at 224 x 224 in test_registry.py."""
    model = kt.create_model(
        name, image_size=image_size, use_representation_layer=use_representation_layer
    )
    h = family.SIZES[name]["hidden_dim"]
    head = (h + 1) * 1000
    with_head = COUNTS[name][0 if image_size == 224 else 2]
    layer = use_representation_layer * REPRESENTATION.get(name, h * h + h)
    assert model.count_params() == with_head - head + layer
    assert kt.heads.classifier(model, 1000).count_params() == with_head + layer


@pytest.mark.parametrize("image_size", [224, 384])
@pytest.mark.parametrize("patch_size", [14, 16, 32])
def test_a_narrow_model_has_the_count_by_arithmetic(patch_size, image_size):
    """384 is not a multiple of 14: there are 27 x 27 patches."""
    size = {"patch_size": patch_size, "num_layers": 1, "hidden_dim": 4, "image_size": image_size}
    model = vit(**size, num_heads=1, use_representation_layer=True)
    assert model.count_params() == num_parameters(**size, use_representation_layer=True)


def test_patches_of_what_convolutions_see(tmp_path):
    """28 pixels become 14, then 7; the count is 3 * 3 * (3 * 8 + 8 * 16) and two norms more."""
    size = {"patch_size": 1, "num_layers": 1, "hidden_dim": 8, "image_size": (28, 27)}
    model = vit(**size, num_heads=1, stem_filters=(8, 16))
    assert model.get_layer("patch_embedding").grid == (7, 7)
    stem = 3 * 3 * (3 * 8 + 8 * 16) + 2 * (8 + 16)
    assert model.count_params() == num_parameters(**size, stem_filters=(8, 16))
    assert model.count_params() == stem + 16 * 8 + 8 + 8 + 50 * 8 + 872 + 16
    assert model({"images": images(0, 28, 27)})["pooled_output"].shape == (0, 8)
    outputs = model({"images": images(2, 28, 27)})
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    again = loaded({"images": images(2, 28, 27)})
    np.testing.assert_array_equal(again["pooled_output"], outputs["pooled_output"])
    with pytest.raises(ValueError, match=r"=12 .* after 2 convolutions, which leave 3 x 3"):
        vit(**SMALL, image_size=12, stem_filters=(8, 8))


@pytest.mark.parametrize("shape", [(2, 28, 27, 3), (1, 5, 2, 1), (3, 1, 6, 2)])
def test_the_convolution_of_a_stem_is_that_of_keras(shape):
    inputs = np.random.default_rng(0).normal(size=shape).astype("float32")
    ours = StemConvolution(4)
    theirs = keras.layers.Conv2D(4, 3, strides=2, padding="same", use_bias=False)
    outputs = ours(inputs)
    theirs.build(shape)
    theirs.set_weights(ours.get_weights())
    np.testing.assert_allclose(outputs, theirs(inputs), atol=1e-5)


def test_shapes_and_names(encoder):
    outputs = encoder({"images": images()})
    assert outputs["sequence_output"].shape == (3, 10, 16)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    names = [layer.name for layer in encoder.layers]
    assert {"patch_embedding", "class_token", "encoder_layer_1", "encoder_norm"} <= set(names)
    assert kt.vit_tiny16.__name__ == "vit_tiny16"
    assert "width 192" in kt.vit_tiny16.__doc__


def test_position_embeddings_start_in_the_range_asked_for():
    for options, expected in (({}, 0.02), ({"position_range": 0.5}, 0.5)):
        layer = vit(**SMALL, image_size=40, **options).get_layer("position_embedding")
        assert np.std(layer.get_weights()[0]) == pytest.approx(expected, rel=0.1)


def test_images_that_are_not_square_and_not_whole_patches():
    model = vit(**SMALL, image_size=(13, 22), num_channels=1)
    assert model.get_layer("patch_embedding").grid == (3, 5)
    assert model({"images": images(2, 13, 22, 1)})["sequence_output"].shape == (2, 16, 16)
    with pytest.raises(ValueError, match="no whole patch"):
        vit(**SMALL, image_size=3)


def test_pixels_are_scaled_channel_by_channel():
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    model = vit(**SMALL, image_size=12, pixel_mean=mean, pixel_std=std)
    scaled = model.get_layer("pixel_scaling")(images())
    np.testing.assert_allclose(scaled, (images() / 255 - mean) / std, atol=1e-6)


def test_every_patch_and_its_place_count(encoder):
    base = images(1)
    pooled = encoder({"images": base})["pooled_output"].numpy()
    changed = base.copy()
    changed[0, 11, 11, 2] = 255 - changed[0, 11, 11, 2]
    turned = base[:, ::-1]
    for other in (changed, turned):
        difference = encoder({"images": other})["pooled_output"] - pooled
        assert np.abs(difference).max() > 1e-4


def test_the_order_of_a_batch_changes_nothing_and_a_batch_may_be_empty(encoder):
    one = encoder({"images": images()})["pooled_output"]
    other = encoder({"images": images()[::-1]})["pooled_output"]
    exact = in_float64(encoder)({"images": images()})["pooled_output"]
    same_but_for_rounding(other[::-1], one, exact)
    assert encoder({"images": images(0)})["pooled_output"].shape == (0, 16)


def test_integer_pixels_are_the_same_pixels(encoder):
    one = encoder({"images": images()})["pooled_output"]
    other = encoder({"images": images().astype("uint8")}, training=False)["pooled_output"]
    same_but_for_rounding(other, one, in_float64(encoder)({"images": images()})["pooled_output"])


def test_images_of_another_size_or_number_of_channels_are_refused(encoder):
    with pytest.raises(ValueError, match="expected shape=\\(None, 12, 12, 3\\)"):
        encoder({"images": images(1, 16, 12)})
    with pytest.raises(ValueError, match="expected shape=\\(None, 12, 12, 3\\)"):
        encoder({"images": images(1, 12, 12, 1)})


def test_saving_without_custom_objects(tmp_path):
    model = kt.heads.classifier(
        vit(**SMALL, image_size=12, use_representation_layer=True, pixel_std=(0.2, 0.3, 0.4)), 3
    )
    loaded = round_trip(model, tmp_path)
    inputs = {"images": images()}
    same_outputs(model(inputs, training=False), loaded(inputs, training=False))


def test_a_larger_resolution_keeps_the_weights_and_interpolates_positions():
    source, target = vit(**SMALL, image_size=8), vit(**SMALL, image_size=12)
    corners = np.arange(5 * 16, dtype="float32").reshape(5, 16)
    source.get_layer("position_embedding").embeddings.assign(corners)
    copy_weights(source, target)
    positions = np.asarray(target.get_layer("position_embedding").embeddings)
    np.testing.assert_array_equal(positions[0], corners[0])
    np.testing.assert_allclose(positions[[1, 3, 7, 9]], corners[1:], atol=1e-6)
    np.testing.assert_allclose(positions[5], corners[1:].mean(axis=0), atol=1e-5)
    for path in ("class_token/class_token", "encoder_layer_1/feed_forward/output/kernel"):
        one, two = ({v.path: v for v in model.weights}[path] for model in (source, target))
        np.testing.assert_array_equal(one, two)
    # Copying at the same resolution changes nothing.
    again = vit(**SMALL, image_size=8)
    copy_weights(source, again)
    inputs = {"images": images(2, 8, 8)}
    same_outputs(source(inputs, training=False), again(inputs, training=False))


def test_convolutions_keep_their_weights_at_another_resolution():
    source, target = (vit(**SMALL, image_size=size, stem_filters=(2,)) for size in (16, 32))
    copy_weights(source, target)
    kernels = [model.get_layer("stem_0").get_weights()[0] for model in (source, target)]
    np.testing.assert_array_equal(*kernels)
    assert target.get_layer("patch_embedding").grid == (4, 4)


def test_weights_of_another_shape_are_refused_and_nothing_changes():
    source = vit(**SMALL, image_size=8)
    target = vit(**SMALL | {"hidden_dim": 8}, image_size=8, use_representation_layer=True)
    before = [np.asarray(v) for v in target.weights]
    with pytest.raises(ValueError, match="only one has pooler/bias.*encoder_norm/gamma is"):
        copy_weights(source, target)
    for one, two in zip(before, target.weights, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_a_batch_is_learned():
    """Gradients reach every weight, and the loss of one repeated batch falls to nearly nothing."""
    keras.utils.set_random_seed(0)
    shape = SMALL | {"num_layers": 1}
    encoder = vit(**shape, image_size=12, use_representation_layer=True)
    model = kt.heads.classifier(encoder, 3, dropout=0.0)
    before = [w.numpy() for w in model.trainable_variables]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compile_toy(model, keras.optimizers.Adam(1e-2), {"logits": loss})
    targets = {"logits": np.array([0, 1, 2])}
    data = {"images": images()}, targets
    data = keras.tree.map_structure(lambda rows: np.concatenate([rows] * 10), data)
    history = model.fit(*data, batch_size=3, epochs=4, shuffle=False, verbose=0).history["loss"]
    assert history[-1] < 0.1 < history[0]
    # A bias on the keys shifts all scores of a query equally, which softmax ignores.
    still = [
        w.path
        for w, b in zip(model.trainable_variables, before, strict=True)
        if np.array_equal(w.numpy(), b) and "key/bias" not in w.path
    ]
    assert still == []
