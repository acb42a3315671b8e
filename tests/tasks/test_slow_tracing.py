"""Graphs are traced once, and a slow one says so."""

import time

import tensorflow as tf

from keras_transformers.tasks import tracing


def slow(x):
    time.sleep(0.3)
    return x + 1


def test_a_slow_first_call_says_what_it_waits_for(monkeypatch, caplog):
    monkeypatch.setattr(tracing, "_SILENT_S", 0.05)
    spec = tf.TensorSpec([], tf.int32)
    graph = tracing.traced(slow, x=spec)
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert caplog.messages[0].startswith("slow: the first call traces")
    assert graph(x=tf.constant(1)) == 2
    monkeypatch.undo()
    tracing.traced(slow, spec)
    assert len(caplog.records) == 1
