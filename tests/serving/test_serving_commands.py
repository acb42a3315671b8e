import io
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import grpc
import httpx
import pytest
from checks import says

from keras_transformers.cli.main import parse
from keras_transformers.serving import Client, ModelSettings, RequestError, Server, Tls

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return parse([str(argument) for argument in arguments]).run()


def lines(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(params=["rest", "grpc"])
def target(request, server):
    rest, grpc = f"http://127.0.0.1:{server.rest_port}", f"127.0.0.1:{server.grpc_port}"
    return rest if request.param == "rest" else grpc


def test_ask(target, capsys):
    options = ("--model", "half_plus_two", "--signature")
    assert run("ask", target, "ein Hund", "zwei", *options, "text") == 0
    assert lines(capsys) == [
        {"score": 8.0, "translation": "EIN HUND"},
        {"score": 4.0, "translation": "ZWEI"},
    ]
    pairs = ("a", "b", "--text-b", "a", "--text-b", "c")
    assert run("ask", target, *pairs, "--label", "Version_Label", *options, "pair") == 0
    assert lines(capsys) == [{"score": 1.0}, {"score": 0.0}]


def test_ask_reads_stdin(server, capsys, monkeypatch):
    data = b"a\ta\n" * 40 + b"\xff\tb\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    target = f"http://127.0.0.1:{server.rest_port}"
    assert run("ask", target, "--model", "half_plus_two", "--signature", "pair") == 0
    assert [row["score"] for row in lines(capsys)] == [1.0] * 40 + [0.0]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\nc\n")))
    with pytest.raises(ValueError, match="stdin:2: 1 fields"):
        run("ask", target, "--model", "half_plus_two", "--signature", "pair")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("ask", "http://h:1", "a", "b", "--text-b", "c", "--model", "m"),
            "texts: 2, --text-b: 1",
        ),
        (("ask", "nowhere", "a", "--model", "m"), "pass http://host:port"),
        (("serve",), "pass base paths, or --config FILE"),
        (("serve", "a", "--config", "b"), "not both"),
        (("serve", "nowhere"), "no such folder"),
        (("serve", "--config", "nowhere"), "no such file"),
        (("serve", ".", "--rest-port", "-1", "--grpc-port", "-1"), "pass at least one"),
        (("serve", ".", "--tls-key", "k"), "go together"),
        (("serve", ".", "--tls-certificate", "c", "--tls-key", "k"), "c: no such file"),
        (("serve", ".", "--max-requests", "0"), "max_requests is 0"),
        (("serve", ".", "--timeout", "inf"), "timeout_s is inf"),
        (("serve", ".", "--poll-interval", "0"), "poll_interval_s is 0"),
        (("serve", ".", "--rest-port", "65536"), "port 65536: expected 0 to 65535"),
        (("serve", ".", "--grpc-port", "99999"), "port 99999: expected 0 to 65535"),
        (("serve", ".", "--allowed-batch-sizes", "4", "8"), "end with max_batch_size 32"),
    ],
)
def test_arguments_that_do_not_fit(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError), match=message):
        run(*arguments)


def test_a_port_that_is_taken(server, tmp_path):
    settings = [ModelSettings("m", tmp_path)]
    with pytest.raises(OSError, match=f"127.0.0.1 port {server.rest_port}"):
        Server(settings, rest_port=server.rest_port, grpc_port=None)
    with pytest.raises(OSError, match="cannot listen on .* for gRPC"):
        Server(settings, rest_port=None, grpc_port=server.grpc_port)


@pytest.mark.slow
def test_serve_until_it_is_reported_to_stop(publish, tmp_path):
    base = tmp_path / "plus"
    base.mkdir()
    publish(base, 4, 2.0)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "keras_transformers.cli.main",
            "serve",
            f"half={base}",
            "--rest-port=0",
            "--grpc-port=0",
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    try:
        told = []
        for line in process.stderr:
            told.append(line)
            if "ready" in line:
                break
        text = "".join(told)
        assert "TF Serving is the production server" in text
        assert "ready: half" in text
        url = re.search(r"REST on (http://127\.0\.0\.1:\d+)", text)[1]
        with Client(url) as client:
            assert client.predict({"x": [1.0]}, model="half")["y"].tolist() == [2.5]
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(60) == 0
        assert "stopping" in rest
        assert "Traceback" not in text + rest
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_encrypted_connections(publish, tmp_path, certificate):
    publish(tmp_path, 1, 2.0)
    settings = [ModelSettings("m", tmp_path)]
    with Server(settings, rest_port=0, grpc_port=0, tls=certificate) as server:
        assert server.wait_until_loaded(60)
        roots = str(certificate.certificate)
        for target in (
            f"https://localhost:{server.rest_port}",
            f"grpcs://localhost:{server.grpc_port}",
        ):
            with Client(target, root_certificates=roots) as client:
                assert client.predict({"x": [1.0]}, model="m")["y"].tolist() == [2.5]
            with Client(target, max_attempts=1) as stranger, pytest.raises(OSError):
                stranger.status("m")  # nobody vouches for the certificate


