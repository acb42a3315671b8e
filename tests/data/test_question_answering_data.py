"""Questions to windows, and logits to exact spans of the text."""

import logging

import keras
import numpy as np
import pytest
from checks import compile_toy
from pipelines_without_models import Reader

from keras_transformers.data.text import (
    Answer,
    QuestionBatches,
    Questions,
    answer_texts,
    answers_from_logits,
    load_squad,
    null_differences,
)
from keras_transformers.evaluation import squad_scores
from keras_transformers.runs import outputs_of
from keras_transformers.tokenizers import WordPieceTokenizer, windows

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.?"]
VOCABULARY += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
# Windows of four tokens after the question "q?", with a stride of two.
NARROW = {"max_sequence_length": 9, "doc_stride": 2, "max_question_length": 4}


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY)


# --- windows and targets ---------------------------------------------------------------------


def batches_of(questions, tokenizer, *, targets=True, batch_size=8, **lengths):
    """Returns batches in order."""
    answer = {"max_answer_length": lengths.pop("max_answer_length", 30)}
    windows = {"max_sequence_length": 384, "doc_stride": 128, "max_question_length": 64} | lengths
    length = windows["max_sequence_length"]
    reader = Reader(tokenizer, max_sequence_length=length, window_lengths=windows, **answer)
    return QuestionBatches(questions, reader, batch_size=batch_size, shuffle=False, targets=targets)


def located(context, *answers, text="who ?"):
    """Makes one question per answer; the answer starts where it first occurs."""
    return Questions(
        [str(i) for i in range(len(answers))],
        [text] * len(answers),
        [context],
        [0] * len(answers),
        [[Answer(found, context.index(found))] if found else [] for found in answers],
    )


def test_targets_are_tokens_of_the_window(tokenizer):
    questions = located("a b c d e f", "c d", "f", None, text="q?")
    batches = batches_of(questions, tokenizer, **NARROW)
    ((inputs, targets),) = batches.dataset()
    # [CLS] q ? [SEP] and four tokens; windows start at a and at c.
    assert inputs["token_ids"][:2].numpy().tolist() == [
        [2, 21, 32, 3, 5, 6, 7, 8, 3],
        [2, 21, 32, 3, 7, 8, 9, 10, 3],
    ]
    assert inputs["segment_ids"][0].numpy().tolist() == [0] * 4 + [1] * 5
    assert targets["start_logits"].numpy().tolist() == [6, 4, 0, 7, 0, 0]
    assert targets["end_logits"].numpy().tolist() == [7, 5, 0, 7, 0, 0]
    assert batches.statistics.num_in_several == 3
    assert batches.statistics.num_without_answer == 1


@pytest.mark.slow
def test_an_answer_that_a_window_cuts_is_not_in_it(tokenizer):
    batches = batches_of(located("a b c d e f", "c d e", text="q?"), tokenizer, **NARROW)
    ((_, targets),) = batches.dataset()
    assert targets["start_logits"].numpy().tolist() == [0, 4]
    assert targets["end_logits"].numpy().tolist() == [0, 6]


@pytest.mark.slow
def test_what_is_not_trained_on_is_counted(tokenizer, caplog):
    questions = Questions(
        ["1", "2", "3", "4"],
        ["who?", "a long question of many words", "who?", "who?"],
        ["abc \u200b def"],
        [0] * 4,
        [[Answer("zz", None)], [Answer("bc", 1)], [Answer("\u200b", 4)], [Answer("def", 6)]],
    )
    batches = batches_of(questions, tokenizer, max_sequence_length=24, max_question_length=6)
    counts = batches.statistics
    assert (counts.num_not_found, counts.num_trimmed, counts.num_inexact) == (2, 1, 0)
    assert "2 whose answer was not found" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING
    ((_, targets),) = batches.dataset()
    assert targets["start_logits"].shape == (2,)
    (inputs,) = batches.of(questions).dataset()
    assert inputs["token_ids"].shape[0] == 4


def test_answers_inside_tokens_are_counted():
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "nineties", "?"])
    batches = batches_of(located("nineties", "nine"), tokenizer)
    assert batches.statistics.num_inexact == 1
    assert batches.answer_tokens.tolist() == [[0, 0]]


def test_a_second_answer_stands_in_for_the_first(tokenizer):
    questions = Questions(["1"], ["?"], ["a b"], [0], [[Answer("x", None), Answer("b", 2)]])
    assert batches_of(questions, tokenizer).answer_tokens.tolist() == [[1, 1]]


