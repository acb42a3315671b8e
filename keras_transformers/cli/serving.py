"""Commands that serve models and query model servers: `serve` and `ask`."""

import dataclasses
import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.conf import Positional, UseAppendAction, arg

from keras_transformers.cli.arguments import (
    API_KEY,
    Command,
    OptionalFile,
    OptionalText,
    Rows,
    Texts,
    argument,
    batches,
    stdin_lines,
)
from keras_transformers.ranges import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Range,
)

if TYPE_CHECKING:
    from keras_transformers.serving.server.settings import ModelSettings

_which_version = tyro.conf.create_mutex_group(required=False)
_Port = Annotated[int, Range(at_least=-1, at_most=65535)]


@dataclass(frozen=True, kw_only=True)
class Serve(Command):
    """Serve exports with TF Serving's REST and gRPC APIs, for development.

    Examples:
        keras-transformers serve saved_models/translate_de_en
        keras-transformers serve german=saved_models/translate_de_en --rest-port 8080 --grpc-port -1
        keras-transformers serve --config models.config
    """

    base_paths: Annotated[
        Positional[tuple[str, ...]],
        argument("[BASE_PATH ...]", "folders of version folders; NAME=BASE_PATH names one"),
    ] = ()
    config: OptionalFile = None  # TF Serving's model config file, instead of BASE_PATHs
    host: str = "127.0.0.1"  # address to listen on
    allowed_host: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(metavar="NAME", help="Host name to accept in REST requests; * for all"),
    ] = ()
    rest_port: _Port = 8501  # 0 picks a free port, -1 turns REST off
    grpc_port: _Port = 8500  # 0 picks a free port, -1 turns gRPC off
    no_batching: bool = False  # do not batch requests
    max_batch_size: PositiveInt = 32  # maximum rows in a batch
    max_batch_tokens: PositiveInt = 1024  # maximum tokens in a batch of texts, padding included
    batch_timeout: NonNegativeFloat = 1.0  # milliseconds that a request waits for others
    allowed_batch_sizes: Annotated[
        Rows, arg(help="pad batches to one of these; ascending, up to --max-batch-size")
    ] = ()
    num_threads: PositiveInt = 2  # batches to run in parallel, besides long runs
    num_long_runs: PositiveInt = 2  # runs over 0.25 s, such as of language models, in parallel
    max_requests: PositiveInt = 64  # maximum requests in progress; others get 429
    max_rows: PositiveInt = 1024  # maximum rows in a request
    max_body_mib: PositiveFloat = 16.0  # largest request in MiB
    max_cache_mib: PositiveFloat = 1024.0  # a model's memory for the keys and values of texts
    max_new_tokens: PositiveInt = 4096  # maximum tokens that a request may ask a model to write
    timeout: PositiveFloat = 30.0  # seconds that a request may take
    poll_interval: PositiveFloat = 1.0  # seconds between checks for new versions
    tls_certificate: OptionalFile = None  # PEM file, for both protocols
    tls_key: OptionalFile = None  # PEM file
    tls_client_ca: OptionalFile = None  # PEM file; clients must show a certificate signed by it
    api_keys: OptionalFile = None  # TOML file of the keys that requests must show
    log_requests: bool = False  # log a line for each REST request
    tracing: OptionalText = None  # URL of a collector of OpenTelemetry traces, OTLP over HTTP

    def run(self) -> int:
        """Serves until SIGINT or SIGTERM."""
        from keras_transformers.serving import BatchingOptions, Limits, Server
        from keras_transformers.serving.protocol import tracing
        from keras_transformers.serving.server.logs import log_to_stderr

        log_to_stderr()
        limits = Limits(
            max_body_bytes=int(self.max_body_mib * 1024 * 1024),
            max_rows=self.max_rows,
            max_requests=self.max_requests,
            timeout_s=self.timeout,
            max_new_tokens=self.max_new_tokens,
        )
        batching = BatchingOptions(
            enabled=not self.no_batching,
            max_batch_size=self.max_batch_size,
            max_cache_bytes=int(self.max_cache_mib * 1024 * 1024),
            max_batch_tokens=self.max_batch_tokens,
            batch_timeout_s=self.batch_timeout / 1000,
            allowed_batch_sizes=self.allowed_batch_sizes or None,
            num_threads=self.num_threads,
            num_long_runs=self.num_long_runs,
        )
        server = Server(
            self._models(),
            host=self.host,
            allowed_hosts=self.allowed_host,
            rest_port=self.rest_port if self.rest_port >= 0 else None,
            grpc_port=self.grpc_port if self.grpc_port >= 0 else None,
            limits=limits,
            batching=batching,
            tls=tls_files(self.tls_certificate, self.tls_key, self.tls_client_ca),
            poll_interval_s=self.poll_interval,
            api_keys=self.api_keys,
            log_requests=self.log_requests,
        )
        with tracing.to_collector(self.tracing, service="keras-transformers serve"):
            return _run_until_stopped(
                server,
                self.host,
                encrypted=self.tls_certificate is not None,
                has_keys=self.api_keys is not None,
            )

    def _models(self) -> "list[ModelSettings] | Callable[[], list[ModelSettings]]":
        """Returns the models to serve, or a function that rereads them from the config file."""
        from keras_transformers.serving.server import settings

        if bool(self.config) == bool(self.base_paths):
            raise ValueError("pass base paths, or --config FILE, but not both")
        if self.config:
            return functools.partial(settings.read_model_config, self.config)
        models = [settings.model_settings(path) for path in self.base_paths]
        return settings.check_models(models, "the command line")


