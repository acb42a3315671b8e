"""Answers the requests that an export brings along, before anyone else's.

TF Serving replays `assets.extra/tf_serving_warmup_requests`, records of PredictionLog, when it
loads a version; https://www.tensorflow.org/tfx/serving/saved_model_warmup describes the file.
"""

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from keras_transformers.serving import messages
from keras_transformers.serving.errors import Code, RequestError
from keras_transformers.serving.saved_models import Arrays, SavedModel, Signature

WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
MAX_RECORDS = 1000  # TF Serving's own limit

_TIMEOUT_S = 600.0  # the first runs of a graph optimize it


def warm_up(model: SavedModel) -> int:
    """Answers a model's warm-up requests.

    Args:
        model: just loaded; its folder has the requests, or none.

    Returns:
        How many were answered.

    Raises:
        RequestError: the file is damaged or too long, or a request fails: the version would not
            answer its own examples.
    """
    file = model.path / WARM_UP_FILE
    if not file.is_file():
        return 0

    def run(signature: Signature, inputs: Arrays) -> dict[str, object]:
        return model.run(signature, inputs, timeout_s=_TIMEOUT_S)

    count = 0
    try:
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            if count == MAX_RECORDS:
                raise RequestError(
                    Code.INVALID_ARGUMENT,
                    f"{file}: the number of warm-up records exceeds the maximum ({MAX_RECORDS})",
                )
            log = prediction_log_pb2.PredictionLog.FromString(record)
            kind = log.WhichOneof("log_type")
            if kind not in messages.ANSWERS:
                raise RequestError(
                    Code.UNIMPLEMENTED, f"{file}: record {count + 1}: unsupported log type {kind}"
                )
            messages.ANSWERS[kind](model, getattr(log, kind).request, run)
            count += 1
    except (tf.errors.OpError, DecodeError) as error:
        raise RequestError(
            Code.DATA_LOSS, f"{file}: record {count + 1}: not a TFRecord of PredictionLog: {error}"
        ) from error
    return count
