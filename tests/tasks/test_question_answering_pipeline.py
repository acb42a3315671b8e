"""Question answering: the answers of `data.text.answers_from_logits`, from text alone."""

import json

import numpy as np
import pytest
import tensorflow as tf
from answer_checks import restored, same_answers, typed_answers
from graph_checks import (
    only_ops_that_stock_tf_serving_has,
    signatures_in_graphs,
    strings_are_pinned_to_the_cpu,
)
from pretrained_models import enlivened, lively_encoder

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.data.text import (
    QuestionBatches,
    Questions,
    answer_texts,
    answers_from_logits,
)
from keras_transformers.pipelines import QuestionAnswerer
from keras_transformers.results import Answer
from keras_transformers.runs import outputs_of
from keras_transformers.saved_model.checks import check
from keras_transformers.saved_model.description import METADATA_FILE

LENGTHS = {"max_sequence_length": 16, "doc_stride": 3, "max_question_length": 4}
CONTEXTS = [
    "a good film",
    "🎬🎬 good films, “very” e\u0301te\u0301 (bad) 中国 films\u200b! long a very good bad film . a",
    "한국어 film naïve\u00a0good — ½ bad",
    "film",
    " \u200b ",
]


@pytest.fixture(scope="module")
def model():
    return enlivened(heads.span_extractor(lively_encoder()), seed=7)


@pytest.fixture(scope="module")
def ask(model, tokenizer):
    """A pipeline that always answers."""
    return QuestionAnswerer(model, tokenizer, **LENGTHS, max_answer_length=4)


@pytest.fixture(scope="module")
def exported(ask, tmp_path_factory):
    """The pipeline's export: read only."""
    return kt.export(ask, tmp_path_factory.mktemp("answerer"), check=False)


@pytest.fixture(scope="module")
def run(ask):
    """Runs a signature: its name, tensors -> arrays."""
    return signatures_in_graphs(ask)


def questions():
    """Contexts of few and many windows; questions that are trimmed, short and empty."""
    random = np.random.default_rng(1)
    known = ["a", "film", "films", "good", "bad", "long", "very", "unknown", ".", "!"]
    drawn = [" ".join(known[i] for i in random.integers(0, 10, n)) for n in (30, 150, 11, 12)]
    contexts = [*CONTEXTS, *drawn]
    asked = ["a film!", "very long good bad films a", ""]
    pairs = [(question, index) for index in range(len(contexts)) for question in asked]
    return Questions(
        [str(i) for i in range(len(pairs))], [q for q, _ in pairs], contexts, [c for _, c in pairs]
    )


def columns():
    """The questions, and the context of each."""
    asked = questions()
    return list(asked.questions), [asked.contexts[i] for i in asked.context_of]


@pytest.fixture(scope="module")
def predictions(ask):
    """Returns the answers that evaluation finds in the model's logits."""
    batches = QuestionBatches(questions(), ask, batch_size=16, shuffle=False, targets=False)
    assert batches.num_rows > 64  # more windows than two chunks
    return answers_from_logits(batches, outputs_of(ask.model, batches))


def test_answers_are_those_of_evaluation(ask, predictions):
    texts = answer_texts(predictions)
    assert len(set(texts.values())) > 8
    asked, contexts = columns()
    for found, prediction, context in zip(ask(asked, contexts), predictions, contexts, strict=True):
        assert isinstance(found, Answer)
        assert found.text == texts[prediction.id]
        assert found.null_score == pytest.approx(prediction.null_score, abs=1e-4)
        if not prediction.spans:
            assert (found.start, found.end, found.score) == (-1, -1, found.null_score)
            continue
        best = prediction.spans[0]
        assert (found.start, found.end) == (best.start, best.end)
        assert context[found.start : found.end] == found.text
        assert found.score == pytest.approx(best.score, abs=1e-4)


@pytest.mark.slow
def test_no_answer_by_threshold_and_offsets_in_bytes(model, tokenizer, predictions):
    threshold = float(np.median([p.null_difference for p in predictions])) + 1e-3
    options = {"no_answer_threshold": threshold, "offset_unit": "byte"}
    ask = QuestionAnswerer(model, tokenizer, **LENGTHS, max_answer_length=4, **options)
    texts = answer_texts(predictions, no_answer_threshold=threshold)
    assert 5 < sum(text == "" for text in texts.values()) < 22
    asked, contexts = columns()
    for found, text, context in zip(ask(asked, contexts), texts.values(), contexts, strict=True):
        assert found.text == text
        if text:
            assert context.encode()[found.start : found.end].decode() == text
        else:
            assert (found.start, found.end, found.score) == (-1, -1, found.null_score)
    assert options.items() <= ask.metadata().items()


