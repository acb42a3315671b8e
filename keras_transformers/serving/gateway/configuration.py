"""Reads a gateway's configuration from a TOML file."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from keras_transformers.files.toml import Table
from keras_transformers.serving.client.target import Target
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.client.transport import credentials
from keras_transformers.serving.gateway.servers.backend import Servers
from keras_transformers.serving.gateway.servers.connect import connect
from keras_transformers.serving.gateway.servers.replicas import Replicas
from keras_transformers.serving.protocol import tracing
from keras_transformers.serving.server.keys import read_keys
from keras_transformers.serving.server.limits import Limits
from keras_transformers.serving.server.tls import Tls

_MIB = 1024 * 1024


@dataclass(frozen=True)
class ServerGroup:
    """Servers with the same models.

    Attributes:
        targets: their addresses.
        models: name for the gateway's clients -> name on the servers, or NAME@3 or NAME@stable for
            one version; None asks the servers for the names.
        tls: the files for TLS.
        api_key: the key to show; None for none.
    """

    targets: tuple[Target, ...]
    models: Mapping[str, str] | None = None
    tls: ClientTls = field(default_factory=ClientTls)
    api_key: str | None = None

    def __post_init__(self) -> None:
        if not self.targets:
            raise ValueError("no server: pass http://host:port or host:port")
        for target in self.targets:
            target.encryption(self.tls)
        credentials(self.api_key)


@dataclass(frozen=True)
class Configuration:
    """What a gateway listens to, asks and admits.

    Attributes:
        groups: the servers.
        host: the address to listen on.
        port: the port; 0 picks a free one.
        grpc_port: the port of KServe's gRPC API; None turns it off.
        allowed_hosts: see `Server`.
        limits: see `Limits`.
        tls: see `Tls`; None for no encryption.
        api_keys: a file of the keys that requests must show; None for no keys.
        log_requests: whether to log a line for each request.
        tracing: a collector's URL for OTLP over HTTP; None for no traces.
    """

    groups: tuple[ServerGroup, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int | None = None
    allowed_hosts: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    tls: Tls | None = None
    api_keys: Path | None = None
    log_requests: bool = False
    tracing: str | None = None

    def backend(self) -> Servers:
        """Returns the servers as a backend, without connecting.

        Raises:
            ValueError: two groups have a model of the same name.
        """
        return Servers(
            [
                (
                    Replicas([connect(t, group.tls, group.api_key) for t in group.targets]),
                    group.models,
                )
                for group in self.groups
            ]
        )


def read_configuration(path: str | os.PathLike[str]) -> Configuration:
    """Reads a configuration; docs/serving.md shows one.

    Relative paths start at the file's folder.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or a value, or a file that it names, is wrong: the error names
            file, table and key.
    """
    file = Table.read(path)
    api_keys = file.path("api_keys")
    if api_keys is not None:
        try:
            read_keys(api_keys)
        except (OSError, ValueError) as error:
            raise file.error("api_keys", f"is wrong: {error}") from error
    groups = tuple(map(_group, file.tables("servers")))
    if not groups:
        raise ValueError(f"{file.place}: no servers: write a table [[servers]] with addresses")
    names = [name for group in groups for name in group.models or ()]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{file.place}: [[servers]] of two have a model {name!r}: rename one")
    port = _port(file, "port")
    configuration = Configuration(
        groups=groups,
        host=file.take("host", str) or Configuration.host,
        port=Configuration.port if port is None else port,
        grpc_port=_port(file, "grpc_port"),
        allowed_hosts=file.texts("allowed_hosts"),
        limits=_limits(file.table("limits")),
        tls=_tls(file.table("tls")),
        api_keys=api_keys,
        log_requests=file.take("log_requests", bool) or False,
        tracing=_tracing(file.table("tracing")),
    )
    file.end()
    return configuration


def _group(table: Table) -> ServerGroup:
    targets = []
    for address in table.texts("addresses"):
        try:
            targets.append(Target.parse(address))
        except ValueError as error:
            raise table.error("addresses", f"has {error}") from error
    if not targets:
        raise table.error("addresses", 'is missing: write addresses = ["http://host:8501"]')
    names = table.names("models")
    key_file = table.path("api_key_file")
    key = None
    if key_file is not None:
        if not key_file.is_file():
            raise table.error("api_key_file", f"is {key_file}: no such file")
        key = key_file.read_text("utf-8", "replace").strip()
    try:
        group = ServerGroup(
            targets=tuple(targets),
            models=names,
            tls=ClientTls(
                table.path("root_certificates"),
                table.path("client_certificate"),
                table.path("client_key"),
            ),
            api_key=key,
        )
    except (OSError, ValueError) as error:
        raise ValueError(f"{table.place}: {error}") from error
    table.end()
    return group


def _port(table: Table, key: str) -> int | None:
    port = table.take(key, int)
    if port is not None and not 0 <= port < 2**16:
        raise table.error(key, f"is {port}: expected 0 to 65535")
    return port


def _limits(table: Table | None) -> Limits:
    if table is None:
        return Limits()
    defaults = Limits()
    mib = table.take("max_body_mib", float)
    values = {} if mib is None else {"max_body_bytes": int(mib * _MIB)}
    for key in ("max_requests", "max_rows"):
        number = table.take(key, int)
        values[key] = getattr(defaults, key) if number is None else number
    seconds = table.take("timeout_s", float)
    try:
        limits = Limits(**values, timeout_s=defaults.timeout_s if seconds is None else seconds)
    except ValueError as error:
        raise ValueError(f"{table.place}: {error}") from error
    table.end()
    return limits


def _tls(table: Table | None) -> Tls | None:
    if table is None:
        return None
    certificate, key = table.path("certificate"), table.path("key")
    for name, value in (("certificate", certificate), ("key", key)):
        if value is None:
            raise table.error(name, f'is missing: write {name} = "FILE.pem"')
    assert certificate is not None
    assert key is not None
    try:
        tls = Tls(certificate, key, table.path("client_ca"))
    except OSError as error:
        raise ValueError(f"{table.place}: {error}") from error
    table.end()
    return tls


def _tracing(table: Table | None) -> str | None:
    if table is None:
        return None
    endpoint = table.required("endpoint", str)
    try:
        tracing.check_endpoint(endpoint)
    except ValueError as error:
        raise table.error("endpoint", f"is wrong: {error}") from error
    table.end()
    return endpoint
