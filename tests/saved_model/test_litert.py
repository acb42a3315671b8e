"""Models for phones: LiteRT computes what the model does."""

import numpy as np
import pytest
import tiny

import keras_transformers as kt

litert = pytest.importorskip("ai_edge_litert.interpreter")


def outputs_of(path, inputs):
    interpreter = litert.Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    return interpreter.get_signature_runner("tokens")(**inputs)


@pytest.mark.one_case
@pytest.mark.parametrize("task", ["classification", "embedding", "tagging", "question_answering"])
def test_it_computes_the_same(task, tmp_path):
    pipeline = tiny.pipeline(task)
    path = kt.export(pipeline, tmp_path / "model.tflite", format="litert", max_sequence_length=12)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.tflite", "model.tokenizer"]
    words = (tmp_path / "model.tokenizer/vocab.txt").read_text().split("\n")[:-1]
    assert words == list(pipeline.tokenizer.vocabulary)
    real = np.arange(12)[None] < 7
    inputs = {
        "token_ids": np.where(real, np.arange(12)[None] + 2, 0).astype("int32"),
        "segment_ids": np.zeros((1, 12), "int32"),
        "padding_mask": real,
    }
    expected = pipeline.model(inputs, training=False)
    for name, value in outputs_of(path, inputs).items():
        wanted = np.asarray(expected[name])
        if task in ("tagging", "question_answering"):
            value, wanted = value[:, :7], wanted[:, :7]
        np.testing.assert_allclose(value, wanted, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.slow
def test_int8_is_smaller(tmp_path):
    encoder = kt.bert_tiny(vocabulary_size=len(tiny.VOCABULARY))
    pipeline = kt.pipelines.Embedder(encoder, tiny.wordpiece(), max_sequence_length=16)
    one = kt.export(pipeline, tmp_path / "a.tflite", format="litert")
    other = kt.export(pipeline, tmp_path / "b.tflite", format="litert", weights_dtype="int8")
    assert other.stat().st_size < 0.5 * one.stat().st_size


def test_errors(tmp_path):
    classify = tiny.pipeline("classification")
    with pytest.raises(ValueError, match="max_sequence_length=17: expected 2 to 16"):
        kt.export(classify, tmp_path / "a.tflite", format="litert", max_sequence_length=17)
    with pytest.raises(ValueError, match="only encoders"):
        kt.export(tiny.pipeline("translation"), tmp_path / "a.tflite", format="litert")
    with pytest.raises(ValueError, match="leave out the rest"):
        kt.export(classify, tmp_path / "a.tflite", format="litert", weights_dtype="bfloat16")
    with pytest.raises(ValueError, match="'saved_model'.*'lite"):
        kt.export(classify, tmp_path / "a", max_sequence_length=8)
    (tmp_path / "a.tflite").write_text("mine")
    with pytest.raises(FileExistsError):
        kt.export(classify, tmp_path / "a.tflite", format="litert")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tflite"]
