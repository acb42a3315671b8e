"""What clients can cause does not fill the log."""

import logging

from keras_transformers.serving.server import logs


def test_records_of_a_kind_are_logged_now_and_then(caplog, monkeypatch):
    now = 100.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: now)
    logger = logging.getLogger("test_logs")
    logger.addFilter(logs.Seldom(10))
    for step in range(25):  # a second each
        logger.warning("bad %s", step)
        logger.warning("other")
        now += 1
    found = [message for message in caplog.messages if message.startswith("bad")]
    assert found == ["bad 0", "bad 10 (and 9 more like it)", "bad 20 (and 9 more like it)"]
    assert len(caplog.messages) == 6
