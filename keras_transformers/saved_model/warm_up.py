"""Writes warm-up requests, which TF Serving runs on a new version before serving it.

The first call of a graph is slow: functions are optimized, kernels chosen, memory allocated. While
a version loads, TF Serving replays `assets.extra/tf_serving_warmup_requests`, a TFRecord file of at
most 1000 PredictionLog messages (https://www.tensorflow.org/tfx/serving/saved_model_warmup). A
failing request keeps the version from being served, so requests are made from the examples that the
export was checked with.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.dependencies import graph_errors
from keras_transformers.dependencies.untyped import Message
from keras_transformers.files import replaced
from keras_transformers.saved_model.checks.check import check_signatures
from keras_transformers.saved_model.description import WARM_UP_FILE, read_metadata
from keras_transformers.saved_model.examples import num_rows, stored_examples
from keras_transformers.saved_model.manifest import MANIFEST, read
from keras_transformers.saved_model.versions import resolve

MAX_REQUESTS = 1000
_DEFAULT_SIGNATURE = "serving_default"

# A signature and its inputs: name -> array, or serialized tf.Examples.
Request = tuple[str, dict[str, np.ndarray] | list[bytes]]


def add_warm_up(
    path: str | os.PathLike[str], *, batch_sizes: Sequence[int] = (1,)
) -> tuple[Path, int]:
    """Adds warm-up requests to an export.

    Args:
        path: an export, or the BASE of its versions, of which the newest is used.
        batch_sizes: numbers of rows; each signature gets a request of each size.

    Returns:
        The file and the number of requests in it.

    Raises:
        FileNotFoundError: there is no export.
        FileExistsError: it already has warm-up requests.
        ValueError: a manifest lists the export's files. See also `write_requests`.
    """
    folder = resolve(path).absolute()
    manifest = folder.parent.parent / MANIFEST
    if manifest.is_file() and f"{folder.parent.name}/{folder.name}" in read(manifest):
        raise ValueError(
            f"{manifest} lists every file of {folder}: publish a copy with warm-up requests "
            "instead (`publish` with warm_up=...)"
        )
    count = write_requests(folder, batch_sizes=batch_sizes, model_name=folder.parent.name)
    return folder / WARM_UP_FILE, count


def write_requests(folder: Path, *, batch_sizes: Sequence[int], model_name: str) -> int:
    """Writes the warm-up requests of an export.

    Args:
        folder: the export, with stored examples.
        batch_sizes: numbers of rows; the file has them in ascending order.
        model_name: the name under which the model is served.

    Returns:
        The number of requests written: one for each signature and size.

    Raises:
        FileExistsError: it already has warm-up requests.
        ValueError: a size is below 1, the export has no examples, there would be more than 1000
            requests, or the extra `serving` is missing.
    """
    file = folder / WARM_UP_FILE
    if file.exists():
        raise FileExistsError(f"{file} exists; to change the requests, publish the export again")
    sizes = checked_sizes(batch_sizes)
    metadata = read_metadata(folder)
    check_signatures(folder, metadata)
    logs = list(_logs(metadata, sizes, model_name))
    if not logs:
        raise ValueError(
            f"{folder}: no stored examples to make requests from; exports of this package have them"
        )
    if len(logs) > MAX_REQUESTS:
        raise ValueError(
            f"{len(logs)} requests, but TF Serving takes {MAX_REQUESTS}: use fewer batch sizes"
        )
    _write_records(file, [log.SerializeToString() for log in logs])
    return len(logs)


def checked_sizes(batch_sizes: Sequence[int]) -> list[int]:
    """Returns the distinct numbers of rows, ascending.

    Raises:
        ValueError: there are none, or one is below 1.
    """
    sizes = sorted(set(batch_sizes))
    if not sizes or sizes[0] < 1:
        raise ValueError(f"batch sizes {list(batch_sizes)}: expected numbers of rows, 1 or more")
    return sizes


def read_requests(folder: Path) -> Iterator[Request]:
    """Yields the warm-up requests of any export, in order.

    Args:
        folder: the export; without a warm-up file there are none.

    Yields:
        The signature, and its inputs: name -> array for Predict, serialized tf.Examples for
        Classify and Regress. A MultiInference record yields one request per signature.

    Raises:
        ValueError: a record has an unsupported kind. See also `read_logs`.
    """
    for log in read_logs(folder):
        yield from _requests(log)


def read_logs(folder: Path) -> Iterator[Message]:
    """Yields the records of an export's warm-up file, tensorflow.serving.PredictionLog messages.

    Args:
        folder: the export; without a warm-up file there are none.

    Raises:
        ValueError: the file is damaged, or the extra `serving` is missing.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    file = folder / WARM_UP_FILE
    if not file.is_file():
        return
    parse, number = _messages().PredictionLog.FromString, 1
    try:
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            yield parse(record)
            number += 1
    except (tf.errors.OpError, DecodeError) as error:
        reason = graph_errors.sentence(str(error))
        raise ValueError(
            f"{file}: record {number}: not a TFRecord of PredictionLog: {reason}"
        ) from error


