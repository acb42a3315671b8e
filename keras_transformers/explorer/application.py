"""The page and its views as an ASGI application, which the local server runs."""

import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from keras_transformers.explorer.subjects import Subject
from keras_transformers.files import one_line
from keras_transformers.files.reading import parse_json
from keras_transformers.serving.server.local import Server

__all__ = ["explorer_application", "explorer_server"]

_PAGE = Path(__file__).with_name("page")
_LARGEST_BODY = 8 * 2**20  # bytes; an image in base64
# The page has everything it needs: nothing may come from elsewhere, and nothing may go there.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_logger = logging.getLogger(__name__)


def explorer_server(subjects: Sequence[Subject], *, host: str, port: int) -> Server:
    """Returns a local server with the page, and the exports among the subjects at TF Serving's API.

    Args:
        subjects: what to show.
        host: the address to listen on.
        port: 0 picks a free one.

    Raises:
        OSError: the port is in use.
    """
    exports = [subject.export for subject in subjects if subject.export]
    return Server(
        exports, host=host, rest_port=port, grpc_port=None, pages=explorer_application(subjects)
    )


def explorer_application(subjects: Sequence[Subject]) -> Callable[..., Awaitable[None]]:
    """Returns the application: the page, `/explore/models`, and `/explore/<model>/<view>`."""
    by_name = {subject.name: subject for subject in subjects}
    # Attention is read from the layers while they run, so one request runs at a time.
    turn = threading.Lock()

    async def models(request: Request) -> Response:
        return JSONResponse([{"name": subject.name, **subject.about} for subject in subjects])

    async def view(request: Request) -> Response:
        # A page of another site cannot send this type without asking first, which is refused.
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _error("send application/json", 415)
        body = await request.body()
        if len(body) > _LARGEST_BODY:
            return _error(f"the body is larger than {_LARGEST_BODY} bytes", 413)
        try:
            compute = by_name[request.path_params["name"]].views[request.path_params["view"]]
        except KeyError:
            return _error("no such model, or the model has no such view", 404)

        def run() -> Any:
            values = parse_json(body or b"{}", "the body")
            with turn:
                return compute(values)

        try:
            return JSONResponse(await run_in_threadpool(run))
        except (ValueError, KeyError, TypeError) as error:
            return _error(one_line(error), 400)
        except Exception:
            _logger.exception("%s failed", request.url.path)
            return _error("internal error; see the explorer's log", 500)

    application = Starlette(
        routes=[
            Route("/explore/models", models),
            Route("/explore/{name}/{view}", view, methods=["POST"]),
            Mount("/", StaticFiles(directory=_PAGE, html=True)),
        ]
    )

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        async def with_policy(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    (b"content-security-policy", _POLICY.encode()),
                    (b"x-content-type-options", b"nosniff"),
                    (b"referrer-policy", b"no-referrer"),
                    (b"cache-control", b"no-store"),
                ]
            await send(message)

        await application(scope, receive, with_policy)

    return guarded


def _error(message: str, status: int) -> Response:
    return JSONResponse({"error": message}, status)
