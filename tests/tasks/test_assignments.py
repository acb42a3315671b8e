"""Attributes of pipelines: an assignment holds in calls, saves and exports, or is refused."""

import copy as copying
import inspect
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.image_classification.pipeline import ImageDecoder
from keras_transformers.tasks.task import all_tasks
from keras_transformers.tokenizers import WordPieceTokenizer

# Argument -> another value for it, from the pipeline.
OTHER = {
    "model": lambda p: _other_weights(p.model),
    "tokenizer": lambda p: _other_tokens(p.tokenizer),
    "target_tokenizer": lambda p: _other_tokens(p.tokenizer),
    "decoder": lambda p: ImageDecoder(p.decoder.image_size, antialias=False),
    "labels": lambda p: [f"{label}-new" for label in p.labels],
    "max_sequence_length": lambda p: {"question_answering": 14, "generation": 20}.get(p.task, 5),
    "pair": lambda p: p.pair,
    "long_texts": lambda p: "windows",
    "window_pooling": lambda p: "max",
    "window_overlap": lambda p: 1,
    "hypothesis_template": lambda p: "{} it is",
    "multi_label": lambda p: not p.multi_label,
    "thresholds": lambda p: [0.0] * len(p.labels),
    "offset_unit": lambda p: "byte",
    "scale": lambda p: 2.5,
    "offset": lambda p: -3.0,
    "activation": lambda p: "linear" if p.activation == "sigmoid" else "sigmoid",
    "top_k": lambda p: 2,
    "doc_stride": lambda p: 2,
    "max_question_length": lambda p: 2,
    "max_answer_length": lambda p: 1,
    "no_answer_threshold": lambda p: -1e6,
    "prompts": lambda p: {"query": "a small ", "document": ""},
    "default_prompt_name": lambda p: "query",
    "num_beams": lambda p: 2,
    "length_penalty": lambda p: 1.5,
    "rules": lambda p: "transformers",
    "force_end": lambda p: True,
    "first_token_id": lambda p: 5,
    "no_repeat_ngram_size": lambda p: 1,
    "early_stopping": lambda p: True,
    "source_language": lambda p: None,  # its tokenizer has no languages
    "target_language": lambda p: None,
    "max_length": lambda p: 3,
    "extra_length": lambda p: 1,
    "min_length": lambda p: 2,
    "temperature": lambda p: 3.0,
    "top_p": lambda p: 0.5,
    "seed": lambda p: 5,
    "repetition_penalty": lambda p: 4.0,
    "stop": lambda p: ["e"],
    "chat_template": lambda p: None,
    "also_end_token_ids": lambda p: [3, 4],
    "abstain_below": lambda p: 0.75,
    "max_active_dims": lambda p: 2,
    "query_weights": lambda p: {"a": 2.0},
    "side": lambda p: "query",
    "prompt": lambda p: "good {text} bad {document} film",
    "instruction": lambda p: "bad",
    "query_prefix": lambda p: "good ",
    "document_prefix": lambda p: "bad ",
    "prefix_as_text": lambda p: True,
    "query_length": lambda p: 5,
    "document_length": lambda p: 5,
    "query_expansion": lambda p: "attended",
    "expansion_length": lambda p: 7,
    "expansion_token": lambda p: "good",
    "skipped_tokens": lambda p: ["[UNK]"],
}
# What an embedder's model has already done.
ABSORBED = {"pooling", "projections", "normalize", "truncate_dim", "width"}
# Assignments that change no answer to these texts.
NO_EFFECT = {
    *((task, "prompts") for task in ("embedding", "sparse_embedding")),  # before one is chosen
    ("generation", "chat_template"),
    ("generation", "max_sequence_length"),  # a limit that these texts do not reach
    *(("generation", name) for name in ("stop", "also_end_token_ids")),  # which are not written
    *(("translation", name) for name in ("extra_length", "min_length")),
    *(("translation", name) for name in ("early_stopping", "source_language", "target_language")),
    *((task, "pair") for task in tiny.TASKS),  # the same value; another one takes other texts
    *((task, "tokenizer") for task in ("generation", "translation")),  # an equal one
    ("translation", "target_tokenizer"),
}
TEXTS = ("a small dog runs. " * 5, "Straße, two dogs, and a small child.", "")


def _other_weights(model):
    other = type(model).from_config(model.get_config())
    other.set_weights([weights[::-1] for weights in model.get_weights()])
    return other


def _other_tokens(tokenizer):
    """Returns a tokenizer that gives its words, or if it has none the same tokens, other ids."""
    if not isinstance(tokenizer, WordPieceTokenizer):
        return copying.copy(tokenizer)
    special, rest = tokenizer.vocabulary[:5], tokenizer.vocabulary[5:]
    return WordPieceTokenizer([*special, *rest[::-1]])


