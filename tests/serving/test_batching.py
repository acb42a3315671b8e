import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_transformers.serving.protocol.errors import Code, RequestError, invalid
from keras_transformers.serving.protocol.signatures import SignatureInfo, TensorInfo
from keras_transformers.serving.server.batching import BatchingOptions, Scheduler
from keras_transformers.serving.server.saved_models import SavedModel


def info(*shape):
    return TensorInfo("t:0", tf.float32, shape)


DOUBLE = SignatureInfo("double", "", {"x": info(None, None)}, {"y": info(None, 2)})
GROWING = SignatureInfo("growing", "", {"x": info(None, None)}, {"y": info(None, None)})


SIZES = SignatureInfo(
    "sizes", "", {"text": TensorInfo("t:0", tf.string, (None,))}, {"size": info(None)}
)


class Reader:
    """Tells the length of each text; the gate holds up the long ones."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()

    def run(self, signature, inputs, *, timeout_s, cancellation):
        lengths = [len(text) for text in inputs["text"]]
        self.batches.append(sorted(lengths))
        assert max(lengths) < 1000 or self.gate.wait(10)
        return {"size": np.array(lengths)}


class Model:
    """Doubles its rows and records the batches; the gate holds up its runs."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()

    def run(self, signature, inputs, *, timeout_s, cancellation):
        self.batches.append(inputs["x"].copy())
        assert self.gate.wait(10)
        if (inputs["x"] < 0).any():
            raise invalid("negative")
        return {"y": inputs["x"] * 2}


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def make():
    made = []

    def scheduler(*, max_waiting=100, start=True, **options):
        options = {"num_threads": 1, "max_batch_size": 4, "batch_timeout_s": 0.05} | options
        made.append(Scheduler(BatchingOptions(**options), max_waiting=max_waiting))
        if start:
            made[-1].start()
        return made[-1]

    yield scheduler
    for one in made:
        one.close()


def rows(*values, width=2):
    return {"x": np.repeat(np.float32(values)[:, None], width, axis=1)}


def submit(scheduler, model, inputs, signature=DOUBLE, seconds=10.0):
    return scheduler.submit(model, signature, inputs, deadline=time.monotonic() + seconds)


def test_requests_run_together_and_get_their_own_rows(make, model):
    scheduler = make(batch_timeout_s=5.0)  # only a full batch runs in time
    futures = [submit(scheduler, model, rows(*values)) for values in ([1], [2, 3], [4])]
    answers = [future.result(2)["y"][:, 0].tolist() for future in futures]
    assert answers == [[2], [4, 6], [8]]
    assert [batch[:, 0].tolist() for batch in model.batches] == [[1, 2, 3, 4]]


def test_a_batch_that_is_not_full_leaves_in_time(make, model):
    scheduler = make(batch_timeout_s=0.1)
    start = time.monotonic()
    futures = [submit(scheduler, model, rows(value)) for value in (1, 2)]
    assert [f.result(5)["y"][0, 0] for f in futures] == [2, 4]
    assert time.monotonic() - start >= 0.1
    assert [len(batch) for batch in model.batches] == [2]


def test_a_client_alone_waits_for_nobody(make, model):
    scheduler = make(batch_timeout_s=1.0)
    submit(scheduler, model, rows(1)).result(5)  # expects others, in vain
    start = time.monotonic()
    for value in range(3):
        submit(scheduler, model, rows(value)).result(5)
    assert time.monotonic() - start < 1.0


def test_company_is_waited_for_again(make, model):
    scheduler = make(batch_timeout_s=1.0)
    submit(scheduler, model, rows(1)).result(5)
    model.gate.clear()
    first = submit(scheduler, model, rows(2))  # runs until the gate opens
    while len(model.batches) < 2:
        time.sleep(0.001)
    more = [submit(scheduler, model, rows(value)) for value in (3, 4)]
    model.gate.set()
    assert [f.result(5)["y"][0, 0] for f in (first, *more)] == [4, 6, 8]
    together = [submit(scheduler, model, rows(value)) for value in (5, 6)]
    assert [f.result(5)["y"][0, 0] for f in together] == [10, 12]
    assert [len(batch) for batch in model.batches] == [1, 1, 2, 2]


