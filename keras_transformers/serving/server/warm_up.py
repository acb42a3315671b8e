"""Answers an export's warm-up requests before it is served, as TF Serving does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_transformers.saved_model.description import WARM_UP_FILE
from keras_transformers.saved_model.warm_up import MAX_REQUESTS, read_logs
from keras_transformers.serving.protocol import messages
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.requests import rows_of
from keras_transformers.serving.protocol.signatures import Arrays, SignatureInfo
from keras_transformers.serving.server.decoding_threads import write
from keras_transformers.serving.server.saved_models import SavedModel
from keras_transformers.serving.server.steps import beginning

_TIMEOUT_S = 600.0  # of a request; the first runs of a graph also optimize it


def warm_up(model: SavedModel) -> int:
    """Answers a model's warm-up requests.

    Args:
        model: a model that was just loaded; its folder may have a file of requests.

    Returns:
        How many requests were answered.

    Raises:
        RequestError: the file is damaged or too long, or a request fails.
    """

    def run(signature: SignatureInfo, inputs: Arrays) -> dict[str, Any]:
        begin = beginning(model, signature)
        if begin is None or rows_of(inputs) is None:
            return model.run(signature, inputs, timeout_s=_TIMEOUT_S)
        return write(model, signature, begin, inputs)  # as requests will be answered

    file, count = model.path / WARM_UP_FILE, 0
    for log in _logs(model.path):
        if count == MAX_REQUESTS:
            raise RequestError(
                Code.INVALID_ARGUMENT,
                f"{file}: the number of warm-up records exceeds the maximum ({MAX_REQUESTS})",
            )
        kind = log.WhichOneof("log_type")
        if kind not in messages.ANSWERS:
            raise RequestError(
                Code.UNIMPLEMENTED, f"{file}: record {count + 1}: unsupported log type {kind}"
            )
        try:
            messages.ANSWERS[kind](model, getattr(log, kind).request, run)
        except RequestError as error:
            message = f"{file}: record {count + 1}: {error.message}"
            raise RequestError(error.code, message) from error
        count += 1
    return count


def _logs(folder: Path) -> Iterator[Any]:
    try:
        yield from read_logs(folder)
    except ValueError as error:
        raise RequestError(Code.DATA_LOSS, str(error)) from error
