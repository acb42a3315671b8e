"""Answers at the two paths that SageMaker knows: /ping and /invocations.

https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html documents them.
"""

from fastapi import Request, Response
from starlette.types import Message, Receive, Scope, Send

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.gateway.apis import Asked, router
from keras_transformers.serving.gateway.refusals import RefusalError, refusal

__all__: list[str] = []

# A field that the bodies of one route have and the others lack -> the route.
_ROUTES = {
    "messages": "/v1/chat/completions",
    "prompt": "/v1/completions",
    "input": "/v1/embeddings",
    "documents": "/v2/rerank",
    "texts": "/rerank",
}


def _error_shape(error: RefusalError) -> dict[str, Json]:
    return {"error": error.message}


routes = router(_error_shape, tags=["SageMaker"])


class _Forwarded(Response):
    """Answers a request as another route answers its body."""

    def __init__(self, request: Request, path: str, body: bytes) -> None:
        super().__init__()
        self._app, self._path, self._rest = request.app, path, [body]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_again() -> Message:
            if self._rest:
                return {"type": "http.request", "body": self._rest.pop(), "more_body": False}
            return await receive()

        there = {**scope, "path": self._path, "raw_path": self._path.encode()}
        await self._app(there, receive_again, send)


@routes.post("/invocations")
async def invoke(request: Request) -> Response:
    """Answers as the route that takes such a body: OpenAI's, Cohere's or TEI's."""
    body = await request.json()
    path = next((_ROUTES[name] for name in _ROUTES if isinstance(body, dict) and name in body), "")
    if not path:
        raise refusal(f"the body has none of the fields {', '.join(_ROUTES)}: which API is it for?")
    return _Forwarded(request, path, await request.body())


@routes.get("/ping")
async def ping(models: Asked) -> Response:
    """Tells whether every model answers."""
    ready = [await models.is_ready(name) for name in await models.names()]
    return Response(status_code=200 if ready and all(ready) else 503)