@pytest.mark.slow
def test_shuffling_is_another_order_of_the_same(tokenizer):
    questions = located("a b c d e f g h i j", *"abcdefghij")
    reader = batches_of(questions, tokenizer).answerer
    orders = []
    for seed in (0, 0, 1):
        batches = QuestionBatches(questions, reader, batch_size=3, seed=seed)
        assert len(batches) == 4
        elements = batches.dataset().take(4)
        orders.append([int(at) for _, y in elements for at in y["start_logits"]])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == list(range(6, 16))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_sequence_length": 20, "max_question_length": 17}, "leaves no room"),
        ({"doc_stride": 0}, "doc_stride=0"),
    ],
)
def test_lengths_without_room(tokenizer, options, message):
    lengths = {"max_sequence_length": 384, "doc_stride": 128, "max_question_length": 64}
    with pytest.raises(ValueError, match=message):
        windows.check_question_windows(tokenizer, **lengths | options)


def test_what_cannot_be_batched(tokenizer):
    with pytest.raises(ValueError, match="no questions"):
        batches_of(Questions([], [], [], []), tokenizer)
    lost = Questions(["1"], ["?"], ["a"], [0], [[Answer("b", None)]])
    with pytest.raises(ValueError, match="found no answer to any question"):
        batches_of(lost, tokenizer)
    bare = Questions(["1"], ["?"], ["a"], [0])
    with pytest.raises(ValueError, match="no answers, so targets must be False"):
        batches_of(bare, tokenizer)
    assert len(batches_of(bare, tokenizer, targets=False)) == 1


# --- back to text ----------------------------------------------------------------------------


def perfect(batches):
    """Returns the logits of a model that knows the targets."""
    for inputs, targets in batches.dataset():
        length = inputs["token_ids"].shape[1]
        yield {name: np.eye(length)[at.numpy()] * 9 for name, at in targets.items()}


HOSTILE = [
    "🎬🎬 film of E\u0301te\u0301 and été, 中国人民 x",
    "“Quoted” — Ça, naïve; ŞİMŞEK ẞ ﬁn 한국어 ½ ².",
    "👩‍👩‍👧 family\u200b zero\ufeffwidth \u00a0 no-break\u3000ideographic\tTab\nline",
    "\u0301begins with a mark; ends with one: o\u0308",
]  # fmt: skip


@pytest.fixture(scope="module", params=[True, pytest.param(False, marks=pytest.mark.slow)])
def minilm_tokenizer(minilm_dir, request):
    return WordPieceTokenizer(minilm_dir / "vocab.txt", lowercase=request.param)


@pytest.mark.one_case
@pytest.mark.parametrize("context", HOSTILE)
def test_spans_come_back_exactly(minilm_tokenizer, context):
    tokenizer = minilm_tokenizer
    _, starts, ends = tokenizer.tokenize_with_offsets([context])
    raw = context.encode()
    bounds = list(zip(starts[0].numpy().tolist(), ends[0].numpy().tolist(), strict=True))
    # Every span of one to three tokens as an answer, in characters.
    answers = []
    for i in range(len(bounds)):
        for j in range(i, min(i + 3, len(bounds))):
            text = raw[bounds[i][0] : bounds[j][1]].decode()
            answers.append([Answer(text, len(raw[: bounds[i][0]].decode()))])
    count = len(answers)
    questions = Questions(
        [str(i) for i in range(count)], ["who?"] * count, [context], [0] * count, answers
    )
    assert all(context[a.start :].startswith(a.text) for (a,) in answers)
    lengths = {"max_sequence_length": 16, "doc_stride": 4, "max_question_length": 4}
    batches = batches_of(questions, tokenizer, batch_size=64, **lengths)
    assert (batches.statistics.num_inexact, batches.statistics.num_not_found) == (0, 0)
    for prediction, (right,) in zip(
        answers_from_logits(batches, perfect(batches)), answers, strict=True
    ):
        best = prediction.spans[0]
        assert (best.text, best.start, best.end) == (
            right.text,
            right.start,
            right.start + len(right.text),
        )


@pytest.mark.slow
def test_xquad_comes_back(data_dir, minilm_dir):
    questions = load_squad(data_dir / "xquad/xquad.en.json.gz", mismatched="refuse")
    assert (len(questions), len(questions.contexts)) == (1190, 240)
    tokenizer = WordPieceTokenizer(minilm_dir / "vocab.txt")
    lengths = {"max_sequence_length": 160, "doc_stride": 64, "max_answer_length": 60}
    batches = batches_of(questions, tokenizer, batch_size=64, **lengths)
    predictions = answers_from_logits(batches, perfect(batches))
    scores = squad_scores(answer_texts(predictions), questions.references())
    # One answer in the file ends inside a number: "(2,70" of "(2,700,000".
    assert batches.statistics.num_inexact == 1
    assert scores.exact_match == pytest.approx(100 * 1189 / 1190)
    assert batches.statistics.num_in_several > 500


def logits(start, end):
    return {"start_logits": np.array(start, float), "end_logits": np.array(end, float)}


