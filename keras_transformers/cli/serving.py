"""Commands that serve models and query model servers: `serve` and `ask`."""

import dataclasses
import functools
import json
import logging
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
    max_new_tokens: PositiveInt = 4096  # maximum tokens that a request may ask a model to write
    timeout: PositiveFloat = 30.0  # seconds that a request may take
    poll_interval: PositiveFloat = 1.0  # seconds between checks for new versions
    tls_certificate: OptionalFile = None  # PEM file, for both protocols
    tls_key: OptionalFile = None  # PEM file
    tls_client_ca: OptionalFile = None  # PEM file; clients must show a certificate signed by it

    def run(self) -> int:
        """Serves until SIGINT or SIGTERM."""
        from keras_transformers.serving import BatchingOptions, Limits, Server

        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
        for name in ("tensorflow", "uvicorn"):  # their start-up logs are only noise here
            logging.getLogger(name).setLevel(logging.ERROR)
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
            tls=self._tls(),
            poll_interval_s=self.poll_interval,
        )
        return _run_until_stopped(server, self.host, encrypted=self.tls_certificate is not None)

    def _models(self) -> "list[ModelSettings] | Callable[[], list[ModelSettings]]":
        """Returns the models to serve, or a function that rereads them from the config file."""
        from keras_transformers.serving.server import settings

        if bool(self.config) == bool(self.base_paths):
            raise ValueError("pass base paths, or --config FILE, but not both")
        if self.config:
            return functools.partial(settings.read_model_config, self.config)
        models = [settings.model_settings(path) for path in self.base_paths]
        return settings.check_models(models, "the command line")

    def _tls(self) -> Any:
        from keras_transformers.serving import Tls

        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("--tls-certificate and --tls-key go together")
        if self.tls_certificate is None or self.tls_key is None:
            if self.tls_client_ca is not None:
                raise ValueError("--tls-client-ca needs --tls-certificate and --tls-key")
            return None
        return Tls(
            Path(self.tls_certificate),
            Path(self.tls_key),
            None if self.tls_client_ca is None else Path(self.tls_client_ca),
        )


@dataclass(frozen=True, kw_only=True)
class Ask(Command):
    """Query a model server; print JSON lines.

    Examples:
        keras-transformers ask http://127.0.0.1:8501 "Ein Hund." --model translate_de_en
        keras-transformers ask 127.0.0.1:8500 "Good." --model sentiment --label stable
        keras-transformers ask http://127.0.0.1:8501 "What is rain?" --model smollm2 --chat
    """

    target: Annotated[
        Positional[str], argument("TARGET", "http://host:port for REST, host:port for gRPC")
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
    timeout: PositiveFloat = 30.0  # seconds that a request may take
    root_certificates: OptionalFile = None  # PEM file of the authorities to trust, for TLS

    def run(self) -> int:
        """Prints one JSON object per text."""
        from keras_transformers.serving import Client
        from keras_transformers.tasks.texts import text_inputs

        talks = self.chat or self.system is not None
        if talks and (self.text_b or self.choice or self.signature != "serving_default"):
            raise ValueError("--chat takes only texts: leave out --text-b, --choice, --signature")
        with Client(
            self.target, timeout_s=self.timeout, root_certificates=self.root_certificates
        ) as client:
            which: Any = {"model": self.model, "version": self.version, "label": self.label}
            names: tuple[str, ...] = ()
            if talks:
                return self._talk(client, which)
            if not self.texts:  # how to read a line depends on the model
                signature = client.signatures(**which).get(self.signature)
                names = text_inputs(list(signature.inputs)) if signature else ()
            for columns in batches(self.texts, self.text_b, self.choice, names=names):
                for row in client.rows(*columns, **which, signature_name=self.signature):
                    print(json.dumps(row, ensure_ascii=False), flush=True)
        return 0

    def _talk(self, client: Any, which: Mapping[str, Any]) -> int:
        """Prints the answer to each text, as a separate conversation."""
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        for text in self.texts or stdin_lines():
            answer = client.chat([*first, {"role": "user", "content": text}], **which)
            print(json.dumps(dataclasses.asdict(answer), ensure_ascii=False), flush=True)
        return 0


def _run_until_stopped(server: Any, host: str, *, encrypted: bool) -> int:
    from keras_transformers.serving.server.hosts import is_loopback

    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    _say("a server for development and small use; TF Serving is the production server")
    if not is_loopback(host):
        _say(
            f"other machines can reach {host}: there is no authentication"
            + ("" if encrypted else " and no encryption")
        )
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