def copy(task):
    return tiny.pipeline(task).with_options()


def batch(pipeline):
    first, *_ = pipeline.example_batches(None)
    if pipeline.text_names == ("text",) and pipeline.task != "fill_mask":
        return {"text": np.array([text.encode() for text in TEXTS], object)}
    return first


def answers(pipeline, columns):
    """Returns what `serving_default` computes, eagerly, row by row."""
    function = pipeline.signatures(None)["serving_default"].function
    outputs = function(**{name: tf.constant(column) for name, column in columns.items()})
    arrays = {name: value.numpy() for name, value in outputs.items()}
    specs = pipeline.answer_specs().items()
    padded = [n for n, spec in specs if len(spec.shape) > 1 and spec.shape[1] is None]
    return list(reading.rows(arrays, padded, reading.answer_type(pipeline.task)))


def enable(pipeline, name):
    """Sets another argument without which this one has no effect."""
    if name == "default_prompt_name":
        pipeline.prompts = OTHER["prompts"](pipeline)
    elif name in ("window_pooling", "window_overlap"):
        pipeline.long_texts = "windows"
    elif name == "query_weights":
        pipeline.side = "query"
    elif name == "side":
        pipeline.query_weights = {"film": 1.5, "a": 0.5}
    elif name == "instruction":
        pipeline.prompt = "{instruction} {text} a {document} film"
    elif name == "early_stopping":
        pipeline.rules = "transformers"
    elif name == "prefix_as_text":
        pipeline.query_prefix = "[MASK] "


def same(found, wanted):
    """Returns whether rows of answers are equal, numbers up to rounding."""
    for one, other in zip(found, wanted, strict=True):
        if one.keys() != other.keys():
            return False
        for name, value in one.items():
            if np.asarray(value, object).shape != np.asarray(other[name], object).shape:
                return False
            array = np.asarray(value)
            if array.dtype.kind == "f":
                if not np.allclose(array, other[name], rtol=0, atol=1e-4):
                    return False
            elif value != other[name]:
                return False
    return True


def attributes(pipeline):
    """Returns the public attributes of a pipeline that are not methods."""
    return [
        name
        for name in dir(pipeline)
        if not name.startswith("_")
        and not inspect.ismethod(getattr(pipeline, name))
        and not inspect.isfunction(getattr(pipeline, name))
    ]


def arguments(pipeline):
    """Returns the constructor's arguments that are attributes."""
    names = inspect.signature(type(pipeline)).parameters
    missing = {name for name in names if not hasattr(pipeline, name)}
    assert missing <= ABSORBED, f"arguments that are no attributes: {missing - ABSORBED}"
    return [name for name in names if name not in missing]


def test_every_class_of_pipelines_is_here():
    classes = {type(tiny.pipeline(task)) for task in tiny.TASKS}
    assert classes == {task.pipeline for task in all_tasks().values() if not task.made_by}


@pytest.mark.parametrize("task", tiny.TASKS)
def test_what_is_no_argument_cannot_be_set_nor_changed_in_place(task):
    pipeline = copy(task)
    settable = arguments(pipeline)
    for name in attributes(pipeline):
        value = getattr(pipeline, name)
        assert not isinstance(value, list | dict | set | np.ndarray), name
        if isinstance(value, Mapping):
            assert isinstance(value, MappingProxyType), name
        if name not in (*settable, "adapter"):
            with pytest.raises(AttributeError, match=f"{name} cannot be set: set one of model"):
                setattr(pipeline, name, value)
    with pytest.raises(AttributeError, match="threshhold cannot be set"):
        pipeline.threshhold = 0.5
    with pytest.raises(ValueError, match="threshhold"):
        pipeline.with_options(threshhold=0.5)
    assert pipeline.config() == tiny.pipeline(task).config()


@pytest.mark.one_case
@pytest.mark.parametrize("task", tiny.TASKS)
def test_no_assignment_leaves_anything_of_the_old_pipeline(task):
    """Whatever a pipeline has made from its arguments, such as graphs, goes with them."""
    for name in arguments(tiny.pipeline(task)):
        pipeline = copy(task)
        enable(pipeline, name)
        made = object()
        vars(pipeline)["_graph"] = vars(pipeline)["_variants"] = made
        value = OTHER[name](pipeline)
        fresh = type(pipeline)(**pipeline._arguments() | {name: value})
        setattr(pipeline, name, value)
        assert pipeline.config() == fresh.config(), name
        assert "_variants" not in vars(pipeline), name
        # The options of decoding are inputs of their graph.
        assert ("_graph" in vars(pipeline)) == (name in pipeline.options), name
        assert vars(pipeline).keys() - {"_graph", "adapter"} == vars(fresh).keys()