def test_the_best_spans_by_all_pairs(tokenizer):
    # [CLS] q ? [SEP] and six tokens, [SEP].
    lengths = {"max_sequence_length": 16, "max_question_length": 4, "max_answer_length": 3}
    batches = batches_of(located("a b c d e f", "a", text="q?"), tokenizer, **lengths)
    random = np.random.default_rng(0)
    start, end = random.normal(size=(2, 11))
    start[4 + 5] = end[4 + 0] = 9  # the best pair ends before it starts
    (prediction,) = answers_from_logits(batches, [logits([start], [end])], num_best=5)
    context = "a b c d e f"
    pairs = sorted(
        (-(start[4 + i] + end[4 + j]), 2 * i, 2 * j + 1)
        for i in range(6)
        for j in range(i, min(i + 3, 6))
    )
    found = [(-span.score, span.start, span.end) for span in prediction.spans]
    np.testing.assert_allclose(found, pairs[:5], rtol=1e-12)
    assert all(span.text == context[span.start : span.end] for span in prediction.spans)
    assert prediction.null_score == pytest.approx(start[0] + end[0])
    assert null_differences([prediction]) == {"0": pytest.approx(start[0] + end[0] + pairs[0][0])}


def test_windows_share_their_spans(tokenizer):
    batches = batches_of(located("a b c d e f", "a", text="q?"), tokenizer, **NARROW)
    first, second = np.zeros((2, 2, 9))
    first[:, 6] = [1.0, 1.0]  # c, in the first window
    second[:, 4] = [2.0, 3.0]  # also c, in the second
    first[:, 0], second[:, 0] = [4.0, 4.0], [1.0, 0.5]  # [CLS]
    padded = [np.pad(window, [(0, 0), (0, 3)], constant_values=99.0) for window in (first, second)]
    (prediction,) = answers_from_logits(
        batches, [logits([window[0]], [window[1]]) for window in padded]
    )
    best = prediction.spans[0]
    assert (best.text, best.score) == ("c", 5.0)
    assert sum(span.text == "c" for span in prediction.spans) == 1
    assert prediction.null_score == 1.5  # the lowest over the windows
    assert prediction.null_difference == -3.5
    assert answer_texts([prediction]) == {"0": "c"}
    assert answer_texts([prediction], no_answer_threshold=-3.5) == {"0": "c"}
    assert answer_texts([prediction], no_answer_threshold=-3.6) == {"0": ""}


def test_equal_scores_go_to_the_first_and_the_shortest(tokenizer):
    batches = batches_of(located("a b c", "a"), tokenizer)
    ones = np.ones((1, batches.lengths[0] + 2))
    (prediction,) = answers_from_logits(batches, [logits(ones, ones)], num_best=2)
    assert [span.text for span in prediction.spans] == ["a", "a b"]


def test_a_context_without_tokens_has_no_answer(tokenizer):
    batches = batches_of(Questions(["1"], ["?"], [" "], [0], [[]]), tokenizer)
    (prediction,) = answers_from_logits(batches, [logits([[1.0] * 4], [[1.0] * 4])])
    assert (prediction.spans, prediction.null_difference) == ((), np.inf)
    assert answer_texts([prediction]) == {"1": ""}


@pytest.mark.parametrize(
    ("shape", "fill", "message"),
    [
        ((1, 16), 0.0, "1 windows.* 2"),
        ((3, 16), 0.0, "more than the 2"),
        ((2, 6), 0.0, "window 0 .*7 tokens.* 6"),
        ((2, 7), np.nan, "window 0: NaN among the logits"),
    ],
)
def test_logits_that_do_not_fit(tokenizer, shape, fill, message):
    batches = batches_of(located("a b", "a", "b", text="q?"), tokenizer)
    with pytest.raises(ValueError, match=message):
        answers_from_logits(batches, [logits(np.full(shape, fill), np.full(shape, fill))])


@pytest.mark.slow
def test_a_model_fits(tokenizer):
    inputs = {
        name: keras.Input((None,), dtype=dtype, name=name)
        for name, dtype in (
            ("token_ids", "int32"),
            ("segment_ids", "int32"),
            ("padding_mask", "bool"),
        )
    }
    embedded = keras.layers.Embedding(len(VOCABULARY), 8)(inputs["token_ids"])
    flat = {
        name: keras.layers.Reshape((-1,), name=name)(keras.layers.Dense(1)(embedded))
        for name in ("start_logits", "end_logits")
    }
    model = keras.Model(inputs, flat)
    loss = {name: keras.losses.SparseCategoricalCrossentropy(from_logits=True) for name in flat}
    compile_toy(model, keras.optimizers.Adam(0.3), loss)
    questions = Questions(
        ["1", "2"], ["who?"] * 2, ["a xy b", "c d xy"], [0, 1],
        [[Answer("xy", 2)], [Answer("xy", 4)]],
    )  # fmt: skip
    lengths = {"max_sequence_length": 16, "max_question_length": 5}
    batches = batches_of(questions, tokenizer, batch_size=2, **lengths)
    model.fit(batches.dataset().repeat(15), shuffle=False, verbose=0)
    asked = batches.of(questions)
    found = answers_from_logits(asked, outputs_of(model, asked))
    assert answer_texts(found) == {"1": "xy", "2": "xy"}
