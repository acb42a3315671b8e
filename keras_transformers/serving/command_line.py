"""The commands `serve` and `ask`; `cli` hangs them beside its own."""

import argparse
import functools
import io
import itertools
import json
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def add_parsers(commands: Any) -> None:
    """Adds `serve` and `ask` to a parser's commands.

    Args:
        commands: what `ArgumentParser.add_subparsers` returned.
    """
    serve = commands.add_parser(
        "serve", help="TF Serving's REST and gRPC APIs over exports, for development"
    )
    serve.add_argument(
        "base_paths",
        nargs="*",
        metavar="BASE_PATH",
        help="a folder of version folders, or NAME=BASE_PATH; the folder's name by default",
    )
    serve.add_argument("--config", help="TF Serving's model config file, instead of base paths")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    serve.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="REST requests may call the server by, besides its own; may be repeated, * for all",
    )
    serve.add_argument("--rest-port", type=int, default=8501, help="8501; 0 a free one, -1 none")
    serve.add_argument("--grpc-port", type=int, default=8500, help="8500; 0 a free one, -1 none")
    _add_batching(serve)
    _add_limits(serve)
    serve.add_argument("--poll-interval", type=float, default=1.0, help="s between looks (1)")
    serve.add_argument("--tls-certificate", type=Path, help="PEM file; for both protocols")
    serve.add_argument("--tls-key", type=Path, help="PEM file")
    serve.add_argument("--tls-client-ca", type=Path, help="PEM file; clients must show one of its")
    serve.set_defaults(run=_serve)

    ask = commands.add_parser("ask", help="ask a model server, JSON lines out")
    ask.add_argument("target", help="http://host:port for REST, host:port for gRPC")
    ask.add_argument("texts", nargs="*", metavar="TEXT", help="stdin's lines if absent")
    ask.add_argument("--text-b", action="append", help="the second text of each pair")
    ask.add_argument("--model", required=True, help="its name on the server")
    which = ask.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, help="its number; the latest if absent")
    which.add_argument("--label", help="of a version")
    ask.add_argument("--signature", default="serving_default", help="which of its signatures")
    ask.add_argument("--timeout", type=float, default=30.0, help="seconds a request (30)")
    ask.add_argument("--root-certificates", help="PEM file to trust, for TLS")
    ask.set_defaults(run=_ask)


