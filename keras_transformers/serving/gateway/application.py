"""Builds the ASGI application with the routes of all APIs."""

from importlib import metadata

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Scope

from keras_transformers.serving.gateway import sagemaker
from keras_transformers.serving.gateway.apis import Room, as_refusal
from keras_transformers.serving.gateway.backend import Backend, Models
from keras_transformers.serving.gateway.kserve import routes as kserve
from keras_transformers.serving.gateway.openai import chat, completions, embeddings
from keras_transformers.serving.gateway.openai import models as openai_models
from keras_transformers.serving.gateway.page import page
from keras_transformers.serving.gateway.rerank import routes as rerank
from keras_transformers.serving.gateway.tei import routes as tei
from keras_transformers.serving.protocol.errors import RequestError
from keras_transformers.serving.server.guard import retry_headers

# The routers of all APIs. One more API is one more module, named here.
_APIS = (
    openai_models.routes,
    chat.routes,
    completions.routes,
    embeddings.routes,
    rerank.routes,
    tei.routes,
    kserve.routes,
    sagemaker.routes,
)


def application(
    backend: Backend,
    *,
    timeout_s: float = 30.0,
    max_body_bytes: int = 16 * 1024 * 1024,
    max_rows: int = 1024,
    max_requests: int = 64,
    max_held_bytes: int = 256 * 1024 * 1024,
    fallback: ASGIApp | None = None,
) -> FastAPI:
    """Returns the gateway's routes, as an ASGI application.

    Args:
        backend: what runs the models.
        timeout_s: seconds that a request may take.
        max_body_bytes: the size of a request's body.
        max_rows: how many texts a request may have.
        max_requests: how many requests with bodies may be in progress.
        max_held_bytes: how large these bodies may be together.
        fallback: answers the requests for paths that no API has; 404 by default.
    """
    app = FastAPI(
        title="keras_transformers",
        version=metadata.version("keras-transformers"),
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.models = Models(backend, timeout_s=timeout_s, max_rows=max_rows)
    app.state.max_body_bytes = max_body_bytes
    app.state.timeout_s = timeout_s
    app.state.room = Room(max_requests, max_held_bytes)
    for routes in _APIS:
        app.include_router(routes)
    app.add_api_route("/docs", _docs, include_in_schema=False)
    app.add_exception_handler(HTTPException, _no_route)
    if fallback is not None:
        app.router.default = fallback
    return app


async def _docs(request: Request) -> HTMLResponse:
    """Shows the description of all routes."""
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return HTMLResponse(page(request.app.openapi()), headers=policy)


def refusal(scope: Scope, error: RequestError) -> Response:
    """Returns a refusal of a request that no route has seen, in the shape of the API that it asks.

    Args:
        scope: the request.
        error: why it is refused.
    """
    refused = as_refusal(error, scope["path"])
    for routes in _APIS:
        for route in routes.routes:
            if route.matches(scope)[0] != Match.NONE and hasattr(route, "refuse"):
                answer: Response = route.refuse(refused)
                return answer
    headers = retry_headers(refused.status, refused)
    return JSONResponse({"error": refused.message}, refused.status, headers)


async def _no_route(request: Request, error: Exception) -> JSONResponse:
    """Answers requests for paths and methods that no API has."""
    assert isinstance(error, HTTPException)
    text = f"{error.detail}: {request.method} {request.url.path[:200]}"
    return JSONResponse({"error": text}, error.status_code, error.headers)
