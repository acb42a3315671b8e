"""The image classification recipe, from images to an export, and its errors on wrong input."""

import functools
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from checks import says
from recipe_runs import error_of, file_of, run

import keras_transformers as kt
from keras_transformers.data.images.augmentation import Augmentation
from keras_transformers.families.vit.files import FAMILY as VIT
from keras_transformers.families.vit.model import vit
from keras_transformers.saved_model import Predictor

run = functools.partial(run, "image_classification")
error_of = functools.partial(error_of, "image_classification")


def options(folder, **changes):
    tiny = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "epochs": 1}
    return tiny | {"runs_dir": folder / "runs"} | changes


def test_options_reach_the_augmentation_and_the_first_position_embeddings():
    recipe = runpy.run_path(str(file_of("image_classification")))
    config = recipe["Config"](rotation=5.0, zoom=0.1, position_range=0.3)
    assert config.augmentation() == Augmentation(rotation=5.0, zoom=0.1, crop_padding=1)
    layer = recipe["build"](config, (8, 8, 1), 10).get_layer("position_embedding")
    assert np.std(layer.get_weights()[0]) == pytest.approx(0.3, rel=0.1)


def idx(array):
    header = bytes([0, 0, 8, array.ndim])
    return header + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.fixture(scope="module")
def idx_folder(tmp_path_factory):
    """Images of 4 x 4 whose brighter half determines the class."""
    random = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("idx")
    for name, count in (("train", 160), ("t10k", 40)):
        labels = np.arange(count, dtype=np.uint8) % 2
        pixels = random.integers(0, 100, (count, 4, 4)).astype(np.uint8)
        pixels[labels == 1, :2] += 150
        pixels[labels == 0, 2:] += 150
        (folder / f"{name}-images-idx3-ubyte").write_bytes(idx(pixels))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx(labels))
    return folder


@pytest.fixture
def class_folder(tmp_path):
    """Pictures of two classes in train/ and test/, of different sizes and formats."""
    for part, count in (("train", 8), ("test", 4)):
        for name, shade in (("dark", 20), ("light", 220)):
            folder = tmp_path / "pictures" / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = np.full((5 + number, 9, 3), shade + number, np.uint8)
                encode = tf.io.encode_png if number % 2 else tf.io.encode_jpeg
                kind = "png" if number % 2 else "jpg"
                (folder / f"{number}.{kind}").write_bytes(encode(pixels).numpy())
    return tmp_path / "pictures"


LABELS = "--labels", "bottom", "top"