def test_clients_must_show_a_certificate_where_one_is_asked_for(publish, tmp_path, certificate):
    publish(tmp_path, 1, 2.0)
    both = Tls(certificate.certificate, certificate.key, client_ca=certificate.certificate)
    with Server([ModelSettings("m", tmp_path)], rest_port=0, grpc_port=0, tls=both) as server:
        assert server.wait_until_loaded(60)
        chain, key = both.certificate.read_bytes(), both.key.read_bytes()
        credentials = grpc.ssl_channel_credentials(chain, key, chain)
        with grpc.secure_channel(f"localhost:{server.grpc_port}", credentials) as channel:
            grpc.channel_ready_future(channel).result(20)
        known = ssl.create_default_context(cafile=both.certificate)
        known.load_cert_chain(both.certificate, both.key)
        url = f"https://localhost:{server.rest_port}"
        assert httpx.get(f"{url}/v1/models/m", verify=known).status_code == 200
        for target in (url, f"grpcs://localhost:{server.grpc_port}"):
            stranger = Client(target, root_certificates=str(both.certificate), max_attempts=1)
            with stranger, pytest.raises(RequestError):
                stranger.status("m")


def test_a_certificate_that_is_none(tmp_path):
    file = tmp_path / "certificate.pem"
    file.write_text("no certificate")
    with pytest.raises(OSError):
        Server([ModelSettings("m", tmp_path)], rest_port=0, grpc_port=None, tls=Tls(file, file))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("text", "key"), "text.pem: ... certificate in PEM"),
        (("key", "key"), "key.pem: ... certificate in PEM"),
        (("cut", "key"), "cut.pem: ... certificate in PEM"),
        (("certificate", "text"), "text.pem: ... private key in PEM"),
        (("certificate", "certificate"), "certificate.pem: ... private key in PEM"),
        (("certificate", "secret"), "secret.pem: ... private key in PEM"),
        (("certificate", "other"), "other.pem: not the key of "),
        (("certificate", "none"), "none.pem: no such file ... PEM"),
        (("certificate", "key", "text"), "text.pem: ... certificate in PEM"),
    ],
)
def test_a_wrong_file_for_tls_is_named(certificate, tmp_path, files, message):
    shutil.copy(certificate.certificate, tmp_path / "certificate.pem")
    shutil.copy(certificate.key, tmp_path / "key.pem")
    (tmp_path / "text.pem").write_text("no PEM at all")
    (tmp_path / "cut.pem").write_bytes(certificate.certificate.read_bytes()[:300])
    make = ["openssl", "pkey", "-in", certificate.key, "-aes128", "-passout", "pass:secret"]
    subprocess.run([*make, "-out", tmp_path / "secret.pem"], check=True)
    make = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subprocess.run([*make, "-out", tmp_path / "other.pem"], check=True, capture_output=True)
    with pytest.raises(OSError) as refused:
        Tls(*(tmp_path / f"{file}.pem" for file in files))
    assert says(str(refused.value), message)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("target", ["https://localhost:1", "grpcs://localhost:1"])
def test_a_wrong_file_of_authorities_is_named(tmp_path, target):
    (tmp_path / "text.pem").write_text("no PEM at all")
    with pytest.raises(OSError, match=r"text\.pem:.*PEM"):
        Client(target, root_certificates=str(tmp_path / "text.pem"))


def test_a_missing_extra_is_named(monkeypatch):
    import keras_transformers.serving

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in ("local", "rest"):
        monkeypatch.delitem(sys.modules, f"keras_transformers.serving.server.{name}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'keras-transformers\[serving\]'"):
        keras_transformers.serving.Server  # noqa: B018
