"""Defines what the gateway's routes ask, and the models as they see them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from keras_transformers.serving.client.transport import Call, SignatureInfo, VersionStatus
from keras_transformers.serving.gateway.refusals import refusal
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.signatures import DEFAULT_SIGNATURE, Arrays, ModelSpec
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.generation.conversations import OLD_OPTIONS

_ROWS_OF_A_RUN = 32  # as `Client` sends them, so that answers are the same
_BYTES_OF_A_RUN = 2**20  # of texts, unless a single row has more
_RUNS_OF_A_REQUEST = 4  # at the same time


class Backend(Protocol):
    """Runs signatures of exports: servers, or an engine in this process.

    Failing methods raise a RequestError, after their timeout at the latest.
    """

    async def names(self) -> Sequence[str]:
        """Returns the names of the models, sorted."""

    async def signatures(self, model: ModelSpec, timeout_s: float) -> Mapping[str, SignatureInfo]:
        """Returns a model's signatures by name."""

    async def predict(self, call: Call, inputs: Arrays) -> dict[str, np.ndarray]:
        """Runs a signature once. To cancel the task is to abandon the run."""

    def stream(self, call: Call, inputs: Arrays) -> AsyncIterator[dict[str, np.ndarray]]:
        """Runs a signature of one row that writes text, and yields its outputs as it does.

        `text` is the piece to append, and the other outputs are those so far. A server that cannot
        stream gives one piece. To close the iterator is to abandon the run.
        """

    async def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:
        """Returns the state of each version of a model."""

    async def close(self) -> None:
        """Closes the connections."""


@dataclass(frozen=True)
class Model:
    """A model that requests may ask.

    Attributes:
        name: as requests name it.
        spec: the model and its version.
        signatures: its signatures by name.
        backend: runs them.
        deadline: when the answer to the request is due, by time.monotonic.
        max_rows: how many texts a request may have.
    """

    name: str
    spec: ModelSpec
    signatures: Mapping[str, SignatureInfo]
    backend: Backend
    deadline: float
    max_rows: int = 1024

    @property
    def task(self) -> str:
        """The task of its export, such as "generation"; empty if it is unknown."""
        if reading.TASK_SIGNATURE in self.signatures:
            return self.signatures[reading.TASK_SIGNATURE].method_name
        default = self.signatures.get(DEFAULT_SIGNATURE)
        answer = None if default is None else reading.answer_type_of(default.outputs)
        return "" if answer is None else answer.task

    @property
    def options(self) -> dict[str, Any]:
        """The defaults of its options of decoding."""
        options = self.signatures.get(reading.OPTIONS_SIGNATURE)
        return OLD_OPTIONS | ({} if options is None else json.loads(options.method_name))

    @property
    def chat_template(self) -> str | None:
        """The name of its chat template; None if its export does not say it."""
        note = self.signatures.get(reading.CHAT_SIGNATURE)
        return None if note is None else note.method_name

    def signature(self, name: str, purpose: str) -> SignatureInfo:
        """Returns a signature.

        Args:
            name: the signature's name.
            purpose: what the request needs it for, to end "its export has no signature ... to".

        Raises:
            RefusalError: the model lacks it.
        """
        if name not in self.signatures:
            raise refusal(
                f"model {self.name!r} is for {self.task or 'an unknown task'}: its export has no "
                f"signature {name!r} to {purpose}",
                field="model",
            )
        return self.signatures[name]

    async def predict(self, signature_name: str, inputs: Arrays) -> dict[str, np.ndarray]:
        """Runs a signature once; all inputs have the same number of rows."""
        return await self.backend.predict(self._call(signature_name), inputs)

    async def rows(self, signature_name: str, inputs: Arrays) -> list[dict[str, Any]]:
        """Runs a signature and returns its outputs as rows: name -> str, number or nested list.

        Many rows become several runs, see `parts`.
        """
        answer = reading.answer_type(self.task)
        outputs = self.signatures[signature_name].outputs
        padded = [name for name, info in outputs.items() if info.grows]
        parts = await self.parts(signature_name, inputs)
        return [row for part in parts for row in reading.rows(part, padded, answer)]

    async def parts(self, signature_name: str, inputs: Arrays) -> list[dict[str, np.ndarray]]:
        """Runs a signature on rows of any number, as many at once as `Client` sends.

        Long texts take fewer rows: a request that repeats one must not become many times as large.
        A few runs are in progress at the same time, so that replicas share them but one request
        does not take the places of all others.
        """
        places = asyncio.Semaphore(_RUNS_OF_A_REQUEST)

        async def run(rows: slice) -> dict[str, np.ndarray]:
            async with places:
                return await self.predict(signature_name, {n: a[rows] for n, a in inputs.items()})

        runs = [asyncio.ensure_future(run(rows)) for rows in _runs(inputs)]
        try:
            return await asyncio.gather(*runs)
        finally:  # if one has failed
            for other in runs:
                other.cancel()

    def stream(self, signature_name: str, inputs: Arrays) -> AsyncIterator[dict[str, np.ndarray]]:
        """Runs a signature of one row that writes text; see `Backend.stream`."""
        return self.backend.stream(self._call(signature_name), inputs)

    def _call(self, signature_name: str) -> Call:
        left_s = max(0.001, self.deadline - time.monotonic())
        return Call(self.spec, signature_name, left_s)


