"""Models whose matrices have more rows than the vocabulary has tokens: padded, or grown."""

import shutil

import encoder_decoder_toys as toys
import numpy as np
import pytest
import tensorflow as tf
import tiny
import weights_folders
from logged import warnings_in
from safetensors.numpy import load_file, save_file
from weights_folders import ENCODERS, QUESTION_OPTIONS, change_json

import keras_transformers as kt
from keras_transformers.families.bert.model import bert
from keras_transformers.families.marian.model import marian
from keras_transformers.families.t5.model import t5
from keras_transformers.tokenizers import MarianTokenizer

MORE = 5
TEXTS = ["a good film", "", "very long films"]
# In the names of the tensors with a row per token.
OF_TOKENS = (
    *("word_embeddings.weight", "wte.weight", "shared.weight", "lm_head.weight"),
    *("predictions.bias", "lm_head.bias", "vocab_projector.bias", "final_logits_bias"),
)


def with_more_rows(folder, other):
    """A copy of a folder whose model has more rows; without care, they would always be the best."""
    shutil.copytree(folder, other)
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith(OF_TOKENS):
            axis = tensor.ndim - 1 if name == "final_logits_bias" else 0
            shape = [MORE if i == axis else size for i, size in enumerate(tensor.shape)]
            rows = np.full(shape, 30.0 if tensor.ndim == 1 or axis else 3.0, "float32")
            tensors[name] = np.concatenate([tensor, rows], axis=axis)
    save_file(tensors, other / "model.safetensors")
    for name in ("vocab_size", "decoder_vocab_size"):
        size = kt.files.read_json(folder / "config.json").get(name)
        change_json(other / "config.json", **{name: size and size + MORE})
    return other


def answers(pipeline):
    """What a pipeline computes of TEXTS, without a graph, which takes long to trace."""
    if pipeline.task in ("generation", "translation"):
        (name,) = pipeline.text_names
        return pipeline.answer(**{name: tf.constant(TEXTS)})
    mask = getattr(pipeline.tokenizer, "mask_token", "")
    texts = [f"{text} {mask} {mask}" for text in TEXTS] if pipeline.task == "fill_mask" else TEXTS
    if pipeline.task in ("tagging", "question_answering"):
        return pipeline.model(pipeline.encode(tf.constant(TEXTS)))
    return pipeline.decode(pipeline.encode(tf.constant(texts)))


