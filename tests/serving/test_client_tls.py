"""The client's certificates, and what it says where client and server do not agree on TLS."""

import subprocess

import pytest

from keras_transformers.cli import main as cli
from keras_transformers.serving import Client, Code, Limits, RequestError, Server, Tls
from keras_transformers.serving.client.tls import connection_failure


@pytest.fixture(scope="module")
def files(certificate, tmp_path_factory):
    """The arguments of `Client` for a certificate that its own authority has signed."""
    folder = tmp_path_factory.mktemp("client")
    key, request, signed = (folder / name for name in ("key.pem", "request.pem", "client.pem"))
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    for command in (
        ("req", "-nodes", *curve, "-subj", "/CN=client", "-keyout", key, "-out", request),
        (
            *("x509", "-req", "-in", request, "-CA", certificate.certificate),
            *("-CAkey", certificate.key, "-CAcreateserial", "-days", "2", "-out", signed),
        ),
    ):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    return {"client_certificate": signed, "client_key": key}


@pytest.fixture(scope="module")
def roots(certificate):
    return {"root_certificates": certificate.certificate}


@pytest.fixture(scope="module")
def servers(certificate):
    """Servers without models: one without TLS, one with it, one that demands a certificate."""

    def serve(tls):
        return Server([], rest_port=0, grpc_port=0, limits=Limits(timeout_s=5), tls=tls)

    demanding = Tls(certificate.certificate, certificate.key, certificate.certificate)
    with serve(None) as plain, serve(certificate) as secure, serve(demanding) as asking:
        yield {"plain": plain, "secure": secure, "demanding": asking}


def failure(target, **files):
    with Client(target, max_attempts=1, timeout_s=10, **files) as client:
        with pytest.raises(RequestError) as caught:
            client.status("m")
        return caught.value


@pytest.mark.parametrize("scheme", ["https", "grpcs"])
def test_a_certificate_that_the_server_demands(servers, scheme, roots, files):
    server = servers["demanding"]
    port = server.rest_port if scheme == "https" else server.grpc_port
    error = failure(f"{scheme}://localhost:{port}", **roots, **files)
    assert error.code == Code.NOT_FOUND  # it was heard


@pytest.mark.parametrize(
    ("server", "scheme", "remedy"),
    [
        ("secure", "http", "https://"),
        ("secure", "grpc", "grpcs://localhost:{port}"),
        ("plain", "https", "http://localhost:{port}"),
        ("plain", "grpcs", "grpc://localhost:{port}"),
        ("demanding", "https", "client_certificate=FILE, client_key=FILE"),
        ("demanding", "grpcs", "client_certificate=FILE, client_key=FILE"),
    ],
)
def test_where_they_do_not_agree(servers, server, scheme, remedy, roots):
    to = servers[server]
    port = to.rest_port if scheme.startswith("http") else to.grpc_port
    files = roots if scheme.endswith("s") else {}
    message = str(failure(f"{scheme}://localhost:{port}", **files))
    assert remedy.format(port=port) in message
    assert scheme == "http" or f"{scheme}://localhost:{port}: " in message


@pytest.mark.parametrize("scheme", ["https", "grpcs"])
def test_an_authority_that_the_client_does_not_trust(servers, scheme):
    server = servers["secure"]
    port = server.rest_port if scheme == "https" else server.grpc_port
    assert "root_certificates=FILE" in str(failure(f"{scheme}://localhost:{port}"))


@pytest.mark.parametrize(
    ("port", "to", "remedy"),
    [
        ("grpc_port", "http", "grpc://"),
        ("rest_port", "grpc", "http://"),
        ("grpc_port", "https", "grpcs://"),
        ("rest_port", "grpcs", "https://"),
    ],
)
def test_the_other_protocols_port(servers, port, to, remedy, roots):
    server = servers["secure" if to.endswith("s") else "plain"]
    files = roots if to.endswith("s") else {}
    error = failure(f"{to}://localhost:{getattr(server, port)}", **files)
    assert remedy in error.message.removeprefix(f"{to}://")


@pytest.mark.parametrize(
    ("url", "said", "remedy"),
    [
        # Of OpenSSL, for a certificate of another authority.
        ("https://a:1", "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", "it has signed"),
        ("https://a:1", "certificate verify failed: certificate has expired", "renew"),
        ("grpcs://a:1", "Hostname Verification Check failed.", "a name in it"),
        ("https://a:1", "verify failed: IP address mismatch, certificate is", "a name in it"),
        ("https://a:1", "verify failed: Hostname mismatch, certificate is", "a name in it"),
        ("http://a:1", "[Errno 111] Connection refused", ""),
    ],
)
def test_other_failures(url, said, remedy):
    message = connection_failure(url, said)
    assert message.startswith(f"{url}: ")
    assert said in message
    assert remedy in message


def test_files_that_do_not_fit(files, roots, tmp_path):
    key = files["client_key"]
    with pytest.raises(ValueError, match=r"client_key is None: pass both"):
        Client("https://a", client_certificate=key)
    with pytest.raises(OSError, match=f"{key}: not a certificate in PEM"):
        Client("https://a", client_certificate=key, client_key=key)
    with pytest.raises(FileNotFoundError, match="gone.pem: no such file"):
        Client("grpcs://a:1", client_certificate=tmp_path / "gone.pem", client_key=key)
    for wrong in (roots, files):
        with pytest.raises(ValueError, match="'http://a:1' has no TLS.*https://"):
            Client("http://a:1", **wrong)


def test_the_command_shows_a_certificate_too(servers, roots, files, capsys):
    words = ["ask", f"https://localhost:{servers['demanding'].rest_port}", "a", "--model", "m"]
    assert cli.main([*words, "--root-certificates", str(roots["root_certificates"])]) == 2
    assert "--client-certificate FILE --client-key FILE" in capsys.readouterr().err
    for name, file in (roots | files).items():
        words += [f"--{name.replace('_', '-')}", str(file)]
    assert cli.main(words) == 2
    assert "NOT_FOUND" in capsys.readouterr().err
