"""Defaults never refuse: they give way to the model or the text; numbers of the user do not."""

import dataclasses
import importlib
import json
import logging
from pathlib import Path

import keras
import numpy as np
import pytest
import roberta_toy
import tiny

import keras_transformers as kt
from keras_transformers.ranges import Default
from keras_transformers.runs import EncoderTuning, Run
from keras_transformers.runs.launching import execute

RECIPES = Path(__file__).parents[2] / "recipes"
POSITIONS = 16


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved classifier of 16 positions."""
    folder = tmp_path_factory.mktemp("weights") / "saved"
    model = kt.heads.classifier(tiny.encoder(), 2)
    return kt.save(kt.pipelines.TextClassifier(model, tiny.wordpiece(), ["a", "b"]), folder)


def test_a_default_gives_way_and_a_number_of_the_user_does_not():
    model, tokenizer = kt.heads.classifier(tiny.encoder(), 2), tiny.wordpiece()

    def classifier(length):
        labels = ["a", "b"]
        return kt.pipelines.TextClassifier(model, tokenizer, labels, max_sequence_length=length)

    assert classifier(Default(128)).config()["max_sequence_length"] == POSITIONS
    assert classifier(Default(8)).config()["max_sequence_length"] == 8
    with pytest.raises(ValueError, match=r"max_sequence_length=128: .* at most 16, the positions"):
        classifier(128)


@pytest.mark.parametrize("given", [{}, {"max_sequence_length": 8}])
def test_a_run_starts_from_the_same_weights_with_and_without_defaults(given, saved, tmp_path):
    def main(config, run):
        return {"sum": float(np.sum(keras.layers.Dense(9)(np.ones([1, 9]))))}

    keras.utils.set_random_seed(EncoderTuning.seed)
    wanted = main(None, None)
    assert execute(main, EncoderTuning(weights=saved, runs_dir=tmp_path, **given)) == wanted


@pytest.mark.parametrize(("given", "length"), [({}, 16), ({"max_sequence_length": 8}, 8)])
def test_the_first_line_of_a_recipe_says_the_default(given, length, saved, tmp_path, capsys):
    logging.getLogger("keras_transformers").setLevel(logging.INFO)
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("keras_transformers").addHandler(handler)

    def main(config, run):
        return {"length": config.max_sequence_length}

    try:
        config = EncoderTuning(weights=saved, runs_dir=tmp_path, **given)
        assert execute(main, config) == {"length": length}
    finally:
        logging.getLogger("keras_transformers").removeHandler(handler)
    expected = f"--max-sequence-length 16: {saved} has 16 positions; fewer than the default, 128"
    assert lines[:1] == ([] if given else [expected])


def test_a_length_of_the_user_is_refused(saved, tmp_path):
    config = EncoderTuning(weights=saved, runs_dir=tmp_path, max_sequence_length=128)
    assert config.fitted() is config


def test_models_without_positions_keep_the_default(saved, tmp_path):
    encoder = kt.families.modern_bert.modern_bert(
        vocabulary_size=len(tiny.VOCABULARY), num_layers=1, num_heads=2, hidden_dim=8,
        intermediate_dim=8, max_sequence_length=16,
    )  # fmt: skip
    model = kt.heads.classifier(encoder, 2)
    kt.save(kt.pipelines.TextClassifier(model, tiny.wordpiece(), ["a", "b"]), tmp_path / "weights")
    config = EncoderTuning(weights=tmp_path / "weights", runs_dir=tmp_path)
    assert config.fitted().max_sequence_length == 128


def test_every_recipe_that_loads_weights_has_such_lengths():
    checked = 0
    for file in sorted(RECIPES.glob("*.py")):
        config = getattr(importlib.import_module(f"recipes.{file.stem}"), "Config", None)
        if config is None:
            continue
        fields = {field.name: field.default for field in dataclasses.fields(config)}
        for name in config.lengths:
            assert isinstance(fields[name], Default), f"{file.name}: {name}"
        if "weights" in fields and "max_sequence_length" in fields:
            assert "max_sequence_length" in config.lengths, file.name
            checked += 1
    assert checked >= 8


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"max_question_length": 3}])
def test_questions_to_a_model_of_few_positions(given, tmp_path):
    tokenizer = roberta_toy.fairseq_tokenizer(tmp_path / "vocabulary")
    keras.utils.set_random_seed(0)
    encoder = kt.families.roberta.roberta(
        vocabulary_size=tokenizer.vocabulary_size, num_layers=1, num_heads=2, hidden_dim=8,
        intermediate_dim=8, max_sequence_length=20,
    )  # fmt: skip
    ask = kt.pipelines.QuestionAnswerer(kt.heads.span_extractor(encoder), tokenizer, **given)
    room = 20 - tokenizer.num_special_tokens(2)
    assert ask.window_lengths["max_sequence_length"] == 20
    assert ask.window_lengths["max_question_length"] == given.get("max_question_length", room // 2)
    kt.save(ask, tmp_path / "hf", format="huggingface")
    (tmp_path / "hf/keras_transformers.json").unlink()  # as transformers writes it
    loaded = kt.load(tmp_path / "hf", **given)
    assert loaded.config() == ask.config()
    context = roberta_toy.LINES[2]
    answer = loaded("Where was Ada Lovelace born, and in which of all the years?", context)
    assert answer.text == context[answer.start : answer.end]
    assert json.dumps(loaded.config())  # plain numbers
    with pytest.raises(ValueError, match=r"max_question_length=64 .* raise the first or lower"):
        kt.load(tmp_path / "hf", max_question_length=64)


def test_the_defaults_of_models_with_room_stay():
    model = kt.heads.span_extractor(kt.bert_tiny(vocabulary_size=len(tiny.VOCABULARY)))
    ask = kt.pipelines.QuestionAnswerer(model, tiny.wordpiece())
    assert ask.window_lengths == {
        "max_sequence_length": 384,
        "doc_stride": 128,
        "max_question_length": 64,
    }


def test_a_run_records_the_options_as_given(saved, tmp_path):
    run = Run(EncoderTuning(weights=saved, runs_dir=tmp_path))
    assert json.loads((run.make_folder() / "config.json").read_text())["max_sequence_length"] == 128


def test_a_vocabulary_is_as_large_as_the_text_allows(tmp_path):
    (tmp_path / "text").write_text("a small dog runs\ntwo dogs are near the shore\n" * 5)
    train = kt.tokenizers.SentencePieceTokenizer.train
    chosen = train([tmp_path / "text"], tmp_path / "chosen.model", vocabulary_size=8000)
    default = train([tmp_path / "text"], tmp_path / "default.model")
    assert 260 < default.vocabulary_size == chosen.vocabulary_size < 1000
