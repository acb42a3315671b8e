"""Loads a SavedModel into a session and runs its signatures.

It uses the V1 session loader, as TF Serving does, so models that fail there fail here, including
when variables are restored. Closing a session frees its memory, which `tf.saved_model.load` does
not do reliably.
"""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizers' ops)

from keras_transformers.saved_model.description import shape_of
from keras_transformers.serving.protocol.errors import Code, RequestError, invalid
from keras_transformers.serving.protocol.signatures import Arrays, SignatureInfo, TensorInfo

_LONGEST_MESSAGE = 2000


class SavedModel:
    """A SavedModel in its own session.

    Args:
        path: the folder that holds saved_model.pb.

    Raises:
        RequestError: the model cannot be loaded.

    Attributes:
        path: the folder.
        signatures: name -> signature.
        definitions: name -> SignatureDef from the file, including the initializer's.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        graph = tf.Graph()
        # Allocate GPU memory as needed; run operations without a GPU kernel on the CPU.
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        config.gpu_options.allow_growth = True
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        try:
            with graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(
                    self._session, [tf.saved_model.SERVING], str(self.path)
                )
            graph.finalize()
            self.definitions: dict[str, Any] = dict(meta_graph.signature_def)
            self.signatures = {
                name: _signature(name, definition)
                for name, definition in self.definitions.items()
                if _is_servable(definition)
            }
            self._tensors = {
                name: (_tensors(graph, signature.inputs), _tensors(graph, signature.outputs))
                for name, signature in self.signatures.items()
            }
        except Exception as error:  # after any error of the runtime, the version cannot be served
            self._session.close()
            if isinstance(error, tf.errors.OpError):
                raise from_tensorflow(error) from error
            raise RequestError(
                Code.FAILED_PRECONDITION, f"{self.path}: {type(error).__name__}: {error}"
            ) from error

    def run(self, signature: SignatureInfo, inputs: Arrays, *, timeout_s: float) -> dict[str, Any]:
        """Runs a signature once.

        It always computes all outputs. The runtime caches the code that it compiles for each set of
        outputs, so requests that choose the set could make the cache grow without bound.

        Args:
            signature: one of `signatures`.
            inputs: name -> array of the dtype and shape that the signature takes; strings are
                bytes in arrays of dtype object.
            timeout_s: seconds until the runtime gives up.

        Returns:
            Output name -> array.

        Raises:
            RequestError: the graph failed.
        """
        feeds, fetches = self._tensors[signature.name]
        options = tf.compat.v1.RunOptions(timeout_in_ms=max(1, int(timeout_s * 1000)))
        try:
            return self._session.run(
                fetches, {feeds[name]: array for name, array in inputs.items()}, options=options
            )
        except tf.errors.OpError as error:
            raise from_tensorflow(error) from error
        except UnicodeDecodeError as error:
            # TensorFlow's Python cannot decode the graph's error, which quotes its input.
            message = "the graph rejected the input, with a message that is not UTF-8"
            raise invalid(message) from error

    def close(self) -> None:
        """Frees the graph and its variables; it cannot run afterwards."""
        self._session.close()
        self._tensors = {}
        self.definitions = {}


def return_freed_memory() -> None:
    """Returns freed memory to the operating system, if the C library is glibc.

    glibc keeps it for each thread that allocated it. Tensors of varying sizes leave gaps there, so
    the process would hold much more than it uses.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def from_tensorflow(error: Any) -> RequestError:
    """Returns the runtime's error without the stack trace of the program that built the graph."""
    message = (error.message or type(error).__name__).removeprefix("Graph execution error:")
    message = message.split("\n\nOriginal stack trace")[0]
    return RequestError(Code(error.error_code), message.strip()[:_LONGEST_MESSAGE])


def _is_servable(definition: Any) -> bool:
    """Returns False for the initializer's signature and for those with sparse tensors."""
    infos = (*definition.inputs.values(), *definition.outputs.values())
    return bool(definition.inputs and definition.outputs) and all(info.name for info in infos)


def _signature(name: str, definition: Any) -> SignatureInfo:
    return SignatureInfo(
        name=name,
        method_name=definition.method_name,
        # Sorted, because the order of a protocol buffer's map differs from run to run.
        inputs={key: _info(definition.inputs[key]) for key in sorted(definition.inputs)},
        outputs={key: _info(definition.outputs[key]) for key in sorted(definition.outputs)},
    )


def _info(info: Any) -> TensorInfo:
    return TensorInfo(info.name, tf.as_dtype(info.dtype), shape_of(info))


def _tensors(graph: Any, infos: Mapping[str, TensorInfo]) -> dict[str, Any]:
    return {name: graph.get_tensor_by_name(info.tensor) for name, info in infos.items()}