def _requests(log: Message) -> Iterator[Request]:
    import tensorflow as tf

    kind = log.WhichOneof("log_type")
    if kind not in ("predict_log", "classify_log", "regress_log", "multi_inference_log"):
        raise ValueError(
            f"a warm-up record of the kind {kind}: only Predict, Classify, Regress and "
            "MultiInference are supported"
        )
    request = getattr(log, kind).request
    if kind == "predict_log":
        arrays = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        yield request.model_spec.signature_name or _DEFAULT_SIGNATURE, arrays
        return
    tasks = request.tasks if kind == "multi_inference_log" else [request]
    for task in tasks:
        yield task.model_spec.signature_name or _DEFAULT_SIGNATURE, examples_of(request.input)


def examples_of(message: Message) -> list[bytes]:
    """Returns the serialized examples of a tensorflow.serving.Input, merged with its context."""
    if message.WhichOneof("kind") == "example_list_with_context":
        with_context = message.example_list_with_context
        # Parsing merges concatenated messages; later values win.
        context = with_context.context.SerializeToString()
        return [context + example.SerializeToString() for example in with_context.examples]
    return [example.SerializeToString() for example in message.example_list.examples]


def _write_records(file: Path, records: Sequence[bytes]) -> None:
    """Writes a TFRecord file, completely or not at all."""
    import tensorflow as tf

    file.parent.mkdir(exist_ok=True)
    try:
        with replaced(file) as scratch, tf.io.TFRecordWriter(str(scratch)) as writer:
            for record in records:
                writer.write(record)
    except tf.errors.OpError as error:  # such as a full disk
        reason = graph_errors.sentence(error.message)
        raise OSError(f"{file}: cannot be written: {reason}") from error


def _logs(metadata: Mapping[str, Any], sizes: Sequence[int], model_name: str) -> Iterator[Message]:
    for name, signature in metadata.get("signatures", {}).items():
        examples = [example["inputs"] for example in stored_examples(metadata, name)]
        plain = next((example for example in examples if num_rows(example) > 0), {})
        for size in sizes if plain else ():
            rows = {key: np.resize(value, (size, *value.shape[1:])) for key, value in plain.items()}
            yield _log(signature["method_name"].rpartition("/")[2], rows, name, model_name)


def _log(method: str, rows: Mapping[str, np.ndarray], signature: str, model_name: str) -> Message:
    """Returns a tensorflow.serving.PredictionLog with one request."""
    import tensorflow as tf

    log = _messages().PredictionLog()
    if method == "predict":
        request = log.predict_log.request
        for key, value in rows.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    else:  # classify and regress take tf.Example records, which their signatures parse
        request = (log.classify_log if method == "classify" else log.regress_log).request
        (records,) = rows.values()
        for record in records:
            request.input.example_list.examples.add().MergeFromString(record)
    request.model_spec.name = model_name
    request.model_spec.signature_name = signature
    return log


def _messages() -> Any:
    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError as error:
        raise ValueError(
            "warm-up requests need the messages of TF Serving: "
            "pip install keras-transformers[serving]"
        ) from error
    return prediction_log_pb2