def _runs(inputs: Arrays) -> Iterator[slice]:
    """Yields the rows of each run."""
    count = len(next(iter(inputs.values())))
    texts = [array.reshape(count, -1) for array in inputs.values() if array.dtype == object]
    start = size = 0
    for row in range(count):
        length = sum(sum(map(len, array[row])) for array in texts)
        if row > start and (row - start == _ROWS_OF_A_RUN or size + length > _BYTES_OF_A_RUN):
            yield slice(start, row)
            start, size = row, 0
        size += length
    if count:
        yield slice(start, count)


class Models:
    """The models of a backend, as requests name them.

    A name is that of a model on its server, or NAME@3 for its version 3, or NAME@stable for the
    version with that label.

    Args:
        backend: what serves them.
        timeout_s: seconds that a request may take.
        max_rows: how many texts a request may have.
    """

    def __init__(self, backend: Backend, *, timeout_s: float, max_rows: int = 1024) -> None:
        self._backend = backend
        self._timeout_s = timeout_s
        self._max_rows = max_rows

    async def names(self) -> list[str]:
        """Returns the names of the models, sorted, without versions and labels."""
        return sorted(await self._backend.names())

    async def find(self, name: str) -> Model:
        """Returns the model that a request names.

        Raises:
            RefusalError: there is no such model.
            RequestError: its server does not answer.
        """
        deadline = time.monotonic() + self._timeout_s
        spec = as_spec(name)
        if spec.name not in await self._backend.names():
            raise await self._unknown(name)
        try:
            signatures = await self._backend.signatures(spec, self._timeout_s)
        except RequestError as error:
            if error.code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT):
                raise _no_version(name, error) from None
            raise
        return Model(name, spec, signatures, self._backend, deadline, self._max_rows)

    async def only(self, purpose: str, fits: Callable[[Model], bool], remedy: str) -> Model:
        """Returns the only model that can answer, for requests that name none.

        Args:
            purpose: what it is for, such as "embedding".
            fits: whether a model can answer.
            remedy: how a request names a model.

        Raises:
            RefusalError: no model can answer, or several can.
            RequestError: one that may be able to does not answer.
        """
        fitting, failure = [], None
        for name in await self.names():
            try:
                model = await self.find(name)
            except RequestError as error:  # such as one that is still loading
                failure = error
            else:
                fitting += [model] if fits(model) else []
        if not fitting and failure is not None:
            raise failure
        if len(fitting) != 1:
            names = ", ".join(model.name for model in fitting) or "none"
            raise refusal(
                f"the request names no model, and those for {purpose} are: {names}; {remedy}",
                field="model",
                code=Code.NOT_FOUND,
            )
        return fitting[0]

    async def is_ready(self, name: str) -> bool:
        """Returns whether a model has a version that answers.

        Raises:
            RefusalError: there is no such model.
            RequestError: its server does not answer.
        """
        spec = as_spec(name)
        if spec.name not in await self._backend.names():
            raise await self._unknown(name)
        try:
            versions = await self._backend.status(spec, self._timeout_s)
        except RequestError as error:
            if error.code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT):
                raise _no_version(name, error) from None
            raise
        return any(version.state == "AVAILABLE" for version in versions)

    async def are_ready(self) -> bool:
        """Returns whether every model has a version that answers."""
        for name in await self.names():
            if not await self.is_ready(name):
                return False
        return True

    async def versions(self, name: str) -> list[int]:
        """Returns the versions of a model that answer, the oldest first."""
        versions = await self._backend.status(as_spec(name), self._timeout_s)
        return sorted(entry.version for entry in versions if entry.state == "AVAILABLE")

    async def _unknown(self, name: str) -> Exception:
        names = ", ".join(await self.names())
        return refusal(
            f"no model {name[:200]!r}; there are {names}", field="model", code=Code.NOT_FOUND
        )


def _no_version(name: str, error: RequestError) -> RequestError:
    return refusal(f"model {name[:200]!r}: {error.message}", field="model", code=Code.NOT_FOUND)


def as_spec(name: str) -> ModelSpec:
    """Returns the model and the version that a name means; see `Models`."""
    model, at, version = name.rpartition("@")
    if not at:
        return ModelSpec(name)
    if version.isascii() and version.isdigit() and len(version) < 19:
        return ModelSpec(model, int(version))
    return ModelSpec(model, label=version)
