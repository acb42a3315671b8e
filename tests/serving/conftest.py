"""The server of half_plus_two, one of the trained translator, and certificates."""

import os
import shutil
import subprocess
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import grpc
import pytest
from half_plus_two import channel, half_plus, publish, rest, server  # noqa: F401

from keras_transformers.saved_model.models_config import VersionPolicy
from keras_transformers.serving import Client, Limits, ModelSettings, Server, Tls

TRANSLATOR = Path(__file__).parents[2] / "saved_models" / "translate_de_en"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for localhost and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    return Tls(certificate, key)


@pytest.fixture(scope="session")
def translator():
    """The URL of a server with the trained translator from this repository."""
    if not TRANSLATOR.is_dir():
        pytest.skip("the model is not here")
    published = VersionPolicy("specific", versions=(1,))
    settings = [ModelSettings(TRANSLATOR.name, TRANSLATOR, published)]
    limits = Limits(timeout_s=300.0)
    with Server(settings, rest_port=0, grpc_port=None, limits=limits) as running:
        assert running.wait_until_loaded(120)
        url = f"http://127.0.0.1:{running.rest_port}"
        with Client(url, timeout_s=300) as client:
            for name in ("serving_default", "n_best"):  # the first answer of each is slow
                client.rows(["Ein Hund ."], model=TRANSLATOR.name, signature_name=name)
        yield url


@pytest.fixture(scope="session")
def channel_to():
    """Returns a function that opens a gRPC channel to a server."""
    return lambda to: grpc.insecure_channel(f"127.0.0.1:{to.grpc_port}")
