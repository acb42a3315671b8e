"""A gateway's configuration, from a file or from options."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from keras_transformers.cli import main as cli
from keras_transformers.cli.gateway import Gateway as GatewayCommand
from keras_transformers.serving import Limits, ModelSettings, Server
from keras_transformers.serving.client.target import Target
from keras_transformers.serving.gateway.configuration import read_configuration
from keras_transformers.serving.gateway.process import Gateway

ROOT = Path(__file__).parents[3]
DIGEST = "0" * 64
GROUP = '[[servers]]\naddresses = ["http://127.0.0.1:8501"]\n'


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a configuration."""

    def put(text):
        file = tmp_path / "gateway.toml"
        file.write_text(text)
        return file

    return put


def test_everything_in_a_file(write, tmp_path, certificate):
    (tmp_path / "keys.toml").write_text(f'[keys.a]\nsha256 = "{DIGEST}"\n')
    (tmp_path / "key.txt").write_text("secret\n")
    file = write(
        f"""
host = "0.0.0.0"
port = 80
grpc_port = 81
allowed_hosts = ["models.example"]
api_keys = "keys.toml"
log_requests = true

[tls]
certificate = "{certificate.certificate}"
key = "{certificate.key}"
client_ca = "{certificate.certificate}"

[limits]
max_requests = 8
max_body_mib = 2
max_rows = 100
timeout_s = 60

[tracing]
endpoint = "http://127.0.0.1:4318/v1/traces"

[[servers]]
addresses = ["https://10.0.0.1:8501", "grpcs://10.0.0.2:8500"]
models = {{ chat = "smollm2@stable", rerank = "minilm" }}
root_certificates = "{certificate.certificate}"
client_certificate = "{certificate.certificate}"
client_key = "{certificate.key}"
api_key_file = "key.txt"

[[servers]]
addresses = ["127.0.0.1:8500"]
models = ["embedder"]

[[servers]]
addresses = ["http://127.0.0.1:8501"]
"""
    )
    settings = read_configuration(file)
    assert (settings.host, settings.port, settings.grpc_port) == ("0.0.0.0", 80, 81)
    assert settings.allowed_hosts == ("models.example",)
    assert settings.api_keys == tmp_path / "keys.toml"
    assert settings.log_requests
    assert settings.tls.client_ca == certificate.certificate
    assert settings.limits == Limits(
        max_requests=8, max_body_bytes=2 * 1024 * 1024, max_rows=100, timeout_s=60
    )
    assert settings.tracing == "http://127.0.0.1:4318/v1/traces"
    first, second, third = settings.groups
    assert first.targets == tuple(
        map(Target.parse, ("https://10.0.0.1:8501", "grpcs://10.0.0.2:8500"))
    )
    assert first.models == {"chat": "smollm2@stable", "rerank": "minilm"}
    assert (first.tls.key, first.api_key) == (certificate.key, "secret")
    assert (second.models, third.models) == ({"embedder": "embedder"}, None)
    settings.backend()