def tls_files(certificate: str | None, key: str | None, client_ca: str | None) -> Any:
    """Returns a server's files for TLS; None if no option names one."""
    from keras_transformers.serving import Tls

    if (certificate is None) != (key is None):
        raise ValueError("--tls-certificate and --tls-key go together")
    if certificate is None or key is None:
        if client_ca is not None:
            raise ValueError("--tls-client-ca needs --tls-certificate and --tls-key")
        return None
    return Tls(Path(certificate), Path(key), None if client_ca is None else Path(client_ca))


@dataclass(frozen=True, kw_only=True)
class Ask(Command):
    """Query a model server; print JSON lines.

    Examples:
        keras-transformers ask http://127.0.0.1:8501 "Ein Hund." --model translate_de_en
        keras-transformers ask 127.0.0.1:8500 "Good." --model sentiment --label stable
        keras-transformers ask http://127.0.0.1:8501 "What is rain?" --model smollm2 --chat
        keras-transformers ask http://127.0.0.1:8501 "What is rain?" --model smollm2 --chat --stream
        keras-transformers ask kserve+http://127.0.0.1:8080 "Good." --model sentiment
    """

    target: Annotated[
        Positional[str],
        argument(
            "TARGET",
            "http://host:port for REST, host:port for gRPC; with TLS https:// and grpcs://; "
            "kserve+ before it for a server of KServe's protocol",
        ),
    ]
    texts: Annotated[
        Positional[tuple[str, ...]], argument("[TEXT ...]", "default: the lines of stdin")
    ] = ()
    text_b: Texts = ()  # the second text of each pair
    choice: Texts = ()  # a choice, or a document, for the text; repeat for each
    model: str  # its name on the server
    version: Annotated[
        NonNegativeInt | None,
        _which_version,
        argument("INT", "the version's number; default: the latest"),
        arg(constructor=int),
    ] = None
    label: Annotated[OptionalText, _which_version, arg(help="the version's label")] = None
    signature: str = "serving_default"  # the signature to run
    chat: bool = False  # send each text as a user's message to a chat model
    system: OptionalText = None  # a system message before each text; implies --chat
    stream: bool = False  # print a language model's text as it comes, instead of JSON
    timeout: PositiveFloat = 30.0  # seconds that a request may take
    root_certificates: OptionalFile = None  # PEM file of the authorities to trust, for TLS
    client_certificate: OptionalFile = None  # PEM file to show to a server that demands one
    client_key: OptionalFile = None  # PEM file

    def run(self) -> int:
        """Prints one JSON object per text."""
        from keras_transformers.serving import Client
        from keras_transformers.tasks.texts import text_inputs

        talks = self.chat or self.system is not None
        option = "--chat" if talks else "--stream"
        if (talks or self.stream) and (
            self.text_b or self.choice or self.signature != "serving_default"
        ):
            raise ValueError(
                f"{option} takes only texts: leave out --text-b, --choice, --signature"
            )
        with Client(
            self.target,
            timeout_s=self.timeout,
            root_certificates=self.root_certificates,
            client_certificate=self.client_certificate,
            client_key=self.client_key,
            api_key=os.environ.get(API_KEY),
        ) as client:
            which: Any = {"model": self.model, "version": self.version, "label": self.label}
            names: tuple[str, ...] = ()
            if talks or self.stream:
                return self._talk(client, which, chat=talks)
            if not self.texts:  # how to read a line depends on the model
                signature = client.signatures(**which).get(self.signature)
                names = text_inputs(list(signature.inputs)) if signature else ()
            for columns in batches(self.texts, self.text_b, self.choice, names=names):
                for row in client.rows(*columns, **which, signature_name=self.signature):
                    print(json.dumps(row, ensure_ascii=False), flush=True)
        return 0

    def _talk(self, client: Any, which: Mapping[str, Any], *, chat: bool) -> int:
        """Prints the answer to each text, as a separate prompt or conversation."""
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        for text in self.texts or stdin_lines():
            messages = [*first, {"role": "user", "content": text}]
            if not self.stream:
                answer = client.chat(messages, **which)
                print(json.dumps(dataclasses.asdict(answer), ensure_ascii=False), flush=True)
                continue
            pieces = client.chat(messages, **which, stream=True) if chat else None
            for piece in pieces or client.stream(text, **which):
                print(piece, end="", flush=True)
            print(flush=True)
        return 0


def _run_until_stopped(server: Any, host: str, *, encrypted: bool, has_keys: bool) -> int:
    from keras_transformers.serving.server.hosts import is_loopback

    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    _say("a server for development and small use; TF Serving is the production server")
    missing = [] if has_keys else ["no authentication"]
    missing += [] if encrypted else ["no encryption"]
    if missing and not is_loopback(host):
        _say(f"other machines can reach {host}: there is {' and '.join(missing)}")
    with server:
        if server.rest_port is not None:
            _say(f"REST on {'https' if encrypted else 'http'}://{host}:{server.rest_port}")
        if server.grpc_port is not None:
            _say(f"gRPC on {host}:{server.grpc_port}")
        while not stopped.is_set() and not server.wait_until_loaded(0.2):
            if server.engine.models.wait_for_first_look(0):
                _say("not ready: a model has no working version; looking for new ones")
                break
        if not stopped.is_set() and server.engine.models.is_ready():
            _say(f"ready: {', '.join(server.engine.models.names)}")
        stopped.wait()
        _say("stopping after the requests in progress")
    return 0


def _say(text: str) -> None:
    print(f"keras-transformers serve: {text}", file=sys.stderr, flush=True)
