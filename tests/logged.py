"""What this package logged in a test, without what TensorFlow and others say meanwhile."""

import logging


def warnings_in(caplog) -> list[str]:
    """The package's warnings and errors, in `caplog`."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("keras_transformers") and record.levelno >= logging.WARNING
    ]
