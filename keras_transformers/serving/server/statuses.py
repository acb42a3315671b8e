"""Reports the status of versions in TF Serving's message."""

from collections.abc import Sequence

from tensorflow_serving.apis import get_model_status_pb2

from keras_transformers.dependencies.untyped import Message
from keras_transformers.serving.server.models import Version


def status_response(versions: Sequence[Version]) -> Message:
    """Returns the GetModelStatusResponse for these versions, newest first as in TF Serving."""
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in reversed(versions):
        status = response.model_version_status.add(version=version.number, state=version.state)
        status.status.SetInParent()  # also reports OK
        if version.error is not None:
            status.status.error_code = int(version.error.code)
            status.status.error_message = version.error.message
    return response
