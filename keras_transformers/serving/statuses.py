"""The status of versions as TF Serving's message."""

from collections.abc import Sequence
from typing import Any

from tensorflow_serving.apis import get_model_status_pb2

from keras_transformers.serving.models import Version


def status_response(versions: Sequence[Version]) -> Any:
    """The GetModelStatusResponse for some versions, the newest first as TF Serving has them."""
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in reversed(versions):
        status = response.model_version_status.add(version=version.number, state=version.state)
        status.status.SetInParent()  # also an OK is told
        if version.error is not None:
            status.status.error_code = int(version.error.code)
            status.status.error_message = version.error.message
    return response
