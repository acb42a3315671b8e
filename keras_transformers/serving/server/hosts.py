"""Checks the Host header of REST requests, as a guard against DNS rebinding.

A web page may read answers only from its own site. But the site's owner can later make its name
point to 127.0.0.1, and the page then talks to the server there. The browser still sends the site's
name in the Host header, so a server that only this machine can reach answers only to this machine's
names. gRPC needs no such guard, because web pages cannot use it.
"""

import ipaddress
import re
from collections.abc import Collection

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from keras_transformers.serving.protocol.errors import HTTP_STATUS, Code

ANY_HOST = "*"
_REFUSED = "the Host header names another server, not one of the allowed hosts"
_ABSOLUTE = re.compile(r"https?://([^/]*)(.*)", re.IGNORECASE | re.DOTALL)


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach an address or name.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost")
    (True, True, True)
    >>> is_loopback("0.0.0.0"), is_loopback("127.0.0.1.example.com")
    (False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HostCheck:
    """ASGI middleware that answers 403 to requests whose Host header names another server.

    This machine's own names (localhost, 127.0.0.1, [::1]) are always allowed, and so are requests
    without a Host header, which no browser sends.

    Args:
        app: the application that gets the allowed requests.
        bound: the address that the server listens on. If other machines can reach it, every host is
            allowed unless `allowed` is given.
        allowed: additional names, without ports; "*" allows all.
    """

    def __init__(self, app: ASGIApp, *, bound: str, allowed: Collection[str] = ()) -> None:
        self._app = app
        self._allowed = {_plain(name) for name in (bound, *allowed)}
        self._any = ANY_HOST in allowed or (not allowed and not is_loopback(bound))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102
        if scope["type"] == "http" and not all(map(self._allows, _hosts(scope))):
            answer = JSONResponse({"error": _REFUSED}, HTTP_STATUS[Code.PERMISSION_DENIED])
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _allows(self, host: str) -> bool:
        return self._any or host in self._allowed or is_loopback(host)


def split_target(scope: Scope) -> tuple[str, str]:
    """Returns the host and the path in a request line, as sent.

    Every server must accept an absolute URI, GET http://host/path, which clients send to proxies;
    otherwise the host is empty. An escaped slash stays escaped, so it does not separate parts of a
    path.
    """
    target = scope.get("raw_path", b"").decode("latin-1") or scope.get("path", "")
    absolute = _ABSOLUTE.fullmatch(target)
    return (absolute[1], absolute[2] or "/") if absolute else ("", target)


def _hosts(scope: Scope) -> list[str]:
    """Returns the names in the request line and the Host headers, without ports."""
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    host, _ = split_target(scope)
    return [_plain(value) for value in ([host] if host else []) + values]


def _plain(host: str) -> str:
    """Returns a host in lower case, without its port, brackets and final dot.

    >>> _plain("[::1]:8501"), _plain("Example.com.:80"), _plain("::1")
    ('::1', 'example.com', '::1')
    """
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") == 1:
        host = host.partition(":")[0]
    return host.removesuffix(".")
