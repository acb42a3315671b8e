"""The command that answers other APIs' clients: `gateway`."""

import dataclasses
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from keras_transformers.cli.arguments import (
    API_KEY,
    Command,
    OptionalFile,
    OptionalText,
    argument,
)
from keras_transformers.ranges import PositiveFloat, PositiveInt, Range

if TYPE_CHECKING:
    from keras_transformers.serving.gateway.configuration import Configuration


@dataclass(frozen=True, kw_only=True)
class Gateway(Command):
    """Answer OpenAI's, Text Embeddings Inference's and KServe's clients, in front of TF Serving.

    Examples:
        keras-transformers gateway http://127.0.0.1:8501 --model smollm2 --model minilm
        keras-transformers gateway 10.0.0.1:8500 10.0.0.2:8500 --model smollm2 --port 80
        keras-transformers gateway --config gateway.toml
    """

    servers: Annotated[
        Positional[tuple[str, ...]],
        argument("[SERVER ...]", "http://host:port for REST, host:port for gRPC; replicas"),
    ] = ()
    config: Annotated[OptionalFile, arg(help="TOML file of all settings, instead of options")] = (
        None
    )
    model: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(metavar="NAME", help="a model of the servers; the local server tells them itself"),
    ] = ()
    host: str = "127.0.0.1"  # address to listen on
    port: Annotated[int, Range(at_least=0, at_most=65535)] = 8080  # 0 picks a free port
    # of KServe's gRPC API; 0 picks a free port, -1 turns it off
    grpc_port: Annotated[int, Range(at_least=-1, at_most=65535)] = -1
    max_requests: PositiveInt = 64  # maximum requests in progress
    max_rows: PositiveInt = 1024  # maximum texts in a request
    max_body_mib: PositiveFloat = 16.0  # largest request in MiB
    timeout: PositiveFloat = 30.0  # seconds that a request may take
    tls_certificate: OptionalFile = None  # PEM file, for this gateway's clients
    tls_key: OptionalFile = None  # PEM file
    tls_client_ca: OptionalFile = None  # PEM file; clients must show a certificate signed by it
    root_certificates: OptionalFile = None  # PEM file of the authorities to trust in the servers
    client_certificate: OptionalFile = None  # PEM file to show to servers that demand one
    client_key: OptionalFile = None  # PEM file
    api_keys: OptionalFile = None  # TOML file of the keys that requests must show
    log_requests: bool = False  # log a line for each request
    tracing: OptionalText = None  # URL of a collector of OpenTelemetry traces, OTLP over HTTP

    def run(self) -> int:
        """Answers requests until SIGINT or SIGTERM."""
        from keras_transformers.serving.gateway.process import Gateway as Process
        from keras_transformers.serving.protocol import tracing
        from keras_transformers.serving.server.logs import log_to_stderr

        settings = self._settings()
        log_to_stderr()
        process = Process(
            settings.backend(),
            host=settings.host,
            port=settings.port,
            grpc_port=settings.grpc_port,
            allowed_hosts=settings.allowed_hosts,
            limits=settings.limits,
            tls=settings.tls,
            api_keys=settings.api_keys,
            log_requests=settings.log_requests,
        )
        with tracing.to_collector(settings.tracing, service="keras-transformers gateway"):
            stopped = threading.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopped.set())
            with process:
                scheme = "http" if settings.tls is None else "https"
                port = process.grpc_port
                also = "" if port is None else f", gRPC {settings.host}:{port}"
                _say(f"{scheme}://{settings.host}:{process.port}{also}")
                stopped.wait()
                _say("stopping after the requests in progress")
        return 0

    def _settings(self) -> "Configuration":
        """Returns the settings of the file, or those of the options."""
        from keras_transformers.cli.serving import tls_files
        from keras_transformers.serving import Limits
        from keras_transformers.serving.client.target import Target
        from keras_transformers.serving.client.tls import ClientTls
        from keras_transformers.serving.gateway.configuration import (
            Configuration,
            ServerGroup,
            read_configuration,
        )

        if self.config is not None:
            others = [
                field.name
                for field in dataclasses.fields(self)
                if field.name not in ("config", "debug")
                and getattr(self, field.name) != field.default
            ]
            if others:
                options = ", ".join(f"--{name.replace('_', '-')}" for name in others)
                raise ValueError(f"--config {self.config} says it all: leave out {options}")
            return read_configuration(self.config)
        files = (self.root_certificates, self.client_certificate, self.client_key)
        group = ServerGroup(
            targets=tuple(map(Target.parse, self.servers)),
            models={name: name for name in self.model} or None,
            tls=ClientTls(*(None if file is None else Path(file) for file in files)),
            api_key=os.environ.get(API_KEY),
        )
        return Configuration(
            groups=(group,),
            host=self.host,
            port=self.port,
            grpc_port=None if self.grpc_port < 0 else self.grpc_port,
            limits=Limits(
                max_body_bytes=int(self.max_body_mib * 1024 * 1024),
                max_rows=self.max_rows,
                max_requests=self.max_requests,
                timeout_s=self.timeout,
            ),
            tls=tls_files(self.tls_certificate, self.tls_key, self.tls_client_ca),
            api_keys=None if self.api_keys is None else Path(self.api_keys),
            log_requests=self.log_requests,
            tracing=self.tracing,
        )


def _say(text: str) -> None:
    print(f"keras-transformers gateway: {text}", file=sys.stderr, flush=True)
