"""Image classification: encoded images in, the model's answers out."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from answer_checks import restored, same_answers, typed_answers
from graph_checks import meta_graph, nodes, strings_are_pinned_to_the_cpu

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.families.vit.model import vit
from keras_transformers.pipelines import ImageClassifier, ImageDecoder
from keras_transformers.results import Classification
from keras_transformers.saved_model.checks import check
from keras_transformers.saved_model.description import METADATA_FILE
from keras_transformers.saved_model.examples import decode_array
from keras_transformers.saved_model.prediction import Predictor

LABELS = ["circle", "square", "star"]

# A stranger's program: none of our code, no Keras model, the bytes of files in.
STRANGER = """
import json, sys
import tensorflow as tf
signature = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
outputs = signature(image_bytes=tf.constant([open(path, "rb").read() for path in sys.argv[2:]]))
assert not [name for name in sys.modules if name.startswith(("keras_transformers", "tensorflow_t"))]
print(json.dumps({"label": [x.decode() for x in outputs["label"].numpy()],
                  "probabilities": outputs["probabilities"].numpy().tolist(),
                  "label_index": outputs["label_index"].numpy().tolist()}))
"""


def make_model(channels=3, seed=2):
    encoder = vit(
        patch_size=4,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        image_size=(8, 12),
        num_channels=channels,
    )
    model = heads.classifier(encoder, 3)
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:  # so large that every input matters
        if len(variable.shape) > 1:
            variable.assign(random.normal(0.0, 0.7, variable.shape))
    return model


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def classify(model):
    return ImageClassifier(model, ImageDecoder((8, 12)), LABELS)


@pytest.fixture(scope="module")
def exported(classify, tmp_path_factory):
    """Read only."""
    return kt.export(classify, tmp_path_factory.mktemp("base"), check=False)


@pytest.fixture(scope="module")
def loaded(exported):
    return tf.saved_model.load(str(exported))


def picture(height=8, width=12, channels=3, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (height, width, channels)).astype(np.uint8)


def png(pixels):
    return tf.io.encode_png(pixels).numpy()


def record(image):
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image]))
    features = tf.train.Features(feature={"image_bytes": feature})
    return tf.train.Example(features=features).SerializeToString()


@pytest.mark.slow
def test_a_process_without_this_package_gets_the_models_answers(exported, model, tmp_path):
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    pixels = [picture(seed=0), picture(seed=1)]
    for file, image in zip(files, pixels, strict=True):
        file.write_bytes(png(image))
    process = subprocess.run(
        [sys.executable, "-I", "-c", STRANGER, exported, *files], capture_output=True, check=True
    )
    answer = json.loads(process.stdout.splitlines()[-1])
    # Pixels, as in training.
    logits = model({"images": np.stack(pixels).astype("float32")}, training=False)["logits"]
    probabilities = tf.nn.softmax(logits).numpy()
    np.testing.assert_allclose(answer["probabilities"], probabilities, atol=1e-5)
    assert answer["label_index"] == probabilities.argmax(-1).tolist()
    assert answer["label"] == [LABELS[i] for i in probabilities.argmax(-1)]


@pytest.fixture(scope="module")
def images():
    """Returns images of all sizes and kinds."""
    return [
        png(picture(5, 30)),
        tf.io.encode_jpeg(picture(40, 9)).numpy(),
        png(picture(8, 12, 1)),
        png(picture(8, 12, 4)),
    ]


def test_the_export_answers_as_the_pipeline_does(loaded, classify, images):
    found = classify(images)
    assert all(isinstance(answer, Classification) for answer in found)
    outputs = loaded.signatures["serving_default"](image_bytes=tf.constant(images))
    arrays = {name: value.numpy() for name, value in outputs.items()}
    same_answers(typed_answers(arrays, classify), found)
    same_answers([classify(image) for image in images], found)
    assert classify([]) == []


def test_it_comes_back_as_it_was(model, images, tmp_path):
    other = ImageClassifier(model, ImageDecoder((8, 12), max_pixels=500), LABELS)
    again = restored(other, tmp_path / "saved", images)
    assert (again.decoder, list(again.labels)) == (other.decoder, LABELS)


def test_both_signatures_agree_on_images_of_all_sizes_and_kinds(loaded, images):
    answer = loaded.signatures["serving_default"](image_bytes=tf.constant(images))
    assert answer["label"].dtype == tf.string
    assert answer["probabilities"].dtype == tf.float32
    assert answer["label_index"].dtype == tf.int32
    np.testing.assert_allclose(tf.reduce_sum(answer["probabilities"], -1), np.ones(4), atol=1e-5)
    ranked = loaded.signatures["classify"](inputs=tf.constant([record(i) for i in images]))
    np.testing.assert_allclose(ranked["scores"], answer["probabilities"], atol=1e-6)
    assert ranked["classes"].numpy().tolist() == [[label.encode() for label in LABELS]] * 4


def test_grey_is_the_same_as_rgb_of_equal_colours(loaded):
    grey = picture(channels=1)
    # One by one: the rows of a batch may be summed in another order.
    one, other = (
        loaded.signatures["serving_default"](image_bytes=tf.constant([image]))["probabilities"]
        for image in (png(grey), png(np.repeat(grey, 3, axis=-1)))
    )
    np.testing.assert_array_equal(one, other)


def test_an_empty_batch_has_an_empty_answer(loaded):
    answer = loaded.signatures["serving_default"](image_bytes=tf.constant([], tf.string))
    shapes = {name: tuple(value.shape) for name, value in answer.items()}
    assert shapes == {"label": (0,), "probabilities": (0, 3), "label_index": (0,)}


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (b"", r"must be PNG or JPEG; these rows of the batch are neither:(.|\n)*1"),
        (b"GIF89a", "must be PNG or JPEG"),
        (png(picture())[:70], "(?i)png"),
        (tf.io.encode_jpeg(picture(30, 30)).numpy()[:200], "(?i)jpeg"),
    ],
)
def test_bytes_that_do_not_decode_are_refused_with_a_reason(loaded, bad, text):
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        loaded.signatures["serving_default"](image_bytes=tf.constant([png(picture()), bad]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        loaded.signatures["classify"](inputs=tf.constant([record(png(picture())), record(bad)]))


def test_a_call_takes_bytes_alone(classify):
    for given in ("cat.png", ["cat.png"]):
        with pytest.raises(ValueError, match="image 0 .*str: pass the bytes"):
            classify(given)
    with pytest.raises(ValueError, match="must be PNG or JPEG"):
        classify(b"cat.png")


def test_an_example_without_an_image_is_refused(loaded):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"image_bytes.*required"):
        loaded.signatures["classify"](inputs=tf.constant([b""]))


def test_the_v1_loader_refuses_them_too(exported):
    """TF Serving uses that loader, and turns the error into INVALID_ARGUMENT."""
    image = png(picture())
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        definition = tf.compat.v1.saved_model.load(session, ["serve"], str(exported)).signature_def[
            "serving_default"
        ]
        outputs = {key: value.name for key, value in definition.outputs.items()}
        given = definition.inputs["image_bytes"].name
        assert session.run(outputs, {given: [image]})["probabilities"].shape == (1, 3)
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be PNG or JPEG"):
            session.run(outputs, {given: [b"no image"]})


def test_the_graph_has_core_ops_alone_and_strings_on_the_cpu(exported):
    found = {node.op for node in nodes(exported)}
    assert "DecodeImage" in found
    assert not {op for op in found if "PyFunc" in op or "Lookup" in op or ">" in op}
    assert not {op for op in found if op.startswith(("Fast", "Sentencepiece"))}
    strings_are_pinned_to_the_cpu(exported)


def test_method_names_and_metadata(exported, model):
    definitions = meta_graph(exported).signature_def
    assert definitions["classify"].method_name == "tensorflow/serving/classify"
    assert definitions["serving_default"].method_name == "tensorflow/serving/predict"
    assert list(definitions["serving_default"].inputs) == ["image_bytes"]
    metadata = json.loads((exported / METADATA_FILE).read_text())
    expected = {
        "task": "image_classification",
        "labels": LABELS,
        "image_size": [8, 12],
        "num_channels": 3,
        "max_pixels": 50_000_000,
    }
    assert {key: metadata[key] for key in expected} == expected
    assert metadata["model"]["name"] == "vit_classifier"
    assert metadata["model"]["num_parameters"] == model.count_params()
    assert list(check.failures(str(exported))) == []


def test_a_predictor_takes_bytes(exported):
    rows = Predictor(exported)({"image_bytes": [png(picture()), png(picture(3, 3))]})
    assert [set(row) for row in rows] == [{"label", "label_index", "probabilities"}] * 2


@pytest.mark.slow
def test_grey_models_examples_of_ones_own_and_bfloat16(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        grey = make_model(channels=1)
    finally:
        keras.config.set_dtype_policy("float32")
    mine = [png(picture(8, 12, 1)), png(picture(8, 12, 3))]
    classify = ImageClassifier(grey, ImageDecoder((8, 12), 1), LABELS)
    folder = kt.export(classify, tmp_path / "4", examples=mine, check=False)
    assert folder.name == "4"
    assert list(check.failures(str(folder))) == []
    metadata = json.loads((folder / METADATA_FILE).read_text())
    stored = metadata["signatures"]["serving_default"]["examples"][0]["inputs"]["image_bytes"]
    assert decode_array(stored).tolist() == mine
    assert metadata["tolerance"] == 2e-2


@pytest.mark.parametrize(
    ("decoder", "labels", "text"),
    [
        (ImageDecoder((8, 8)), LABELS, r"takes images of \(8, 12, 3\) .* makes \(8, 8, 3\)"),
        (ImageDecoder((8, 12), 1), LABELS, r"the decoder makes \(8, 12, 1\)"),
        (ImageDecoder((8, 12)), ["a", "b"], "2 labels .* for the 3 classes"),
    ],
)
def test_what_does_not_fit_the_model(model, decoder, labels, text):
    with pytest.raises(ValueError, match=text):
        ImageClassifier(model, decoder, labels)


@pytest.mark.parametrize(
    ("examples", "text"),
    [
        (["a.png"], "example 0 is a str"),
        ([b"x"], "example 0 does not decode: .*PNG or JPEG"),
    ],
)
def test_examples_that_are_no_images(classify, tmp_path, examples, text):
    with pytest.raises(ValueError, match=f"(?s){text}"):
        kt.export(classify, tmp_path / "base", examples=examples)
    assert not (tmp_path / "base").exists()


def test_a_model_that_is_no_image_classifier():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs), name="table")
    with pytest.raises(ValueError, match="'table'.*logits"):
        ImageClassifier(model, ImageDecoder((8, 12)), LABELS)
