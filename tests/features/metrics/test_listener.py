"""`/metrics` answers GET and HEAD there and nothing else, and only to whom it should."""

from __future__ import annotations

import pytest

from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.features.metrics.listener import MetricsFace
from tests.face.http.parties import Reply

TOKEN = "s3cret"


def ask(method: str = "GET", target: str = "/metrics", token: str | None = None, **headers: str) -> Reply:
    """Return the answer to a request of a face, which asks for a token if one is given."""
    given = {"host": "127.0.0.1:9464", **headers}
    head = RequestHead(
        method=method,
        target=target.encode(),
        headers={name.encode(): value.encode("latin-1") for name, value in given.items()},
        peer="127.0.0.1",
    )
    reply = Reply()
    face = MetricsFace(lambda accept: (f"text/{accept or 'any'}", b"load 1\n"), HttpOptions(), token=token)
    assert face.begin(head, reply) is None
    return reply


def test_a_reader_gets_the_metrics_in_the_format_that_it_accepts() -> None:
    reply = ask(accept="openmetrics")

    assert (reply.status, reply.body) == (200, b"load 1\n")
    assert reply.headers["content-type"] == "text/openmetrics"
    assert reply.headers["cache-control"] == "no-store"
    assert ask("GET", "/metrics?name[]=x").status == 200
    assert ask("HEAD").status == 200


@pytest.mark.parametrize(
    "target", ["/", "/mcp", "/metrics/", "/metrics/x", "/METRICS", "/%6detrics", "//metrics", "*", ""]
)
def test_there_is_nothing_at_any_other_path(target: str) -> None:
    assert ask("GET", target).status == 404
    assert ask("POST", target).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_other_methods_are_refused(method: str) -> None:
    reply = ask(method)

    assert reply.status == 405
    assert reply.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("headers", [{"host": "evil.example:9464"}, {"host": ""}, {"origin": "https://evil.example"}])
def test_a_page_of_a_browser_cannot_read_them(headers: dict[str, str]) -> None:
    reply = ask(**headers)

    assert reply.status == 403
    assert b"load" not in reply.body


@pytest.mark.parametrize("host", ["localhost:9464", "127.0.0.1", "[::1]:9464", "LOCALHOST"])
def test_this_machine_has_several_names(host: str) -> None:
    assert ask(host=host).status == 200


@pytest.mark.parametrize(
    "shown", ["", "s3cret", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crett", "Basic s3cret", "Bearer s3cr\xe9t"]
)
def test_without_the_token_nobody_reads_them(shown: str) -> None:
    reply = ask(token=TOKEN, authorization=shown)

    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith("Bearer ")
    assert b"load" not in reply.body


def test_with_the_token_the_listener_may_have_any_name() -> None:
    for host in ("127.0.0.1:9464", "dynamic-mcp:9464", "tools.example.com"):
        assert ask(token=TOKEN, host=host, authorization=f"Bearer {TOKEN}").status == 200
    assert ask(token=TOKEN, authorization=f"bearer  {TOKEN}").status == 200


def test_a_header_that_was_sent_twice_is_no_token() -> None:
    head = RequestHead(
        method="GET",
        target=b"/metrics",
        headers={b"authorization": b"Bearer s3cret"},
        repeated=frozenset((b"authorization",)),
    )
    reply = Reply()
    MetricsFace(lambda _: ("text/plain", b""), HttpOptions(), token=TOKEN).begin(head, reply)

    assert reply.status == 401
