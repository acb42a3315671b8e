"""The command that answers other APIs' clients: `gateway`."""

import logging
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from keras_transformers.cli.arguments import Command, OptionalFile, argument
from keras_transformers.ranges import PositiveFloat, PositiveInt, Range


@dataclass(frozen=True, kw_only=True)
class Gateway(Command):
    """Answer OpenAI's, Text Embeddings Inference's and KServe's clients, in front of TF Serving.

    Examples:
        keras-transformers gateway http://127.0.0.1:8501 --model smollm2 --model minilm
        keras-transformers gateway 10.0.0.1:8500 10.0.0.2:8500 --model smollm2 --port 80
    """

    servers: Annotated[
        Positional[tuple[str, ...]],
        argument("SERVER ...", "http://host:port for REST, host:port for gRPC; replicas"),
    ]
    model: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(metavar="NAME", help="a model of the servers; the local server tells them itself"),
    ] = ()
    host: str = "127.0.0.1"  # address to listen on
    port: Annotated[int, Range(at_least=0, at_most=65535)] = 8080  # 0 picks a free port
    # of KServe's gRPC API; 0 picks a free port, -1 turns it off
    grpc_port: Annotated[int, Range(at_least=-1, at_most=65535)] = -1
    max_requests: PositiveInt = 64  # maximum requests in progress
    max_body_mib: PositiveFloat = 16.0  # largest request in MiB
    timeout: PositiveFloat = 30.0  # seconds that a request may take
    root_certificates: OptionalFile = None  # PEM file of the authorities to trust, for TLS

    def run(self) -> int:
        """Answers requests until SIGINT or SIGTERM."""
        from keras_transformers.serving import Limits
        from keras_transformers.serving.client.target import Target
        from keras_transformers.serving.client.tls import ClientTls
        from keras_transformers.serving.gateway.process import Gateway as Process
        from keras_transformers.serving.gateway.servers.backend import Servers
        from keras_transformers.serving.gateway.servers.connect import connect
        from keras_transformers.serving.gateway.servers.replicas import Replicas

        if not self.servers:
            raise ValueError("no SERVER: pass http://host:port or host:port")
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
        roots = self.root_certificates
        tls = ClientTls(None if roots is None else Path(roots))
        targets = [Target.parse(server) for server in self.servers]
        replicas = Replicas([connect(target, tls) for target in targets])
        limits = Limits(
            max_body_bytes=int(self.max_body_mib * 1024 * 1024),
            max_requests=self.max_requests,
            timeout_s=self.timeout,
        )
        backend = Servers([(replicas, {name: name for name in self.model} or None)])
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        grpc_port = None if self.grpc_port < 0 else self.grpc_port
        with Process(
            backend, host=self.host, port=self.port, grpc_port=grpc_port, limits=limits
        ) as process:
            also = "" if process.grpc_port is None else f", gRPC {self.host}:{process.grpc_port}"
            print(
                f"keras-transformers gateway: http://{self.host}:{process.port}{also}",
                file=sys.stderr,
                flush=True,
            )
            stopped.wait()
        return 0
