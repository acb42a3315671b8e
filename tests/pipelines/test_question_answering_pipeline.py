"""Export of span extractors: the answers of `data.question_predictions`, from text alone."""

import json

import numpy as np
import pytest
import tensorflow as tf
from graph_checks import only_ops_that_stock_tf_serving_has, strings_are_pinned_to_the_cpu
from keras_transformers.export import Predictor, question_answerer
from pretrained_models import enlivened, lively_encoder

from keras_transformers.data.text import answer_spans as question_predictions
from keras_transformers.data.text import question_answering
from keras_transformers.data.text.squad import Questions
from keras_transformers.models import heads
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
def exported(model, tokenizer, tmp_path_factory):
    """A checked export that always answers: read only."""
    base = tmp_path_factory.mktemp("answerer")
    return question_answerer(model, tokenizer, base, **LENGTHS, max_answer_length=4)


@pytest.fixture(scope="module")
def predictor(exported):
    return Predictor(exported)


def questions():
    """Contexts of a few and of many windows, and questions that are cut, short, empty."""
    random = np.random.default_rng(1)
    known = ["a", "film", "films", "good", "bad", "long", "very", "unknown", ".", "!"]
    drawn = [" ".join(known[i] for i in random.integers(0, 10, n)) for n in (30, 150, 11, 12)]
    contexts = [*CONTEXTS, *drawn]
    asked = ["a film!", "very long good bad films a", ""]
    pairs = [(question, index) for index in range(len(contexts)) for question in asked]
    return Questions(
        [str(i) for i in range(len(pairs))], [q for q, _ in pairs], contexts, [c for _, c in pairs]
    )


@pytest.fixture(scope="module")
def predictions(model, tokenizer):
    """What evaluation makes of the model's logits."""
    encoded = question_answering.encode(questions(), tokenizer, **LENGTHS)
    assert encoded.statistics.num_windows > 64  # more than go through the graph at once
    batches = question_answering.dataset(encoded, targets=False, batch_size=16)
    outputs = (model(batch, training=False) for batch in batches)
    return question_predictions.answers_from_logits(encoded, outputs, max_answer_length=4)


def columns(asked):
    return {
        "question": list(asked.questions),
        "context": [asked.contexts[i] for i in asked.context_of],
    }


def test_answers_are_those_of_evaluation(predictor, predictions):
    assert predictor.text_names == ("question", "context")
    given = columns(questions())
    rows = predictor(given)
    texts = question_predictions.texts(predictions)
    assert len(set(texts.values())) > 8
    for row, prediction, context in zip(rows, predictions, given["context"], strict=True):
        assert row["answer"] == texts[prediction.id]
        assert row["null_score"] == pytest.approx(prediction.null_score, abs=1e-4)
        if not prediction.spans:
            assert (row["start"], row["end"], row["score"]) == (-1, -1, row["null_score"])
            continue
        best = prediction.spans[0]
        assert (row["start"], row["end"]) == (best.start, best.end)
        assert context[row["start"] : row["end"]] == row["answer"]
        assert row["score"] == pytest.approx(best.score, abs=1e-4)


def test_no_answer_by_threshold_and_offsets_in_bytes(model, tokenizer, predictions, tmp_path):
    threshold = float(np.median([p.null_difference for p in predictions]))
    folder = question_answerer(
        model,
        tokenizer,
        tmp_path,
        **LENGTHS,
        max_answer_length=4,
        no_answer_threshold=threshold + 1e-3,
        offset_unit="byte",
        check=False,
    )
    given = columns(questions())
    texts = question_predictions.texts(predictions, no_answer_threshold=threshold + 1e-3)
    assert 5 < sum(text == "" for text in texts.values()) < 22
    for row, text, context in zip(
        Predictor(folder)(given), texts.values(), given["context"], strict=True
    ):
        assert row["answer"] == text
        if text:
            assert context.encode()[row["start"] : row["end"]].decode() == text
        else:
            assert (row["start"], row["end"], row["score"]) == (-1, -1, row["null_score"])
    metadata = json.loads((folder / METADATA_FILE).read_text())
    assert metadata["no_answer_threshold"] == threshold + 1e-3
    assert metadata["offset_unit"] == "byte"


def test_equal_scores_go_to_the_first_and_the_shortest(tokenizer, tmp_path):
    model = heads.span_extractor(lively_encoder())
    model.get_layer("span_logits").set_weights([np.zeros((8, 2)), np.ones(2)])
    folder = question_answerer(model, tokenizer, tmp_path, **LENGTHS, check=False)
    (row,) = Predictor(folder)({"question": ["a"], "context": ["long good bad film . " * 5]})
    assert (row["answer"], row["start"], row["end"], row["score"]) == ("long", 0, 4, 2.0)


def test_a_batch_or_one_by_one(predictor):
    given = columns(questions())
    together, alone = predictor(given), predictor(given, batch_size=1)
    for one, other in zip(together, alone, strict=True):
        assert (one["answer"], one["start"]) == (other["answer"], other["start"])
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)


def test_awkward_texts_and_no_texts(exported):
    function = tf.saved_model.load(str(exported))
    run = function.signatures["serving_default"]
    texts = tf.constant(["", b"\xff\xfe a\xffb \x00", "long " * 500])
    answer = run(question=texts, context=texts[::-1])
    assert answer["answer"].numpy()[2] == b""
    assert answer["answer"].numpy()[1] == b"a\xffb"
    assert (answer["start"].numpy()[1], answer["end"].numpy()[1]) == (3, 6)
    assert np.isfinite(answer["score"]).all()
    nothing = tf.constant([], tf.string)
    empty = run(question=nothing, context=nothing)
    assert {name: tuple(value.shape) for name, value in empty.items()} == dict.fromkeys(
        ("answer", "score", "start", "end", "null_score"), (0,)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in number"):
        run(question=texts[:1], context=texts)


def test_logits_of_tokens(exported, model):
    function = tf.saved_model.load(str(exported))
    ids = tf.constant([[2, 7, 3, 5, 6, 3, 0]])
    tokens = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids > 0}
    found = function.signatures["tokens"](**tokens)
    assert set(found) == {"start_logits", "end_logits"}
    for name, value in model(tokens).items():
        np.testing.assert_allclose(found[name], value, atol=1e-5)
        assert found[name].numpy()[0, -1] == np.float32(-1e9)


def test_the_graph_and_what_it_tells(exported):
    only_ops_that_stock_tf_serving_has(exported)
    strings_are_pinned_to_the_cpu(exported)
    metadata = json.loads((exported / METADATA_FILE).read_text())
    assert metadata["task"] == "question_answering"
    assert LENGTHS.items() <= metadata.items()
    assert (metadata["max_answer_length"], metadata["no_answer_threshold"]) == (4, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_sequence_length": 384}, "max_sequence_length=384: .* at most 16"),
        ({"max_question_length": 13}, "leaves no room for the context"),
        ({"doc_stride": 0}, "doc_stride=0"),
        ({"max_answer_length": 0}, "max_answer_length=0: give 1 token or more"),
        ({"no_answer_threshold": float("nan")}, "no_answer_threshold=nan: give a finite number"),
        ({"offset_unit": "token"}, "offset_unit='token'"),
        ({"examples": ["a"]}, "examples must be pairs"),
    ],
)
def test_what_does_not_fit_is_refused(model, tokenizer, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        question_answerer(model, tokenizer, tmp_path / "new", **LENGTHS | options)
    assert not (tmp_path / "new").exists()
