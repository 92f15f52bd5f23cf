"""What two programs may read as different requests is refused, and no request hides in another one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest

from tests.attacks.target import AS_JSON, BOTH, McpClient, Target, office, serving
from tests.attacks.wire import exchange, head

POST = ("POST", "/mcp")
CHUNKED = "Transfer-Encoding: chunked"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("framing")
    with serving(folder, {"office": office(folder)}) as target:
        yield target


@pytest.fixture(scope="module")
def client(target: Target) -> McpClient:
    """A session whose id the attacker knows, so that a smuggled call would be made."""
    return McpClient(target).begin()


def call(client: McpClient) -> bytes:
    """Return the body of a call."""
    arguments = {"group": "office", "name": "query", "args": {}}
    return json.dumps(client.message("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})).encode()


def whole(client: McpClient, body: bytes) -> bytes:
    """Return a whole request that makes a call, as it is smuggled."""
    return head(*POST, *client.fields(BOTH, AS_JSON, f"Content-Length: {len(body)}")) + body


# Lines and the beginning of a body that end earlier for one reader than for another; a whole call is behind them.
LAST_CHUNK = "0\r\n\r\n"
SMUGGLING = {
    "a length and chunks": (["Content-Length: {all}", CHUNKED], LAST_CHUNK),
    "chunks and a length": ([CHUNKED, "Content-Length: {all}"], LAST_CHUNK),
    "two lengths": (["Content-Length: 0", "Content-Length: {all}"], ""),
    "a list of lengths": (["Content-Length: 0, {all}"], ""),
    "a signed length": (["Content-Length: +0"], ""),
    "a hexadecimal length": (["Content-Length: 0x0"], ""),
    "a length with an underscore": (["Content-Length: 0_0"], ""),
    "a length with a vertical tab": (["Content-Length: \x0b0"], ""),
    "an unknown coding": (["Transfer-Encoding: xchunked"], LAST_CHUNK),
    "chunks that are not the last coding": (["Transfer-Encoding: chunked, identity"], LAST_CHUNK),
    "chunks twice": ([CHUNKED, CHUNKED], LAST_CHUNK),
    "a vertical tab before the coding": (["Transfer-Encoding:\x0bchunked"], LAST_CHUNK),
    "a folded coding": (["Transfer-Encoding:\r\n chunked"], LAST_CHUNK),
    "a blank before the colon": (["Transfer-Encoding : chunked"], LAST_CHUNK),
    "a blank before the name": ([f" {CHUNKED}"], LAST_CHUNK),
    "a lone line feed in a header": ([f"A: b\n{CHUNKED}"], LAST_CHUNK),
    "a lone carriage return in a header": ([f"A: b\r{CHUNKED}"], LAST_CHUNK),
    "NUL in a header": ([f"A: b\0{CHUNKED}"], LAST_CHUNK),
    "a line feed in a chunk extension": ([CHUNKED], "1;a\n0\r\n\r\n"),
    "a chunk that is longer than its size": ([CHUNKED], "1\r\nabc\r\n0\r\n\r\n"),
    "a chunk size that overflows": ([CHUNKED], "10000000000000000\r\n"),
    "a negative chunk": ([CHUNKED], "-1\r\n\r\n"),
    "a chunk size with a prefix": ([CHUNKED], "0x0\r\n\r\n"),
    "a chunk size with a blank": ([CHUNKED], "0 0\r\n\r\n"),
    "chunks with lone line feeds": ([CHUNKED], "0\n\n"),
}


@pytest.mark.parametrize(("lines", "begin"), SMUGGLING.values(), ids=SMUGGLING)
def test_no_request_hides_in_another(target: Target, client: McpClient, lines: list[str], begin: str) -> None:
    before = target.journal()
    hidden = whole(client, call(client))
    given = [line.format(all=len(begin) + len(hidden)) for line in lines]
    answers = exchange(target.port, head(*POST, *client.fields(BOTH, AS_JSON, *given)) + begin.encode() + hidden)
    assert [400 <= each.status <= 501 for each in answers] == [True]
    assert answers[0].headers["connection"] == "close"
    assert target.journal() == before


HEADS = {
    "no host": b"GET /ready HTTP/1.1\r\n\r\n",
    "two hosts": head("GET", "/ready", "Host: localhost"),
    "a control character in the target": head("GET", "/rea\x01dy"),
    "a blank in the target": head("GET", "/ready /mcp"),
    "a line feed in the target": head("GET", "/ready\nX: y"),
    "a tab for a blank": b"GET\t/ready\tHTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a name with a blank": head("GET", "/ready", "A b: c"),
    "an empty name": head("GET", "/ready", ": c"),
    "no colon": head("GET", "/ready", "A"),
    "a version that there is not": b"GET /ready HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "a version of long ago": b"GET /ready\r\n\r\n",
    "a method that is none": head("G@T", "/ready"),
    "lone line feeds": b"GET /ready HTTP/1.1\nHost: localhost\n\n",
    "a target of a proxy": head("CONNECT", "evil.example:443"),
    "a head of 100 KB": head("GET", "/ready", "A: " + "b" * 100_000),
    "a thousand headers": head("GET", "/ready", *[f"A{number}: b" for number in range(1000)]),
    "a target of 100 KB": head("GET", "/" + "a" * 100_000),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("data", HEADS.values(), ids=HEADS)
def test_a_head_that_is_malformed_is_refused_and_its_connection_ends(target: Target, data: bytes) -> None:
    answers = exchange(target.port, data + head("GET", "/ready"))
    assert [each.status // 100 for each in answers] in ([4], [5], [])


def test_a_target_with_a_host_of_its_own_is_judged_by_that(target: Target) -> None:
    (answer,) = exchange(target.port, head("GET", "http://evil.example/ready"))
    assert answer.status == 403


def test_answers_come_in_the_order_of_the_requests(target: Target) -> None:
    paths = ["/health", "/nothing", "/ready", "/mcp", "/health"] * 5
    answers = exchange(target.port, b"".join(head("GET", path) for path in paths))
    assert [each.status for each in answers] == [200, 404, 200, 400, 200] * 5


def test_a_method_to_override_with_is_not_heeded(target: Target, client: McpClient) -> None:
    answer = client.post(client.message("ping"), "X-HTTP-Method-Override: DELETE", "X-HTTP-Method: DELETE")
    assert answer.json["result"] == {}
    assert client.request("ping")["result"] == {}


# --- bodies --------------------------------------------------------------------------------------------

BODIES: dict[str, bytes] = {
    "a byte that is no UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xff"}}',
    "Latin-1": '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"é"}}'.encode("latin-1"),
    "an overlong slash": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xc0\xaf"}}',
    "an encoded surrogate": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xed\xa0\x80"}}',
    "an end in the middle of a letter": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xc3"}}',
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    "a byte that is no UTF-8 in a name": b'{"jsonrpc":"2.0","id":1,"method":"ping","\xff":1}',
    "two messages": b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}',
    "two lines": b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n{"jsonrpc":"2.0","id":2,"method":"ping"}',
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    "an array in arrays": b"[" * 100_000 + b"]" * 100_000,
    "half of it": b'{"jsonrpc":"2.0","id":1,"method":"pi',
    "nothing": b"",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_is_no_message_is_refused_and_not_put_right(client: McpClient, body: bytes) -> None:
    answer = client.post(body)
    assert answer.status == 400
    assert client.request("ping")["result"] == {}


def test_a_compressed_body_is_not_unpacked(client: McpClient) -> None:
    message = json.dumps({**client.message("ping"), "params": {"x": "a" * 10_000_000}}).encode()
    assert client.post(gzip.compress(message), "Content-Encoding: gzip").status in (400, 415)


def test_calls_that_are_sent_in_the_open_are_made(target: Target, client: McpClient) -> None:
    before = target.journal()
    assert "has run" in client.post(call(client)).text
    assert len(target.journal()) == len(before) + 1
