"""Checks API keys, and limits the requests of each.

Keys are long and random, so a plain SHA-256 is enough: nobody can guess a key from its digest. All
digests are compared in constant time. The file is reread when it changes, so that a key can be
revoked without a restart.
"""

import contextlib
import hashlib
import hmac
import logging
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from keras_transformers.files.toml import Table
from keras_transformers.serving.protocol.errors import Code, RequestError

__all__ = ["ApiKeys"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
_BUSY_S = 1.0  # after which a request may be sent again if others are in progress
_LOOK_S = 1.0  # between two looks at the file

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ApiKey:
    """A key's entry in the file.

    Attributes:
        name: who uses it, for the log.
        sha256: the SHA-256 of the key, in hexadecimal digits.
        requests_per_minute: how many requests it may send; None for any number.
        max_requests: how many of them may be in progress; None for any number.
    """

    name: str
    sha256: str
    requests_per_minute: float | None = None
    max_requests: int | None = None


def read_keys(path: str | os.PathLike[str]) -> dict[str, ApiKey]:
    """Reads a file of keys.

    It is TOML, with a table for each key:

        [keys.alice]
        sha256 = "..."               # of the key
        requests_per_minute = 600    # optional, as the next
        max_requests = 8

    Returns:
        name -> key.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not TOML, has no key, or a value in it is wrong.
    """
    file = Table.read(path)
    keys = {}
    for name, table in file.named_tables("keys").items():
        digest = table.required("sha256", str)
        if not _DIGEST.fullmatch(digest):
            raise table.error(
                "sha256",
                "is not 64 hexadecimal digits: write what `printf %s KEY | sha256sum` prints",
            )
        rate, most = table.take("requests_per_minute", float), table.take("max_requests", int)
        for key, value in (("requests_per_minute", rate), ("max_requests", most)):
            if value is not None and not 0 < value < float("inf"):
                raise table.error(key, f"is {value}: expected a positive number")
        table.end()
        keys[name] = ApiKey(name, digest, rate, most)
    file.end()
    if not keys:
        raise ValueError(f"{file.place}: no keys: write a table [keys.NAME] with sha256")
    digests = [entry.sha256 for entry in keys.values()]
    for name, entry in keys.items():
        if digests.count(entry.sha256) > 1:
            raise ValueError(f"{file.place}: [keys.{name}]: another table has this key too")
    return keys


class ApiKeys:
    """The keys that a server accepts, and how many requests of each are in progress.

    Threads may share it.

    Args:
        path: see `read_keys`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: see `read_keys`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._state = self._stat()
        self._looked_at = time.monotonic()
        self._keys = read_keys(path)
        self._use: dict[str, _Use] = {}
        self._lock = threading.Lock()

    def check(self, headers: Mapping[str, str]) -> ApiKey:
        """Returns the key that a request shows.

        Args:
            headers: its headers or its metadata, with names in lower case.

        Raises:
            RequestError: it shows no key, or none that is in the file.
        """
        bearer = _BEARER.fullmatch(headers.get("authorization", ""))
        secret = bearer[1] if bearer else headers.get("x-api-key", "")
        if not secret:
            raise RequestError(
                Code.UNAUTHENTICATED, "no API key: send the header Authorization: Bearer KEY"
            )
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
        owner = None
        for key in self._current().values():  # all of them, so that the time tells nothing
            if hmac.compare_digest(key.sha256, digest):
                owner = key
        if owner is None:
            raise RequestError(
                Code.UNAUTHENTICATED, "unknown API key: it is wrong, or was withdrawn"
            )
        return owner

    @contextlib.contextmanager
    def admit(self, key: ApiKey) -> Iterator[None]:
        """Counts the block as a request of a key.

        Raises:
            RequestError: the key has sent too many requests, or too many are in progress.
        """
        with self._lock:
            use = self._use.setdefault(key.name, _Use())
            use.begin(key)
        try:
            yield
        finally:
            with self._lock:
                use.num_requests -= 1

    def _current(self) -> dict[str, ApiKey]:
        """Returns the keys in the file, which is read again if it has changed."""
        with self._lock:
            now = time.monotonic()
            if now < self._looked_at + _LOOK_S:
                return self._keys
            self._looked_at = now
            state = self._stat()
            if state != self._state:
                self._state = state
                try:
                    self._keys = read_keys(self._path)
                    _logger.info("%s: read again, %d keys", self._path, len(self._keys))
                except (OSError, ValueError) as error:
                    _logger.error("keeping the keys as they were: %s", error)
            return self._keys

    def _stat(self) -> tuple[int, ...]:
        with contextlib.suppress(OSError):
            stat = os.stat(self._path)
            return stat.st_mtime_ns, stat.st_size, stat.st_ino
        return ()


@dataclass
class _Use:
    """The requests of a key: those in progress, and those of the last minute.

    The latter are a bucket that a request takes one from, and that fills as time passes, up to the
    requests of a minute.
    """

    num_requests: int = 0
    spent: float = 0.0  # requests missing from the full bucket
    at: float = 0.0  # when that was so, by time.monotonic

    def begin(self, key: ApiKey) -> None:
        if key.max_requests is not None and self.num_requests >= key.max_requests:
            raise _exhausted(
                f"{self.num_requests} requests of this API key are in progress, its limit", _BUSY_S
            )
        if key.requests_per_minute is not None:
            now, per_second = time.monotonic(), key.requests_per_minute / 60
            spent = max(0.0, self.spent - (now - self.at) * per_second)
            # One request is always possible, also if the limit is below one.
            missing = spent + 1 - max(1.0, key.requests_per_minute)
            if missing > 1e-9:
                raise _exhausted(
                    f"this API key has sent its {key.requests_per_minute:g} requests per minute",
                    missing / per_second,
                )
            self.spent, self.at = spent + 1, now
        self.num_requests += 1


def _exhausted(reason: str, after_s: float) -> RequestError:
    return RequestError(
        Code.RESOURCE_EXHAUSTED, f"{reason}: try again in {after_s:.3g} s", retry_after_s=after_s
    )