def test_a_short_file_has_the_defaults(write):
    settings = read_configuration(write(GROUP))
    assert (settings.host, settings.port, settings.grpc_port) == ("127.0.0.1", 8080, None)
    assert (settings.limits, settings.tls, settings.api_keys) == (Limits(), None, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r"no servers: write a table \[\[servers\]\]"),
        ("servers = 3", "servers is 3: expected an array"),
        ("[[servers]]", r"\[\[servers\]\] 1: addresses is missing"),
        (GROUP + '[[servers]]\naddresses = ["a"]', r"\[\[servers\]\] 2: addresses has target 'a'"),
        (GROUP + "models = 3", r"\[\[servers\]\] 1: models is 3: expected a table"),
        (GROUP + "models = [3]", r"\[\[servers\]\] 1: models has 3: expected a string"),
        (GROUP + "[servers.models]\na = 3", r"\[\[servers\]\] 1: models.a is 3"),
        (GROUP + 'models = ["a"]\n' + GROUP + 'models = ["a"]', r"\[\[servers\]\].*model 'a'"),
        (GROUP + 'root_certificates = "gone.pem"', r"\[\[servers\]\] 1: .*gone.pem: no such file"),
        (GROUP + 'client_key = "gone.pem"', r"\[\[servers\]\] 1: client_certificate is None"),
        (GROUP + 'api_key_file = "gone"', r"\[\[servers\]\] 1: api_key_file is .*gone: no such"),
        (GROUP + 'api_key = "secret"', r"\[\[servers\]\] 1: api_key is unknown: the keys are addr"),
        ("hots = 'a'\n" + GROUP, ": hots is unknown: the keys are .*host"),
        ("port = 70000\n" + GROUP, ": port is 70000: expected 0 to 65535"),
        ("port = '80'\n" + GROUP, ": port is '80': expected an integer"),
        ("api_keys = 'gone.toml'\n" + GROUP, ": api_keys is wrong: .*gone.toml: no such file"),
        (GROUP + "[limits]\nmax_rows = 0", r"\[limits\]: max_rows is 0"),
        (GROUP + "[limits]\nmax_rows = true", r"\[limits\]: max_rows is True: expected an integer"),
        (GROUP + "[limits]\ntimeout_s = nan", r"\[limits\]: timeout_s is nan"),
        (GROUP + "[tls]\nkey = 'a'", r"\[tls\]: certificate is missing"),
        (
            GROUP + "[tracing]\nendpoint = 'a:1'",
            r"\[tracing\]: endpoint is wrong: .*'a:1'.*http://",
        ),
        (GROUP + "[tls]\nkey = 'a'\ncertificate = 'gone.pem'", r"\[tls\]: .*gone.pem: no such"),
        (GROUP + "[tracing]\n", r"\[tracing\]: endpoint is missing"),
        (GROUP + "[tracing]\nurl = 'a'\nendpoint = 'http://b'", r"\[tracing\]: url is unknown"),
        ("[tls", "not TOML: "),
    ],
)
def test_a_wrong_value_is_named_with_its_place(write, text, problem):
    file = write(text)
    with pytest.raises(ValueError, match=problem) as caught:
        read_configuration(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "secret" not in str(caught.value)


def test_options_beside_a_file_are_refused(write, capsys):
    file = write(GROUP)
    assert cli.main(["gateway", "--config", str(file), "--port", "9", "--api-keys", "a"]) == 2
    assert "leave out --port, --api-keys" in capsys.readouterr().err
    assert cli.main(["gateway"]) == 2
    assert "http://host:port" in capsys.readouterr().err


def test_options_of_the_command_are_the_limits():
    command = GatewayCommand(
        servers=("127.0.0.1:8500",), max_rows=7, max_requests=3, max_body_mib=0.5, timeout=9.0
    )
    limits = Limits(max_rows=7, max_requests=3, max_body_bytes=512 * 1024, timeout_s=9.0)
    assert command._settings().limits == limits


@pytest.fixture(scope="module")
def server(publish, tmp_path_factory):
    """Two versions of a model, one of them labelled stable."""
    base = tmp_path_factory.mktemp("plus")
    publish(base, 1, 2.0)
    publish(base, 2, 3.0)
    from keras_transformers.saved_model.models_config import VersionPolicy

    settings = ModelSettings("plus", base, VersionPolicy("all"), {"stable": 1})
    with Server([settings], rest_port=0, grpc_port=None) as running:
        assert running.wait_until_loaded(60)
        yield f"http://127.0.0.1:{running.rest_port}"


def infer(client, model):
    body = {
        "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}],
        "parameters": {"signature_name": "rows"},
    }
    answer = client.post(f"/v2/models/{model}/infer", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["outputs"][0]["data"]


def test_aliases_lead_to_models_versions_and_labels(write, server):
    names = '{ new = "plus", old = "plus@stable", first = "plus@1" }'
    settings = read_configuration(write(f"[[servers]]\naddresses = ['{server}']\nmodels = {names}"))
    with (
        Gateway(settings.backend(), port=0) as running,
        httpx.Client(base_url=f"http://127.0.0.1:{running.port}", timeout=20) as client,
    ):
        assert [infer(client, name) for name in ("new", "old", "first")] == [[3.5], [2.5], [2.5]]
        assert infer(client, "new@stable") == [2.5]
        names = [entry["id"] for entry in client.get("/v1/models").json()["data"]]
        assert names == ["first", "new", "old"]


def test_the_gateways_own_tls(write, server, certificate):
    text = f"[[servers]]\naddresses = ['{server}']\n[tls]\n"
    text += f"certificate = '{certificate.certificate}'\nkey = '{certificate.key}'"
    settings = read_configuration(write(text))
    with Gateway(settings.backend(), port=0, tls=settings.tls) as running:
        url = f"https://localhost:{running.port}/v1/models"
        import ssl

        context = ssl.create_default_context(cafile=certificate.certificate)
        assert httpx.get(url, verify=context).json()["data"][0]["id"] == "plus"
        refused = httpx.get(f"http://localhost:{running.port}/v1/models")
        assert (refused.status_code, "https://" in refused.text) == (400, True)


@pytest.mark.slow
def test_the_command_until_it_is_stopped(write, server):
    file = write(f"port = 0\nlog_requests = true\n[[servers]]\naddresses = ['{server}']\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "keras_transformers.cli.main", "gateway", "--config", file],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        line = next(line for line in process.stderr if "http://" in line)
        url = re.search(r"(http://127\.0\.0\.1:\d+)", line)[1]
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.get(f"{url}/v1/models", headers={"x-request-id": "order-1"}, timeout=20)
        assert answer.json()["data"][0]["id"] == "plus"
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(60) == 0
        assert "GET /v1/models: 200" in rest
        assert "[request order-1]" in rest
        assert "stopping" in rest
        assert "Traceback" not in rest
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