def test_what_does_not_fit_one_array_runs_apart(make, model):
    scheduler = make()
    futures = [
        submit(scheduler, model, rows(1)),
        submit(scheduler, model, rows(2, width=3)),
        submit(scheduler, model, rows(3), GROWING),  # its outputs grow with the batch
        submit(scheduler, model, rows(4), GROWING),
        submit(scheduler, model, rows(*range(9))),  # longer than a batch
        submit(scheduler, model, {"x": np.zeros((0, 2), "float32")}),
    ]
    shapes = [f.result(5)["y"].shape for f in futures]
    assert shapes == [(1, 2), (1, 3), (1, 2), (1, 2), (9, 2), (0, 2)]
    assert sorted(len(batch) for batch in model.batches) == [0, 1, 1, 1, 1, 9]


def test_a_long_text_holds_up_no_short_ones(make):
    reader, scheduler = Reader(), make(num_threads=2, batch_timeout_s=0.05)
    lengths = [20, 2000, 200, 300, 40]
    texts = [{"text": np.array([b"x" * length], object)} for length in lengths]
    futures = [submit(scheduler, reader, text, SIZES) for text in texts]
    answers = [future.result(5)["size"].tolist() for future in futures if future is not futures[1]]
    assert answers == [[20], [200], [300], [40]]
    assert not futures[1].done()
    reader.gate.set()
    assert futures[1].result(5)["size"].tolist() == [2000]
    assert sorted(reader.batches) == [[20, 40, 200], [300], [2000]]


