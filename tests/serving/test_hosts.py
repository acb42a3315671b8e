"""DNS rebinding: another site's page must not reach a server meant for this machine."""

import asyncio
import json

import pytest

from keras_transformers.serving.server.hosts import HostCheck, is_loopback


def status(host, **options):
    """Returns the status for a request with a Host header: 200 from the app, or the refusal."""
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})

    async def send(message):
        sent.append(message)

    headers = [(b"accept", b"*/*")] + ([] if host is None else [(b"host", host.encode())])
    check = HostCheck(app, **{"bound": "127.0.0.1"} | options)
    asyncio.run(check({"type": "http", "headers": headers}, None, send))
    return sent[0]["status"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8501", "127.0.0.1", "localhost:8501", "LocalHost.", "[::1]:8501", None]
)
def test_this_machines_names(host):
    assert status(host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8501",
        "127.0.0.1.evil.example",
        "127.evil.example",
        "localhost.evil.example:8501",
        "evil.example:127.0.0.1",
        "evil.example[::1]",
        "192.168.0.7",
        "0.0.0.0",
        "",
    ],
)
def test_other_names_are_refused(host):
    assert status(host) == 403


def test_further_names_and_all_of_them():
    assert status("Models.example:80", allowed=["models.example"]) == 200
    assert status("other.example", allowed=["models.example"]) == 403
    assert status("localhost", allowed=["models.example"]) == 200
    assert status("other.example", allowed=["*"]) == 200


def test_a_server_for_others_takes_any_name_unless_told_which():
    assert status("models.example", bound="0.0.0.0") == 200
    assert status("models.example", bound="10.0.0.1", allowed=["other.example"]) == 403
    assert status("10.0.0.1:8501", bound="10.0.0.1", allowed=["other.example"]) == 200


def test_loopback_is_reported_by_the_address_not_by_how_it_begins():
    assert is_loopback("127.9.9.9")
    assert not any(map(is_loopback, ["127.evil.example", "10.0.0.1", "::", ""]))


@pytest.mark.parametrize(
    "path", ["/v1/models/half_plus_two", "/monitoring/prometheus/metrics", "/"]
)
def test_the_server_refuses_every_path(rest, path):
    response = rest.get(path, headers={"Host": "evil.example"})
    assert response.status_code == 403
    assert "allowed hosts" in json.loads(response.content)["error"]


def test_a_refused_body_does_not_harm_the_next_request(rest):
    path, body = "/v1/models/half_plus_two:predict", '{"instances": [1.0]}'
    response = rest.post(path, content=body, headers={"Host": "evil.example"})
    assert response.status_code == 403
    assert rest.post(path, content=body).json() == {"predictions": [2.5]}
