"""The hosts that a confined program may reach, and the proxy that lets it reach no others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("only Linux confines programs", allow_module_level=True)

from dynamic_mcp.features.sandbox import bubblewrap
from dynamic_mcp.features.sandbox.hosts import HostRule, parse_host
from dynamic_mcp.features.sandbox.network import HostProxy
from dynamic_mcp.web.address_policy import Resolver, resolve_host
from tests.features.sandbox.hostile_scene import PYTHON, hostile_scene
from tests.program import BOUND_S


@pytest.mark.parametrize(
    ("written", "name", "port", "matches"),
    [
        ("api.example.com", "api.example.com", 443, True),
        ("api.example.com", "api.example.com", 80, True),
        ("API.example.com", "api.example.com", 443, True),
        ("api.example.com", "api.example.com", 22, False),
        ("api.example.com", "example.com", 443, False),
        ("api.example.com", "evil-api.example.com", 443, False),
        ("*.example.com", "api.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("[::1]:80", "::1", 80, True),
        ("10.0.0.5:5432", "10.0.0.5", 5432, True),
    ],
)
def test_a_rule_is_about_a_name_and_its_ports(written: str, name: str, port: int, matches: bool) -> None:
    assert parse_host(written).matches(name, port) is matches


@pytest.mark.parametrize(
    "written", ["", "*", "*.", "https://a", "a/b", "a:0", "a:99999", "[1.2.3.4]", "a b", "a..:1:2"]
)
def test_what_is_no_host_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_host(written)


class FarServer:
    """A server that answers with what it got."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(request)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()


@pytest.fixture
async def far() -> AsyncIterator[FarServer]:
    """Provide a server on this machine."""
    far = FarServer()
    server = await asyncio.start_server(far.answer, "127.0.0.1", 0)
    far.port = server.sockets[0].getsockname()[1]
    async with server:
        yield far


@contextlib.asynccontextmanager
async def proxy_for(rules: Sequence[HostRule], resolve: Resolver = resolve_host) -> AsyncIterator[int]:
    """Serve a proxy for these hosts, and yield its port."""
    door = socket.create_server(("127.0.0.1", 0))
    port = door.getsockname()[1]
    proxy = HostProxy("notes", rules, resolve)
    await asyncio.to_thread(proxy.open, door)
    try:
        yield port
    finally:
        proxy.close()


async def ask(port: int, request: str) -> bytes:
    """Send a request, and return all that comes back."""
    async with asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request.encode())
        answer = await reader.read()
        writer.close()
        return answer


async def test_a_host_that_is_named_is_reached(far: FarServer) -> None:
    async with proxy_for([parse_host(f"127.0.0.1:{far.port}"), parse_host(f"localhost:{far.port}")]) as port:
        for host in ("127.0.0.1", "localhost", "LOCALHOST."):
            path = (
                f"GET http://{host}:{far.port}/a?b HTTP/1.1\r\nHost: other\r\nProxy-Authorization: x\r\nA: 1\r\n\r\n"
            )
            assert (await ask(port, path)).endswith(b"hello")
            tunnel = f"CONNECT {host}:{far.port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"
            answer = await ask(port, tunnel)
            assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\n")
            assert answer.endswith(b"hello")
    assert far.requests[0] == (
        f"GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:{far.port}\r\nConnection: close\r\nA: 1\r\n\r\n".encode()
    )


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1:{port}",
        "[::ffff:127.0.0.1]:{port}",
        "2130706433:{port}",
        "0x7f000001:{port}",
        "other.example:{port}",
    ],
)
async def test_a_host_that_is_not_named_is_refused(far: FarServer, target: str) -> None:
    async with proxy_for([parse_host(f"localhost:{far.port}")]) as port:
        answer = await ask(port, f"CONNECT {target.format(port=far.port)} HTTP/1.1\r\n\r\n")
    assert answer.split()[1] in (b"400", b"403")
    assert far.requests == []


@pytest.mark.parametrize("name", ["a..example.com", f"{'a' * 64}.example.com"])
async def test_what_no_name_server_can_be_asked_for_is_refused(name: str) -> None:
    async with proxy_for([parse_host("*.example.com:443")]) as port:
        answer = await ask(port, f"CONNECT {name}:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"cannot be resolved" in answer


async def test_a_name_leads_into_no_private_network(far: FarServer) -> None:
    async def resolve(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    rule = parse_host(f"rebound.example.com:{far.port}")
    request = f"CONNECT rebound.example.com:{far.port} HTTP/1.1\r\n\r\n"
    async with proxy_for([rule], resolve) as port:
        assert b"leads into a private network" in await ask(port, request)
    async with proxy_for([rule, parse_host(f"127.0.0.1:{far.port}")], resolve) as port:
        assert b"200 Connection established" in await ask(port, f"{request}GET / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    "request_line",
    [
        "GET / HTTP/1.1",
        "GET ftp://a/ HTTP/1.1",
        "CONNECT localhost HTTP/1.1",
        "CONNECT a:0 HTTP/1.1",
        "nonsense",
        "CONNECT u@localhost:80 HTTP/1.1",
    ],
)
async def test_another_request_is_refused(request_line: str) -> None:
    async with proxy_for([parse_host("localhost")]) as port:
        assert (await ask(port, f"{request_line}\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


@pytest.mark.skipif(bool(bubblewrap.explain_missing()), reason=bubblewrap.explain_missing() or "-")
@pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"there is no {PYTHON}")
async def test_a_confined_program_reaches_only_its_hosts(far: FarServer, tmp_path: Path) -> None:
    code = (
        "import socket, sys, urllib.error, urllib.request\n"
        "def ask(url):\n"
        "    try:\n"
        "        with urllib.request.urlopen(url, timeout=10) as answer:\n"
        "            return answer.read().decode()\n"
        "    except (OSError, urllib.error.URLError) as exc:\n"
        "        return f'refused {getattr(exc, \"code\", exc)}'\n"
        "print(ask(sys.argv[1]))\n"
        "print(ask(sys.argv[2]))\n"
        "try:\n"
        "    socket.create_connection(('127.0.0.1', int(sys.argv[3])), 5)\n"
        "except OSError as exc:\n"
        "    print(exc.strerror)\n"
    )
    urls = [f"http://localhost:{far.port}/", f"http://127.0.0.1:{far.port}/"]
    words = {"read": [], "hosts": [f"localhost:{far.port}"]}
    with hostile_scene(tmp_path, None) as scene:
        result = await asyncio.to_thread(scene.run, words, PYTHON, ["-c", code, *urls, str(far.port)])
    assert result == {"code": 0, "stdout": "hello\nrefused 403\nConnection refused\n", "stderr": ""}