def test_a_batch_of_texts_is_full_at_so_many_tokens(make):
    """Four bytes are a token, each row has two more, and all count as the longest of the batch."""
    reads = dataclasses.replace(SIZES, reads_tokens=True)
    lengths = [10, 20, 5, 10, 31, 40, 5, 5, 5, 5]
    texts = [b"x" * (4 * length - 8) for length in lengths]

    def batches(signature, **options):
        reader = Reader()
        options = {"max_batch_size": 32} | options
        scheduler = make(batch_timeout_s=5, start=False, **options)
        futures = [
            submit(scheduler, reader, {"text": np.array([text], object)}, signature)
            for text in texts
        ]
        scheduler.start()
        scheduler.close()
        assert [int(future.result(5)["size"][0]) for future in futures] == [*map(len, texts)]
        return [[(length + 8) // 4 for length in batch] for batch in reader.batches]

    assert batches(reads, max_batch_tokens=64) == [[5, 10, 20], [10, 31], [40], [5, 5, 5, 5]]
    assert batches(reads, max_batch_tokens=1) == [[length] for length in lengths]
    assert batches(reads, max_batch_tokens=64, max_batch_size=2)[0] == [10, 20]
    assert batches(SIZES, max_batch_tokens=64) == [sorted(lengths)]


def test_batching_can_be_turned_off(make, model):
    scheduler = make(enabled=False, batch_timeout_s=9.0)
    futures = [submit(scheduler, model, rows(value)) for value in (1, 2, 3)]
    assert [f.result(5)["y"][0, 0] for f in futures] == [2, 4, 6]
    assert [len(batch) for batch in model.batches] == [1, 1, 1]


def test_batches_are_filled_up_to_an_allowed_size(make, model):
    scheduler = make(allowed_batch_sizes=(2, 4))
    futures = [submit(scheduler, model, rows(*values)) for values in ([1, 5], [3])]
    assert [f.result(5)["y"][:, 0].tolist() for f in futures] == [[2, 10], [6]]
    assert [batch[:, 0].tolist() for batch in model.batches] == [[1, 5, 3, 1]]


def test_one_bad_request_does_not_fail_the_others(make, model):
    scheduler = make(batch_timeout_s=5.0)
    futures = [submit(scheduler, model, rows(value)) for value in (1, -1, 3, 4)]
    assert [f.result(5)["y"][0, 0] for f in (futures[0], *futures[2:])] == [2, 6, 8]
    with pytest.raises(RequestError, match="negative"):
        futures[1].result(5)


def test_a_full_queue_refuses_and_recovers(make, model):
    scheduler = make(max_waiting=3, enabled=False)
    model.gate.clear()
    first = submit(scheduler, model, rows(0))
    while not model.batches:  # wait until the worker has it
        time.sleep(0.001)
    waiting = [submit(scheduler, model, rows(value)) for value in (1, 2, 3)]
    with pytest.raises(RequestError, match="3 requests.*waiting") as caught:
        submit(scheduler, model, rows(4))
    assert caught.value.code == Code.RESOURCE_EXHAUSTED
    model.gate.set()
    assert [f.result(5)["y"][0, 0] for f in (first, *waiting)] == [0, 2, 4, 6]
    assert submit(scheduler, model, rows(5)).result(5)["y"][0, 0] == 10


def test_what_nobody_waits_for_is_not_run(make, model):
    scheduler = make(enabled=False)
    model.gate.clear()
    submit(scheduler, model, rows(0))
    late = submit(scheduler, model, rows(1), seconds=0.01)
    given_up = submit(scheduler, model, rows(2))
    assert given_up.cancel()
    time.sleep(0.05)
    model.gate.set()
    with pytest.raises(RequestError) as caught:
        late.result(5)
    assert caught.value.code == Code.DEADLINE_EXCEEDED
    assert submit(scheduler, model, rows(3)).result(5)["y"][0, 0] == 6
    assert [batch[0, 0] for batch in model.batches] == [0, 3]


def test_a_busy_worker_keeps_no_queue_waiting(make, model):
    scheduler = make(num_threads=2)
    for _ in range(5):
        model.batches.clear()
        model.gate.clear()
        futures = [submit(scheduler, model, rows(1, width=width)) for width in (2, 3)]
        limit = time.monotonic() + 5
        while len(model.batches) < 2 and time.monotonic() < limit:
            time.sleep(0.001)
        assert len(model.batches) == 2  # both are running
        model.gate.set()
        assert [f.result(5)["y"][0, 0] for f in futures] == [2, 2]


def test_a_worker_that_takes_a_batch_wakes_another_for_the_rest(model, monkeypatch):
    scheduler = Scheduler(BatchingOptions(batch_timeout_s=0.0))  # the test plays its two workers
    with ThreadPoolExecutor(1) as pool:
        idle = pool.submit(scheduler._take)
        try:
            while not scheduler._condition._waiters:
                time.sleep(0.001)
            with monkeypatch.context() as patch:  # submitting woke a worker that was just leaving
                patch.setattr(scheduler._condition, "notify", lambda: None)
                for width in (2, 3):
                    submit(scheduler, model, rows(1, width=width))
            (first,), (second,) = scheduler._take().tasks, idle.result(5).tasks
        finally:
            scheduler.close()
    assert [task.inputs["x"].shape for task in (first, second)] == [(1, 2), (1, 3)]


def test_closing_answers_what_waits(make, model):
    scheduler = make(batch_timeout_s=60.0)
    future = submit(scheduler, model, rows(1))
    scheduler.close()
    assert future.result(0)["y"][0, 0] == 2
    with pytest.raises(RequestError, match="stopping"):
        submit(scheduler, model, rows(1))


def test_many_threads(make, model):
    scheduler = make(num_threads=2, batch_timeout_s=0.001)
    wrong = []

    def ask(start):
        for value in range(start, start + 50):
            answer = submit(scheduler, model, rows(value)).result(10)["y"]
            if answer.tolist() != [[2 * value] * 2]:
                wrong.append(value)

    threads = [threading.Thread(target=ask, args=(1000 * i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(len(batch) for batch in model.batches) == 400
    assert not scheduler._queues  # nothing is left behind


@pytest.mark.parametrize("sizes", [(4, 2), (2, 3), (), (0, 4), (2, 2, 4)])
def test_sizes_that_do_not_fit(sizes):
    with pytest.raises(ValueError, match="max_batch_size 4"):
        BatchingOptions(max_batch_size=4, allowed_batch_sizes=sizes)


@pytest.mark.slow
def test_tokens_count_for_exports_that_read_them_and_do_not_write():
    for task, counts in (("embedding", True), ("generation", False), ("word_embedding", False)):
        model = SavedModel(tiny.exported(task), max_runs=1)
        try:
            assert {one.reads_tokens for one in model.signatures.values()} == {counts}
        finally:
            model.close()
