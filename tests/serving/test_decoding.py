"""Which texts are written together: joining, leaving, room, fairness; without a model."""

import math
import random
import time

import numpy as np
import pytest

from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.server import decoding
from keras_transformers.serving.server.decoding import Decoding, Request
from keras_transformers.serving.server.steps import Progress, Rows, Text


class Counting:
    """Steps of a model whose cache holds the tokens themselves, and that counts up.

    Every step checks that the columns of each row are its tokens.
    """

    bytes_per_token = 1

    def __init__(self):
        self.written = []  # the texts of each step
        self.parts = []  # (texts, columns) of each read
        self.refused = set()

    def begin(self, text):
        if text in self.refused:
            raise RequestError(Code.INVALID_ARGUMENT, "no such prompt")
        text.prompt, text.max_length = text.inputs["prompt"], text.inputs["max_length"]
        text.progress = Progress(ended=not text.max_length)

    def rows(self, texts):
        tokens = [[*text.prompt, *text.token_ids][:-1] for text in texts]
        width = max(map(len, tokens), default=0)
        unread = np.zeros((len(texts), width), np.int32)
        for row, line in enumerate(tokens):
            unread[row, width - len(line) :] = line
        empty = np.array([width - len(line) for line in tokens], np.int32)
        return Rows(list(texts), [np.zeros((len(texts), 1, 0, 1), np.int32)], empty, unread)

    def read(self, rows, most):
        columns = min(rows.unread.shape[1], max(1, most // len(rows.texts)))
        self.parts.append((list(rows.texts), columns))
        part, rows.unread = rows.unread[:, :columns], rows.unread[:, columns:]
        rows.cache = [np.concatenate([rows.cache[0], part[:, None, :, None]], axis=2)]
        return columns * len(rows.texts)

    def write(self, rows):
        self.written.append(list(rows.texts))
        column = np.array([[*text.prompt, *text.token_ids][-1] for text in rows.texts])
        rows.cache = [np.concatenate([rows.cache[0], column[:, None, None, None]], axis=2)]
        for row, text in enumerate(rows.texts):
            tokens = [*text.prompt, *text.token_ids]
            assert rows.cache[0][row, 0, rows.num_empty[row] :, 0].tolist() == tokens
            text.token_ids.append(tokens[-1] + 1)
            count = len(text.token_ids)
            text.progress = Progress("", count, np.float32(0), False, count >= text.max_length)


def request(*texts, deadline=math.inf):
    """Returns a request for texts, each (first token of its prompt, its length, new tokens)."""
    return Request(
        [
            Text(None, {"prompt": [*range(start, start + length)], "max_length": most})
            for start, length, most in texts
        ],
        deadline,
    )


def decoding_of(*requests, most_rows=4, most_bytes=math.inf):
    made = Decoding(Counting(), most_rows=most_rows, most_bytes=most_bytes)
    for each in requests:
        made.add(each)
    return made


def finish(of, most=1000):
    for _ in range(most):
        if of.is_idle:
            return
        of.turn()
    raise AssertionError("it does not end")


def expected(text):
    first = text.inputs["prompt"][-1] + 1
    return [*range(first, first + text.inputs["max_length"])]


def test_texts_that_join_and_leave_at_any_time_are_written_as_if_alone():
    numbers = random.Random(5)
    of = decoding_of(most_rows=5, most_bytes=70)
    left, done = [], []
    for _ in range(300):
        if numbers.random() < 0.4:
            texts = [
                (numbers.randrange(100), numbers.randrange(1, 9), numbers.randrange(12))
                for _ in range(numbers.randrange(1, 4))
            ]
            done.append(request(*texts))
            of.add(done[-1])
        if numbers.random() < 0.1 and done:
            left.append(numbers.choice(done))
            left[-1].abandon()
        of.turn()
    finish(of)
    for each in done:
        if each.done.exception() is None:
            assert [text.token_ids for text in each.texts] == [expected(t) for t in each.texts]
        else:
            assert each in left
    assert sum(each.done.exception() is None for each in done) > 60
    sizes = {len(texts) for texts in of._steps.written}
    assert sizes == {1, 2, 3, 4, 5}


def test_a_text_whose_client_leaves_frees_its_place_in_the_next_turn():
    going, leaving, waiting = request((0, 2, 50)), request((9, 3, 50)), request((50, 2, 50))
    of = decoding_of(going, leaving, waiting, most_rows=2)
    for _ in range(3):
        of.turn()
    assert waiting.texts[0] not in of._steps.written[-1]
    leaving.abandon()
    of.turn()
    assert of._steps.written[-1] == [going.texts[0], waiting.texts[0]]
    assert leaving.done.exception().code == Code.CANCELLED


def test_a_request_of_many_texts_holds_up_no_other():
    many = request(*[(i, 2, 10) for i in range(20)])
    of = decoding_of(many, most_rows=4)
    for _ in range(12):
        of.turn()
    few = request((100, 2, 10))
    of.add(few)
    while not few.done.done():
        of.turn()
    num_ended = sum(text.progress.ended for text in many.texts)
    assert num_ended < 12  # the others of the first two rounds, and three beside it
    finish(of)
    assert many.done.exception() is None


def test_requests_in_order_of_their_arrival_get_the_same_places():
    first, second = (request(*[(i, 2, 5) for i in range(6)]) for _ in range(2))
    of = decoding_of(first, second, most_rows=4)
    of.turn()
    assert sorted(text in first.texts for text in of._steps.written[0]) == [0, 0, 1, 1]


def test_a_long_prompt_delays_the_others_by_one_part_in_a_turn(monkeypatch):
    monkeypatch.setattr(decoding, "_MOST_READ", 10)
    short = request((0, 3, 30))
    of = decoding_of(short)
    of.turn()
    long, late = request((100, 95, 5)), request((300, 3, 5))
    of.add(long)
    of.turn()
    of.add(late)
    before = len(short.texts[0].token_ids)
    while not long.texts[0].token_ids:
        of.turn()
    assert len(short.texts[0].token_ids) >= before + 8  # a token between any two parts
    assert len(late.texts[0].token_ids) >= 5  # it has not waited for the long one
    assert max(len(texts) * columns for texts, columns in of._steps.parts) <= 10


def test_texts_that_take_too_much_memory_wait_and_go_on_where_they_were():
    older, newer = request((0, 2, 30)), request((100, 2, 30))
    of = decoding_of(older, newer, most_bytes=40)  # 20 columns of two rows
    finish(of)
    together = [texts for texts in of._steps.written if len(texts) == 2]
    assert 15 <= len(together) <= 20
    assert len(of._steps.written) == 60 - len(together)  # no step was repeated
    for each in (older, newer):
        assert each.texts[0].token_ids == expected(each.texts[0])
    alone = request((0, 60, 5))
    of.add(alone)
    finish(of)  # more than the memory, but alone
    assert alone.done.exception() is None


def test_a_request_that_fails_or_is_late_fails_alone():
    good, bad = request((0, 2, 9)), request((9, 2, 9), (50, 2, 9))
    late = request((70, 2, 90), deadline=time.monotonic() + 0.05)
    of = decoding_of(good, bad, late)
    of._steps.refused.add(bad.texts[1])
    of.turn()
    assert bad.done.exception().code == Code.INVALID_ARGUMENT
    time.sleep(0.06)
    finish(of)
    assert late.done.exception().code == Code.DEADLINE_EXCEEDED
    assert good.texts[0].token_ids == expected(good.texts[0])
    assert not any(bad.texts[0] in texts for texts in of._steps.written[1:])


@pytest.mark.parametrize("part", ["read", "write"])
def test_an_error_of_the_model_fails_the_requests_that_share_the_step(part, monkeypatch):
    def fail(*_):
        raise MemoryError("too large")

    going = request((0, 2, 20))
    of = decoding_of(going)
    of.turn()
    with monkeypatch.context() as patched:
        patched.setattr(of._steps, part, fail)
        joining = request((30, 9, 3))
        of.add(joining)
        of.turn()
    assert joining.done.exception().code == Code.INTERNAL
    assert (going.done.done() and going.done.exception() is not None) == (part == "write")
    other = request((60, 2, 3))
    of.add(other)
    finish(of)
    assert other.done.exception() is None


def test_texts_of_no_tokens_end_at_once():
    none = request((0, 2, 0), (5, 1, 0))
    of = decoding_of(none, request((9, 2, 2)))
    of.turn()
    assert none.done.exception() is None
    finish(of)


def test_news_arrive_after_each_token():
    counts = []
    told = request((0, 2, 3))
    told.on_news = lambda: counts.append(len(told.texts[0].token_ids))
    finish(decoding_of(told))
    assert counts == [0, 1, 2, 3]