def test_a_value_that_the_constructor_refuses_changes_nothing():
    pipeline = copy("multi_label_classification")
    (thresholds, labels), graph = (pipeline.thresholds, pipeline.labels), pipeline._graph
    for name, value, message in (
        ("thresholds", [0.5], "1 numbers for 3 labels"),
        ("thresholds", 7.0, "must be a probability, from 0 to 1"),
        ("labels", ["a"], "1 labels .* for the 3 classes"),
        ("max_sequence_length", 10**6, "max_sequence_length=1000000: expected"),
    ):
        with pytest.raises(ValueError, match=message):
            setattr(pipeline, name, value)
        with pytest.raises(ValueError, match=message):
            type(pipeline)(**pipeline._arguments() | {name: value})
    assert (pipeline.thresholds, pipeline.labels) == (thresholds, labels)
    assert pipeline._graph is graph


def test_options_of_a_call_hold_for_it_alone():
    fill = copy("fill_mask")
    text = "a [MASK] dog"
    assert [len(fill(text, top_k=k).tokens[0]) for k in (1, 2, 1)] == [1, 2, 1]
    assert len(fill(text).tokens[0]) == fill.top_k == 3
    assert len(fill.rows({"text": [text]}, top_k=2)[0]["tokens"][0]) == 2
    first = fill._answers_with({"top_k": 1})
    assert first is fill._answers_with({"top_k": 1})  # traced once
    fill.top_k = 2
    assert len(fill(text).tokens[0]) == 2
    with pytest.raises(ValueError, match="top_k=0: expected 1 to"):
        fill(text, top_k=0)
    with pytest.raises(ValueError, match="topk: .*batch_size, top_k, max"):
        fill(text, topk=2)


def test_another_number_of_texts_is_asked_for():
    classify = copy("classification")
    assert len(classify(["a dog"])) == 1
    classify.pair = True
    assert classify.text_names == ("text", "text_b")
    assert len(classify(["a dog"], ["a cat"])) == 1
    with pytest.raises(ValueError, match="takes text, text_b"):
        classify("a dog")


def test_an_adapter_belongs_to_the_weights():
    pipeline = copy("classification")
    pipeline.adapter = adapter = object()
    pipeline.labels = ["x", "y"]
    assert pipeline.adapter is adapter
    pipeline.model = OTHER["model"](pipeline)
    assert pipeline.adapter is None


@pytest.mark.slow
@pytest.mark.parametrize("task", tiny.TASKS)
def test_each_assignment_holds_in_calls_and_exports(task):
    without_effect = set()
    for name in arguments(tiny.pipeline(task)):
        pipeline = copy(task)
        columns = batch(pipeline)
        enable(pipeline, name)
        before = pipeline.rows(columns)
        value = OTHER[name](pipeline)
        fresh = pipeline.with_options(**{name: value})
        setattr(pipeline, name, value)
        assert pipeline.config() == fresh.config(), name
        wanted = answers(fresh, columns)
        assert same(answers(pipeline, columns), wanted), f"{name}: the export"
        assert same(pipeline.rows(columns), wanted), f"{name}: the call"
        if same(before, wanted):
            without_effect.add((task, name))
    assert without_effect <= NO_EFFECT, "use other values, which change the answers"


@pytest.mark.parametrize(
    "task",
    [
        "multi_label_classification",
        *(pytest.param(task, marks=pytest.mark.slow) for task in ("tagging", "generation")),
    ],
)
def test_assignments_hold_in_calls_saves_and_exports(task, tmp_path):
    pipeline = copy(task)
    columns = batch(pipeline)
    before = pipeline.rows(columns)
    names = [name for name in arguments(pipeline) if name not in ("rules", "top_p")]
    values = {name: OTHER[name](pipeline) for name in names}
    for name, value in values.items():
        setattr(pipeline, name, value)
    fresh = type(pipeline)(**pipeline._arguments() | values)
    assert pipeline.config() == fresh.config()
    wanted = answers(fresh, columns)
    assert not same(before, wanted)
    assert same(answers(pipeline, columns), wanted), "the export"
    assert same(pipeline.rows(columns), wanted), "the call"
    restored = kt.load(pipeline.save(tmp_path / "saved"))
    assert restored.config() == pipeline.config()
    assert same(answers(restored, columns), wanted), "the saved pipeline"