@pytest.fixture(scope="module")
def outcome(idx_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("image_classification")
    return run(
        *LABELS,
        **options(
            folder,
            data=idx_folder,
            epochs=12,
            batch_size=16,
            learning_rate=5e-3,
            crop_padding=0,
            mixup=0.1,
            export=folder / "saved" / "1",
        ),
    )


@pytest.fixture(scope="module")
def export(outcome):
    return outcome.folder.parents[1] / "saved" / "1"


@pytest.mark.slow
def test_a_run_learns(outcome, export):
    metrics = outcome.metrics
    assert metrics["test_accuracy"] > 0.9 > metrics["test_majority"] == 0.5
    assert metrics["labels"] == ["bottom", "top"]
    assert len(metrics["epochs"]) == 12
    assert "144 images to train, 16 dev, 40 test: (4, 4, 1) each" in outcome.printed
    assert f"exported: {export}" in outcome.printed
    assert outcome.json("report_test.json")["figures"]["accuracy"] == metrics["test_accuracy"]


@pytest.mark.slow
def test_the_export_tells_its_scores_and_answers(outcome, export):
    described = json.loads((export / "assets.extra/keras_transformers.json").read_text())
    assert described["scores"]["test_accuracy"] == outcome.metrics["test_accuracy"]
    picture = np.zeros((4, 4, 1), np.uint8)
    picture[:2] = 200
    (answer,) = Predictor(export.parent)({"image_bytes": [tf.io.encode_png(picture).numpy()]})
    assert answer["label"] == "top"


@pytest.mark.slow
def test_a_run_is_never_overwritten(outcome, capsys):
    error = error_of(capsys, **options(outcome.folder.parents[1]))
    assert "image_classification exists: choose another --name" in error


@pytest.mark.slow
def test_the_digits_are_split_by_the_seed(tmp_path):
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install -e .[dev]")
    digits = run(**options(tmp_path, batch_size=256, seed=3))
    assert digits.metrics["labels"] == [str(i) for i in range(10)]
    assert "1294 images to train, 144 dev, 359 test: (8, 8, 1) each" in digits.printed


@pytest.mark.slow
def test_weights_of_another_resolution_are_fine_tuned_on_a_folder(class_folder, tmp_path):
    weights = tmp_path / "weights"
    weights.mkdir()
    shape = {"patch_size": 4, "num_layers": 1, "num_heads": 2, "hidden_dim": 8}
    VIT.save(vit(**shape, image_size=8), weights / "model.safetensors")
    config = {
        "model_type": "vit",
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "image_size": 8,
        "patch_size": 4,
    }
    (weights / "config.json").write_text(json.dumps(config))
    given = {"data": class_folder, "weights": weights, "image_size": 12, "dev_fraction": 0.2}
    metrics = run(**options(tmp_path, **given)).metrics
    assert metrics["labels"] == ["dark", "light"]
    # A kernel for patches of 4 x 4, and positions for 9 patches and the class token.
    assert metrics["num_parameters"] == 4 * 4 * 3 * 8 + 8 + 8 + 10 * 8 + 872 + 16 + 8 * 2 + 2


def test_images_have_the_size_of_the_weights_by_default(tmp_path):
    shape = {"patch_size": 4, "num_layers": 1, "num_heads": 2, "hidden_dim": 8}
    model = kt.heads.classifier(vit(**shape, image_size=12, num_channels=1), 2)
    decoder = kt.pipelines.ImageDecoder((12, 12), 1)
    weights = kt.save(kt.pipelines.ImageClassifier(model, decoder, ["a", "b"]), tmp_path / "saved")
    recipe = runpy.run_path(str(file_of("image_classification")))
    config = recipe["Config"](weights=weights).fitted()
    assert (config.image_size, config.num_channels) == (12, 1)
    assert recipe["build"](config, (12, 12, 1), 3).output["logits"].shape[-1] == 3
    given = recipe["Config"](weights=weights, image_size=224, num_channels=3).fitted()
    assert (given.image_size, given.num_channels) == (224, 3)
    with pytest.raises(ValueError, match=r"image_size=\(12, 12\), not \(224, 224\): pass that"):
        recipe["build"](given, (224, 224, 3), 3)
    assert recipe["Config"]().fitted().image_size == 224


@pytest.mark.slow
def test_a_folder_without_a_test_set_is_split(class_folder, tmp_path):
    shape = {"image_size": 8, "num_channels": 1}
    split = {"test_fraction": 0.25, "dev_fraction": 0.25}
    found = run(**options(tmp_path, data=class_folder / "train", **shape, **split))
    assert "9 images to train, 3 dev, 4 test: (8, 8, 1) each" in found.printed


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures(idx_folder, tmp_path):
    figures = []
    for name, seed in (("one", 7), ("again", 7), ("other", 8)):
        given = {"data": idx_folder, "epochs": 2, "name": name, "seed": seed}
        epochs = run(**options(tmp_path, **given)).metrics["epochs"]
        figures.append([epoch | {"tokens_per_second": 0} for epoch in epochs])
    assert figures[0] == figures[1] != figures[2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "none"}, "none: no such folder"),
        ({"labels": ("a",)}, "labels from 0 to 1 for 1 names"),
        ({"patch_size": 5}, "no whole patch of --patch-size 5"),
        ({"num_heads": 3}, "--hidden-dim 16 ... --num-heads 3"),
        ({"dev_fraction": 0}, "--dev-fraction 0 ... above 0 and below 1"),
        ({"mixup": -1}, "--mixup -1 ... 0 or more"),
        ({"crop_padding": -1}, "--crop-padding -1 ... 0 or more"),
        ({"zoom": 1.0}, "--zoom 1.0 ... 0 to below 1"),
        ({"label_smoothing": 2}, "--label-smoothing 2 ... 0 to below 1"),
        ({"batch_size": 0}, "--batch-size 0 ... 1 or more"),
        ({"epochs": 0}, "--epochs 0 ... 1 or more"),
        ({"learning_rate": 0}, "--learning-rate 0 ... above 0"),
        ({"model": "vit_tinny16"}, "did you mean vit_tiny16"),
        ({"model": "vit_tiny16"}, "no whole patch of --patch-size 16"),
        ({"weights": "none"}, "--weights none: ... check the path"),
        ({"model": "vit_tiny16", "stem_filters": 8}, "--stem-filters ... new model"),
        ({"weights": "none", "model": "vit_tiny16"}, "--weights FOLDER ... --model NAME"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(
    idx_folder, tmp_path, monkeypatch, capsys, changes, message
):
    monkeypatch.chdir(tmp_path)  # where "none" does not exist
    paths = {"weights": Path(changes["weights"])} if "weights" in changes else {}
    changed = options(tmp_path, data=str(idx_folder)) | changes | paths
    assert says(error_of(capsys, **changed), message)
    assert not (tmp_path / "runs").exists()


def test_other_classes_in_the_test_set_are_refused(class_folder, tmp_path, capsys):
    (class_folder / "test" / "dark").rename(class_folder / "test" / "black")
    error = error_of(capsys, **options(tmp_path, data=str(class_folder), image_size=8))
    assert "['dark', 'light']" in error