def test_equal_scores_go_to_the_first_and_the_shortest(tokenizer):
    model = heads.span_extractor(lively_encoder())
    model.get_layer("span_logits").set_weights([np.zeros((8, 2)), np.ones(2)])
    found = QuestionAnswerer(model, tokenizer, **LENGTHS).answer(
        question=tf.constant(["a"]), context=tf.constant(["long good bad film . " * 5])
    )
    assert found["answer"].numpy() == [b"long"]
    assert (found["start"].numpy(), found["end"].numpy(), found["score"].numpy()) == (0, 4, 2.0)


def test_a_batch_or_one_by_one(ask):
    asked, contexts = columns()
    together, alone = ask(asked, contexts), ask(asked, contexts, batch_size=1)
    same_answers(together, alone, tolerance=1e-4)
    same_answers([ask(asked[4], contexts[4])], together[4:5], tolerance=1e-4)


@pytest.mark.slow
def test_the_export_answers_as_the_pipeline_does(exported, ask):
    asked, contexts = columns()
    given = {"question": tf.constant(asked), "context": tf.constant(contexts)}
    outputs = tf.saved_model.load(str(exported)).signatures["serving_default"](**given)
    answers = typed_answers({name: value.numpy() for name, value in outputs.items()}, ask)
    same_answers(answers, ask(asked, contexts))


def test_it_comes_back_as_it_was(model, tokenizer, tmp_path):
    options = {"max_answer_length": 3, "no_answer_threshold": 0.25, "offset_unit": "byte"}
    other = QuestionAnswerer(model, tokenizer, **LENGTHS, **options)
    again = restored(other, tmp_path / "saved", ["a film?"] * len(CONTEXTS), CONTEXTS)
    assert again.config() == {**LENGTHS, **options}


def test_awkward_texts_and_no_texts(run):
    texts = tf.constant(["", b"\xff\xfe a\xffb \x00", "long " * 500])
    answer = run(question=texts, context=texts[::-1])
    assert answer["answer"][2] == b""
    assert answer["answer"][1] == b"a\xffb"
    assert (answer["start"][1], answer["end"][1]) == (3, 6)
    assert np.isfinite(answer["score"]).all()
    nothing = tf.constant([], tf.string)
    empty = run(question=nothing, context=nothing)
    assert {name: value.shape for name, value in empty.items()} == dict.fromkeys(
        ("answer", "score", "start", "end", "null_score"), (0,)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in number"):
        run(question=texts[:1], context=texts)


def test_logits_of_tokens(run, model):
    ids = tf.constant([[2, 7, 3, 5, 6, 3, 0]])
    tokens = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids > 0}
    found = run("tokens", **tokens)
    assert set(found) == {"start_logits", "end_logits"}
    for name, value in model(tokens).items():
        np.testing.assert_allclose(found[name][:, :-1], value[:, :-1], atol=1e-5)
        assert found[name][0, -1] == 0  # padding


@pytest.mark.slow
def test_the_graph_and_what_it_tells(exported):
    only_ops_that_stock_tf_serving_has(exported)
    strings_are_pinned_to_the_cpu(exported)
    metadata = json.loads((exported / METADATA_FILE).read_text())
    assert metadata["task"] == "question_answering"
    assert LENGTHS.items() <= metadata.items()
    assert (metadata["max_answer_length"], metadata["no_answer_threshold"]) == (4, None)
    assert metadata["offset_unit"] == "character"
    assert list(metadata["signatures"]) == ["serving_default", "tokens", "tokenize"]
    assert list(check.failures(str(exported))) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_sequence_length": 384}, "max_sequence_length=384: .* at most 16"),
        ({"max_question_length": 13}, "no room .*context"),
        ({"doc_stride": 0}, "doc_stride=0"),
        ({"max_answer_length": 0}, "max_answer_length=0: expected 1 token or more"),
        (
            {"no_answer_threshold": float("nan")},
            "no_answer_threshold=nan: expected a finite number",
        ),
        ({"offset_unit": "token"}, "offset_unit='token'"),
    ],
)
def test_what_does_not_fit_is_refused(model, tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        QuestionAnswerer(model, tokenizer, **LENGTHS | options)


def test_examples_that_are_no_pairs(ask):
    with pytest.raises(ValueError, match=r"\(question, context\),.*\('a',\)"):
        ask.signatures(["a"])
