"""Builds the ASGI application with the routes of all APIs."""

from importlib import metadata

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from keras_transformers.serving.gateway import sagemaker
from keras_transformers.serving.gateway.backend import Backend, Models
from keras_transformers.serving.gateway.kserve import routes as kserve
from keras_transformers.serving.gateway.openai import chat, completions, embeddings
from keras_transformers.serving.gateway.openai import models as openai_models
from keras_transformers.serving.gateway.page import page
from keras_transformers.serving.gateway.rerank import routes as rerank
from keras_transformers.serving.gateway.tei import routes as tei

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
    fallback: ASGIApp | None = None,
) -> FastAPI:
    """Returns the gateway's routes, as an ASGI application.

    Args:
        backend: what runs the models.
        timeout_s: seconds that a request may take.
        max_body_bytes: the size of a request's body.
        max_rows: how many texts a request may have.
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


async def _no_route(request: Request, error: Exception) -> JSONResponse:
    """Answers requests for paths and methods that no API has."""
    assert isinstance(error, HTTPException)
    text = f"{error.detail}: {request.method} {request.url.path[:200]}"
    return JSONResponse({"error": text}, error.status_code, error.headers)
