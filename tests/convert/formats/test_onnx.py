"""What ONNX Runtime answers equals what the model answers."""

import keras
import numpy as np
import pytest

import keras_transformers as kt
from keras_transformers.convert.formats import onnx
from keras_transformers.convert.formats.onnx import save_onnx
from keras_transformers.families.bert.model import bert
from keras_transformers.families.roberta.model import roberta

onnxruntime = pytest.importorskip("onnxruntime", reason="needs the `onnx` extra")
pytest.importorskip("tf2onnx", reason="needs the `onnx` extra")

SHAPE = {
    "vocabulary_size": 20,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "max_sequence_length": 12,
    "initializer_range": 0.5,
}


@pytest.mark.one_case
@pytest.mark.parametrize(
    "make",
    [
        lambda: kt.heads.tagger(roberta(**SHAPE), 3),
        lambda: kt.heads.embedder(bert(**SHAPE, activation="gelu_approximate")),
    ],
)
def test_other_shapes_than_the_checked_ones(tmp_path, make):
    model = make()
    save_onnx(model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert {each.name for each in session.get_inputs()} == set(model.input)
    generator = np.random.default_rng(0)
    ids = generator.integers(0, 20, (5, 11)).astype("int32")
    lengths = np.array([1, 3, 11, 7, 2])[:, None]
    inputs = {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": np.arange(11) < lengths,
    }
    inputs = {name: inputs[name] for name in model.input}
    expected = model(inputs, training=False)
    names = [each.name for each in session.get_outputs()]
    assert set(names) == set(expected)
    for name, found in zip(names, session.run(None, inputs), strict=True):
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-5 * np.abs(found).max())


def test_what_differs_is_not_written(tmp_path, monkeypatch):
    model = bert(**SHAPE)
    converted = onnx._converted(model)
    model.get_layer("embeddings_norm").gamma.assign_add(np.full(8, 1e-3, "float32"))
    monkeypatch.setattr(onnx, "_converted", lambda model: converted)
    with pytest.raises(ValueError, match="not written, because .* of its largest value"):
        save_onnx(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_models_that_are_no_encoders(tmp_path):
    image = keras.Input((4, 4, 3), name="images")
    unnamed = keras.Model(image, keras.layers.Flatten()(image))
    with pytest.raises(ValueError, match="no named inputs and outputs"):
        save_onnx(unnamed, tmp_path / "m.onnx")
    named = keras.Model({"images": image}, {"logits": keras.layers.Flatten()(image)})
    with pytest.raises(ValueError, match=r"\(batch, length\).*supported"):
        save_onnx(named, tmp_path / "m.onnx")
    with pytest.raises(FileNotFoundError, match="create it first"):
        save_onnx(bert(**SHAPE), tmp_path / "missing" / "m.onnx")
