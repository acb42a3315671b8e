"""Options that other libraries have: the message names ours, which exist."""

import importlib
import inspect
import re

import pytest
import tiny
from test_every_task import LABELS, TEXTS, TRAINERS, bag_of_words, fresh

import keras_transformers as kt
from keras_transformers.fitting.option_names import ADVICE
from keras_transformers.options import options_in, unknown_option

fit = importlib.import_module("keras_transformers.fitting.fit")
ARGUMENTS = set(inspect.signature(kt.fit).parameters) - {"pipeline", "options"}
# What a user of Keras' `fit`, or of transformers' TrainingArguments, writes first.
USUAL = {
    "validation_data": "validation=",
    "validation_split": "validation=",
    "class_weights": "class_weight=",
    "sample_weight": "data=",
    "verbose": "quiet=True",
    "shuffle": "seed=",
    "num_train_epochs": "epochs=",
    "per_device_train_batch_size": "batch_size=",
    "per_device_eval_batch_size": "batch_size=",
    "max_seq_length": "load(..., max_sequence_length=...)",
    "max_length": "load(..., max_sequence_length=...)",
    "lr": "learning_rate=",
    "learning_rate_schedule": "optimizer=",
    "lr_scheduler_type": "optimizer=",
    "warmup_ratio": "warmup_fraction=",
    "warmup_steps": "warmup_fraction=",
    "gradient_accumulation_steps": "accumulate=",
    "max_grad_norm": "clip_norm=",
    "fp16": "set_dtype_policy",
    "bf16": "set_dtype_policy",
    "precision": "set_dtype_policy",
    "output_dir": "folder=",
    "logging_dir": "folder=",
    "save_steps": "checkpoint_every=",
    "early_stopping": "callbacks=",
    "epoch": "epochs",
    "validaton": "validation",
    "colums": "columns",
    "callback": "callbacks",
    "foldr": "folder",
}


@pytest.mark.parametrize(("name", "ours"), USUAL.items())
def test_the_message_names_ours(name, ours):
    with pytest.raises(TypeError, match=f"no option '{name}'") as error:
        kt.fit(bag_of_words(), (TEXTS, LABELS), **{name: 1})
    assert ours in str(error.value)


def test_each_advice_names_options_that_exist():
    everything = ARGUMENTS.union(*map(fit.option_names, TRAINERS.values()))
    for advice, names in ADVICE.items():
        assert set(options_in(advice)) <= everything, advice
        for ours in re.findall(r"load\(\.\.\., (\w+)=", advice):
            made = inspect.signature(kt.pipelines.TextClassifier).parameters
            assert ours in made, advice
        for ours in re.findall(r"keras_transformers\.(\w+)", advice):
            assert hasattr(kt, ours), advice
        ours = fit.option_names(TRAINERS["classification"]) - {"batch_size", "label_smoothing"}
        assert not set(names) & ours, advice


def test_all_names_are_listed():
    message = str(unknown_option("fit", "zzz", ARGUMENTS))
    assert all(name in message for name in ARGUMENTS)
    with pytest.raises(TypeError) as error:
        kt.fit(bag_of_words(), (TEXTS, LABELS), zzz=1)
    for name in ("validation", "columns", "folder", "callbacks", "optimizer", "strategy", "lora"):
        assert name in str(error.value)


@pytest.mark.parametrize("name", ["batch_size", "per_device_train_batch_size"])
def test_translation_counts_tokens(name):
    """Its batches have no number of examples, which was ignored."""
    with pytest.raises(TypeError, match=f"no option '{name}'.*batch_tokens="):
        kt.fit(fresh("translation"), ["unread"], **{name: 8})


@pytest.mark.parametrize(
    ("verb", "options", "parts"),
    [
        ("load", {"labls": ["a", "b"]}, ("load", "'labls'", "labels")),
        ("load", {"max_seq_length": 8}, ("'max_seq_length'", "max_sequence_length=")),
        ("load", {"num_labels": 2}, ("'num_labels'", "labels=")),
        ("evaluate", {"colums": {}}, ("evaluate", "'colums'", "columns")),
        ("evaluate", {"eval_dataset": []}, ("'eval_dataset'", "data=")),
        ("export", {"weight_dtype": "int8"}, ("export", "'weight_dtype'", "weights_dtype")),
        ("export", {"quantization": "int8"}, ("'quantization'", "weights_dtype=")),
        ("save", {"fmt": "huggingface"}, ("save", "'fmt'", "format")),
        ("save", {"save_format": "huggingface"}, ("'save_format'", "format=")),
    ],
)
def test_every_verb_says_which_option_is_meant(verb, options, parts, tmp_path):
    pipeline = tiny.pipeline("classification")
    calls = {
        "load": lambda: kt.load(bert_folder(tmp_path), pipeline="classification", **options),
        "evaluate": lambda: kt.evaluate(pipeline, (TEXTS, LABELS), **options),
        "export": lambda: kt.export(pipeline, tmp_path / "export", **options),
        "save": lambda: kt.save(pipeline, tmp_path / "saved", **options),
    }
    with pytest.raises(TypeError) as error:
        calls[verb]()
    assert all(part in str(error.value) for part in parts)
    assert not (tmp_path / "export").exists()
    assert not (tmp_path / "saved").exists()


def bert_folder(folder):
    """Writes a tiny BERT in Hugging Face's layout."""
    return kt.save(tiny.pipeline("embedding"), folder / "bert", format="huggingface")
