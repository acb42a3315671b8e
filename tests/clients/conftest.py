"""Servers for the clients of other APIs: the local server, and the gateway in front of one.

TF Serving has no package to install here, so the server behind the gateway is the local one, which
has the same REST and gRPC APIs.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest
import tiny

from keras_transformers.serving import Client

TASKS = ("classification", "embedding", "generation", "reranking")


@dataclass(frozen=True)
class Model:
    """The address of the other APIs, and a client of TF Serving's for the answers to expect."""

    url: str
    grpc: str  # host:port of the Open Inference Protocol
    client: Client


@contextlib.contextmanager
def started(ready, *command):
    """Runs a command until the block ends; returns the addresses that it prints until `ready`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "keras_transformers.cli.main", *map(str, command)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TF_NUM_INTRAOP_THREADS": "1"},
    )
    told = ""
    try:
        for line in process.stderr:
            told += line
            if ready in line:
                break
        assert ready in told, told
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield re.findall(r"(?:https?://)?127[.]0[.]0[.]1:\d+", told)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def local():
    """The addresses of a local server with a model of each kind, and `talker`, which chats."""
    bases = [tiny.exported_talker().parent, *(tiny.exported(task).parent for task in TASKS)]
    ports = ("--rest-port", "0", "--grpc-port", "0")
    command = ("serve", *bases, *ports, "--timeout", "120")
    with started("serve: ready", *command) as addresses:
        yield addresses


@pytest.fixture(scope="session", params=["serve", "gateway by REST", "gateway by gRPC"])
def served(request, local):
    """The models behind the other APIs: each of the ways to have them."""
    rest, grpc = local
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(rest, timeout_s=120))
        addresses = rest, grpc
        if request.param != "serve":
            backend = rest if request.param.endswith("REST") else grpc
            names = [f"--model={name}" for name in (*TASKS, "talker")]
            ports = ("--port", "0", "--grpc-port", "0")
            command = ("gateway", backend, *names, *ports, "--timeout", "120")
            addresses = stack.enter_context(started("gateway: http", *command))
        yield Model(*addresses, client)