def _add_batching(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--no-batching", action="store_true", help="run every request alone")
    serve.add_argument("--max-batch-size", type=int, default=32, help="rows of a batch (32)")
    serve.add_argument(
        "--batch-timeout", type=float, default=1.0, help="ms that a request waits for others (1)"
    )
    serve.add_argument(
        "--allowed-batch-sizes",
        type=int,
        nargs="+",
        metavar="ROWS",
        help="fill batches up to one of these; ascending, the last is --max-batch-size",
    )
    serve.add_argument("--num-threads", type=int, default=2, help="batches at a time (2)")


def _add_limits(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--max-requests", type=int, default=64, help="under way at a time; others get 429 (64)"
    )
    serve.add_argument("--max-rows", type=int, default=1024, help="rows of a request (1024)")
    serve.add_argument("--max-body-mib", type=float, default=16.0, help="of a request (16)")
    serve.add_argument("--timeout", type=float, default=30.0, help="seconds of a request (30)")


def _serve(parsed: argparse.Namespace) -> int:
    from keras_transformers.serving import BatchingOptions, Limits, Server

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("tensorflow", "uvicorn"):  # what they tell of each start is of no use here
        logging.getLogger(name).setLevel(logging.ERROR)
    limits = Limits(
        max_body_bytes=int(parsed.max_body_mib * 1024 * 1024),
        max_rows=parsed.max_rows,
        max_requests=parsed.max_requests,
        timeout_s=parsed.timeout,
    )
    sizes = parsed.allowed_batch_sizes
    batching = BatchingOptions(
        enabled=not parsed.no_batching,
        max_batch_size=parsed.max_batch_size,
        batch_timeout_s=parsed.batch_timeout / 1000,
        allowed_batch_sizes=tuple(sizes) if sizes else None,
        num_threads=parsed.num_threads,
    )
    server = Server(
        _models(parsed),
        host=parsed.host,
        allowed_hosts=parsed.allowed_host,
        rest_port=parsed.rest_port if parsed.rest_port >= 0 else None,
        grpc_port=parsed.grpc_port if parsed.grpc_port >= 0 else None,
        limits=limits,
        batching=batching,
        tls=_tls(parsed),
        poll_interval_s=parsed.poll_interval,
    )
    return _run_until_told(server, parsed.host, encrypted=parsed.tls_certificate is not None)


def _models(parsed: argparse.Namespace) -> Any:
    """What to serve: a list, or what reads the config file anew."""
    from keras_transformers.serving.server.settings import (
        check_models,
        model_settings,
        read_model_config,
    )

    if bool(parsed.config) == bool(parsed.base_paths):
        raise ValueError("give base paths, or --config FILE, and not both")
    if not parsed.config:
        models = [model_settings(path) for path in parsed.base_paths]
        return check_models(models, "the command line")
    return functools.partial(read_model_config, parsed.config)


def _tls(parsed: argparse.Namespace) -> Any:
    from keras_transformers.serving import Tls

    if (parsed.tls_certificate is None) != (parsed.tls_key is None):
        raise ValueError("--tls-certificate and --tls-key go together")
    if parsed.tls_certificate is None:
        if parsed.tls_client_ca is not None:
            raise ValueError("--tls-client-ca needs --tls-certificate and --tls-key")
        return None
    return Tls(parsed.tls_certificate, parsed.tls_key, parsed.tls_client_ca)


def _run_until_told(server: Any, host: str, *, encrypted: bool) -> int:
    from keras_transformers.serving.server.hosts import is_loopback

    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    _tell("a server for development and small use; TF Serving is the production server")
    if not is_loopback(host):
        _tell(
            f"others can reach {host}: nobody is asked who they are"
            + ("" if encrypted else ", and nothing is encrypted")
        )
    with server:
        if server.rest_port is not None:
            _tell(f"REST on {'https' if encrypted else 'http'}://{host}:{server.rest_port}")
        if server.grpc_port is not None:
            _tell(f"gRPC on {host}:{server.grpc_port}")
        while not told.is_set() and not server.wait_until_loaded(0.2):
            if server.engine.models.wait_for_first_look(0):
                _tell("not ready: a model has no version that answers; looking for new ones")
                break
        if not told.is_set() and server.engine.models.is_ready():
            _tell(f"ready: {', '.join(server.engine.models.names)}")
        told.wait()
        _tell("stopping; requests under way are answered")
    return 0


def _tell(text: str) -> None:
    print(f"keras-transformers serve: {text}", file=sys.stderr, flush=True)


def _ask(parsed: argparse.Namespace) -> int:
    from keras_transformers.serving import Client

    if parsed.text_b and len(parsed.text_b) != len(parsed.texts):
        raise ValueError(
            f"{len(parsed.texts)} texts and {len(parsed.text_b)} --text-b: give one of each a pair"
        )
    with Client(
        parsed.target, timeout_s=parsed.timeout, root_certificates=parsed.root_certificates
    ) as client:
        for batch in _batches(parsed):
            columns = [list(column) for column in zip(*batch, strict=True)]
            for row in client.rows(
                *columns,
                model=parsed.model,
                version=parsed.version,
                label=parsed.label,
                signature_name=parsed.signature,
            ):
                print(json.dumps(row, ensure_ascii=False), flush=True)
    return 0


def _batches(parsed: argparse.Namespace, size: int = 32) -> Iterator[list[list[str]]]:
    """Rows of one text or two: the command line's, or stdin's, a tab between the two of a pair."""
    if parsed.texts:
        columns = [parsed.texts] + ([parsed.text_b] if parsed.text_b else [])
        yield [list(row) for row in zip(*columns, strict=True)]
        return
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    width = None
    rows = enumerate((line.rstrip("\r\n").split("\t") for line in sys.stdin), start=1)
    while batch := list(itertools.islice(rows, size)):
        for number, row in batch:
            width = width or len(row)
            if len(row) != width or width > 2:
                raise ValueError(
                    f"stdin:{number}: {len(row)} fields; every line must be `text`, or every line "
                    "`text<TAB>text_b`"
                )
        yield [row for _, row in batch]