def same_answers(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        value, other = np.asarray(value), np.asarray(found[name])
        if value.dtype.kind == "f":
            np.testing.assert_allclose(other, value, rtol=1e-4, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(other, value, err_msg=name)


def same_everywhere(pipeline, folder, tmp_path):
    """A folder's model with more rows answers as the pipeline, and keeps its rows when saved."""
    loaded = kt.load(with_more_rows(folder, tmp_path / "more"), **options_of(pipeline))
    assert (
        loaded.model.get_layer("token_embedding").input_dim
        == pipeline.model.get_layer("token_embedding").input_dim + MORE
    )
    same_answers(answers(loaded), answers(pipeline))
    saved = kt.save(loaded, tmp_path / "saved")
    written = kt.save(loaded, tmp_path / "written", format="huggingface")
    for again in (kt.load(saved), kt.load(written)):
        for found, wanted in zip(again.model.weights, loaded.model.weights, strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg=wanted.path)
    return loaded


def options_of(pipeline):
    return QUESTION_OPTIONS if pipeline.task == "question_answering" else {}


@pytest.mark.parametrize(
    ("family", "task"),
    [
        ("bert", "classification"),
        ("bert", "fill_mask"),
        *(
            pytest.param("bert", task, marks=pytest.mark.slow)
            for task in ("embedding", "question_answering", "regression", "tagging")
        ),
        *(
            pytest.param(family, "fill_mask", marks=pytest.mark.slow)
            for family in ENCODERS
            if family != "bert"
        ),
    ],
)
def test_an_encoder(family, task, tmp_path):
    pipeline = weights_folders.pipeline(family, task, tmp_path / "vocabulary")
    folder = kt.save(pipeline, tmp_path / "folder", format="huggingface")
    same_everywhere(pipeline, folder, tmp_path)


def test_a_masked_words_probabilities_are_those_of_the_tokens(tmp_path):
    pipeline = weights_folders.pipeline("bert", "fill_mask", tmp_path / "vocabulary")
    folder = kt.save(pipeline, tmp_path / "folder", format="huggingface")
    size = pipeline.tokenizer.vocabulary_size
    fill = kt.load(with_more_rows(folder, tmp_path / "more"), top_k=size)
    found = answers(fill)
    assert found["probabilities"].shape[-1] == size
    np.testing.assert_allclose(np.sum(found["probabilities"], axis=-1), 1, atol=1e-5)
    with pytest.raises(ValueError, match=rf"top_k={size + 1}: expected 1 to {size}"):
        kt.load(tmp_path / "more", top_k=size + 1)


def test_a_language_model(tmp_path):
    pipeline = tiny.pipeline("generation")
    folder = kt.save(pipeline, tmp_path / "folder", format="huggingface")
    loaded = same_everywhere(pipeline, folder, tmp_path)
    for name, wanted in pipeline.score(tf.constant(TEXTS)).items():
        found = loaded.score(tf.constant(TEXTS))[name]
        if wanted.dtype == tf.float32:
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(found, wanted)
    kt.convert.load_language_model(weights=tmp_path / "more")


def marian_pipeline(folder):
    folder.mkdir()
    files = toys.marian_folder(folder)
    tokenizers = [MarianTokenizer(files, side=side) for side in ("source", "target")]
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "hidden_dim": 8}
    size = tokenizers[0].vocabulary_size
    model = tiny.lively(marian(vocabulary_size=size, **sizes, intermediate_dim=8))
    bias = model.get_layer("logits").bias
    bias.assign(np.where(np.arange(size) == size - 1, -1e4, bias))  # padding
    return kt.pipelines.Translator(
        model, *tokenizers, num_beams=2, extra_length=None, max_length=6, rules="transformers"
    )


def t5_pipeline(folder):
    model = tiny.lively(t5(**toys.T5_SIZES))
    options = {"max_sequence_length": 12, "max_length": 6, "rules": "transformers"}
    tokenizer = toys.t5_tokenizer()
    return kt.pipelines.Translator(model, tokenizer, num_beams=2, extra_length=None, **options)


@pytest.mark.one_case
@pytest.mark.parametrize("make", [marian_pipeline, t5_pipeline])
def test_a_translator(make, tmp_path):
    pipeline = make(tmp_path / "made")
    folder = kt.save(pipeline, tmp_path / "folder", format="huggingface")
    same_everywhere(pipeline, folder, tmp_path)


@pytest.mark.slow
def test_exports_never_answer_with_such_a_row(tmp_path):
    pipelines = [
        weights_folders.pipeline("bert", "fill_mask", tmp_path / "vocabulary"),
        tiny.pipeline("generation"),
        t5_pipeline(tmp_path),
    ]
    for number, pipeline in enumerate(pipelines):
        folder = kt.save(pipeline, tmp_path / f"folder{number}", format="huggingface")
        loaded = kt.load(with_more_rows(folder, tmp_path / f"more{number}"))
        export = kt.export(loaded, tmp_path / f"export{number}")  # compares its answers with these
        (name,) = loaded.text_names
        texts = tf.constant(["a good [MASK] film", "very"])
        found = tf.saved_model.load(str(export)).signatures["serving_default"](**{name: texts})
        wanted = pipeline.answer(**{name: texts})
        same_answers({name: found[name] for name in wanted}, wanted)


def test_a_continued_pretraining_may_have_more_rows(tmp_path):
    model = kt.heads.pretrainer(bert(vocabulary_size=40, **weights_folders.SHAPE))
    kt.convert.save_weights(model, tmp_path / "weights", tiny.wordpiece(), family="bert")
    sizes = {"vocabulary_size": len(tiny.VOCABULARY), "max_sequence_length": 24}
    loaded = kt.convert.load_pretrainer(weights=tmp_path / "weights", **sizes)
    assert loaded.get_layer("token_embedding").input_dim == 40
    with pytest.raises(ValueError, match="40 tokens,.*41"):
        kt.convert.load_pretrainer(weights=tmp_path / "weights", **sizes | {"vocabulary_size": 41})


def test_fewer_rows_are_an_error_and_more_than_padding_a_warning(caplog):
    tokenizer = tiny.wordpiece()
    size = tokenizer.vocabulary_size
    shape = weights_folders.SHAPE
    with pytest.raises(ValueError, match=f"has {size} tokens but model 'bert' embeds {size - 1}:"):
        kt.pipelines.Embedder(bert(vocabulary_size=size - 1, **shape), tokenizer)
    for padded in (16, 24, 64, 128):
        kt.pipelines.Embedder(bert(vocabulary_size=padded, **shape), tokenizer)
    assert not warnings_in(caplog)
    for rows in (size + 1, 144):
        kt.pipelines.Embedder(bert(vocabulary_size=rows, **shape), tokenizer)
        assert f"the last {rows - size} rows have no token and are never pr" in caplog.text
