"""Decodes the texts of each model in a thread of its own, while there are any."""

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np

from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.signatures import Arrays, SignatureInfo
from keras_transformers.serving.server.decoding import Decoding, Request
from keras_transformers.serving.server.saved_models import SavedModel
from keras_transformers.serving.server.steps import Steps, outputs_of, texts_of


class DecodingThreads:
    """The texts of all models. A model without texts has no thread, and nothing keeps it loaded.

    Args:
        most_rows: see `Decoding`.
        most_bytes: see `Decoding`.
        on_step: see `Decoding`.
        on_cancelled: called for each request whose client has left.
    """

    def __init__(
        self,
        *,
        most_rows: int,
        most_bytes: float,
        on_step: Callable[[int], None] = lambda rows: None,
        on_cancelled: Callable[[], None] = lambda: None,
    ) -> None:
        self._make = lambda model: Decoding(
            Steps(model), most_rows=most_rows, most_bytes=most_bytes, on_step=on_step
        )
        self._on_cancelled = on_cancelled
        self._arrived: dict[SavedModel, list[Request]] = {}  # for each thread, since its last look
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, model: SavedModel, request: Request) -> None:
        """Lets texts wait for a model, which must stay open until the request is done.

        Raises:
            RequestError: the server is stopping.
        """
        request.done.add_done_callback(self._count_cancelled)
        with self._lock:
            if self._closed:
                raise RequestError(Code.UNAVAILABLE, "the server is stopping")
            if model in self._arrived:
                self._arrived[model].append(request)
                return
            self._arrived[model] = [request]
            thread = threading.Thread(
                target=self._work, args=(model,), name="serving-decoding", daemon=True
            )
            self._threads.add(thread)
            thread.start()

    def close(self) -> None:
        """Rejects new requests, and waits for the others."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _work(self, model: SavedModel) -> None:
        decoding = self._make(model)
        while self._goes_on(model, decoding):
            decoding.turn()

    def _goes_on(self, model: SavedModel, decoding: Decoding) -> bool:
        """Hands over the requests that have arrived; returns whether there are any at all."""
        with self._lock:
            for request in self._arrived[model]:
                decoding.add(request)
            self._arrived[model] = []
            if decoding.is_idle:
                del self._arrived[model]
                self._threads.discard(threading.current_thread())
            return not decoding.is_idle

    def _count_cancelled(self, done: "Future[None]") -> None:
        error = done.exception()
        if isinstance(error, RequestError) and error.code == Code.CANCELLED:
            self._on_cancelled()


def write(
    model: SavedModel, signature: SignatureInfo, begin: SignatureInfo, inputs: Arrays
) -> dict[str, np.ndarray]:
    """Answers a request in this thread, as the others are answered.

    Args:
        model: the model.
        signature: one of its signatures.
        begin: see `steps.beginning`.
        inputs: the inputs of the signature.

    Raises:
        RequestError: the graph failed.
    """
    texts = texts_of(model, signature, begin, inputs)
    request = Request(texts, deadline=math.inf)
    decoding = Decoding(Steps(model), most_rows=len(texts), most_bytes=math.inf)
    decoding.add(request)
    while not decoding.is_idle:
        decoding.turn()
    request.done.result()
    return outputs_of(texts, signature)
