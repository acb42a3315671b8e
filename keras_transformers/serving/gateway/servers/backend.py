"""Makes a backend of servers."""

import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence

from keras_transformers.serving.client.transport import Call, SignatureInfo, VersionStatus
from keras_transformers.serving.gateway.backend import as_spec
from keras_transformers.serving.gateway.servers.replicas import Replicas
from keras_transformers.serving.gateway.servers.transport import Outputs
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.signatures import Arrays, ModelSpec

_TIMEOUT_S = 5.0  # of a request for names


class Servers:
    """A backend of servers; `gateway.backend.Backend` describes the methods.

    Args:
        groups: servers, and the names of the models that they have: those of the gateway -> those
            of the servers, NAME, NAME@3 or NAME@stable. Without names, the servers are asked for
            them, which TF Serving's cannot tell.

    Raises:
        ValueError: two groups have a model of the same name.
    """

    def __init__(self, groups: Sequence[tuple[Replicas, Mapping[str, str] | None]]) -> None:
        self._groups = groups
        self._places: dict[str, tuple[Replicas, str]] = {}
        for replicas, names in groups:
            for name, name_there in (names or {}).items():
                if name in self._places:
                    raise ValueError(f"model {name!r} is on several servers: rename one")
                self._places[name] = replicas, name_there

    async def names(self) -> list[str]:  # noqa: D102
        return sorted(await self._all_places())

    async def signatures(  # noqa: D102
        self, model: ModelSpec, timeout_s: float
    ) -> Mapping[str, SignatureInfo]:
        replicas, spec = await self._place(model)
        return await replicas.signatures(spec, timeout_s)

    async def predict(self, call: Call, inputs: Arrays) -> Outputs:  # noqa: D102
        replicas, spec = await self._place(call.model)
        return await replicas.predict(dataclasses.replace(call, model=spec), inputs)

    async def stream(self, call: Call, inputs: Arrays) -> AsyncIterator[Outputs]:  # noqa: D102
        replicas, spec = await self._place(call.model)
        pieces = replicas.stream(dataclasses.replace(call, model=spec), inputs)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]

    async def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:  # noqa: D102
        replicas, spec = await self._place(model)
        return await replicas.status(spec, timeout_s)

    async def close(self) -> None:  # noqa: D102
        for replicas, _ in self._groups:
            await replicas.close()

    async def _place(self, model: ModelSpec) -> tuple[Replicas, ModelSpec]:
        places = await self._all_places()
        if model.name not in places:
            raise RequestError(Code.NOT_FOUND, f"no model {model.name[:200]!r}")
        replicas, name = places[model.name]
        there = as_spec(name)
        if model.version is None and not model.label:
            return replicas, there
        return replicas, dataclasses.replace(model, name=there.name)

    async def _all_places(self) -> dict[str, tuple[Replicas, str]]:
        """Returns where each model is."""
        places = dict(self._places)
        for replicas, names in self._groups:
            if names is None:
                for name in await replicas.names(_TIMEOUT_S) or ():
                    places.setdefault(name, (replicas, name))
        return places
