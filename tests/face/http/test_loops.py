"""Our server on uvloop, which the program runs on, with TLS and without."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.face.http.server import HttpServer
from tests.face.http.ways_in import GET, Client, FakeHandler, post
from tests.fakes import FakeClock
from tests.program import BOUND_S

uvloop = pytest.importorskip("uvloop", reason="there is no uvloop on this system")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for localhost and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    file = tmp_path_factory.mktemp("tls") / "localhost.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command.split(), *names, "-keyout", file, "-out", file], check=True, capture_output=True)
    return file


async def _use(handler: FakeHandler, server: HttpServer, port: int, tls: ssl.SSLContext | None) -> None:
    async def connect() -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=1 << 24))

    async with asyncio.timeout(BOUND_S):
        client, stream, hostile, vanishing = [await connect() for _ in range(4)]
        assert (await client.ask(post("/echo", b"x" * 100_000))).told["body"] == "x" * 100_000
        stream.send(b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
        assert (await stream.head())[0] == 200
        assert await stream.chunk() == b"first "
        assert (await hostile.ask(b"\0")).status == 400
        await hostile.close()
        vanishing.send(post("/large", b"x"))
        await vanishing.head()
        vanishing.writer.transport.abort()
        assert (await client.ask(GET)).status == 200
        assert handler.calls[0].head.is_secure is (tls is not None)
        await server.drain(0)
        await stream.rest()
        for each in (client, stream):
            await each.close()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("is_secure", [False, True])
def test_it_serves_on_both_loops_with_and_without_tls(loop: str, is_secure: bool, certificate: Path) -> None:
    theirs = ours = None
    if is_secure:
        ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ours.load_cert_chain(certificate)
        theirs = ssl.create_default_context(cafile=str(certificate))

    async def main() -> None:
        handler = FakeHandler()
        server = HttpServer(handler)
        (address,) = await server.open(TcpAddress(port=0), tls=ours)
        await _use(handler, server, address.port, theirs)

    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_connection_that_is_reset_in_a_body_that_nobody_wants_stops_no_look_at_the_others(loop: str) -> None:
    clock = FakeClock()

    async def main() -> None:
        server = HttpServer(FakeHandler(), clock=clock.now)
        (address,) = await server.open(TcpAddress(port=0))
        async with asyncio.timeout(BOUND_S):
            client = Client(*await asyncio.open_connection("127.0.0.1", address.port))
            client.send(b"POST /now HTTP/1.1\r\nHost: test\r\nContent-Length: 10000\r\n\r\n")
            assert (await client.reply()).status == 200
            end = client.writer.get_extra_info("socket").dup()
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.writer.transport.abort()
            await asyncio.sleep(0)
            end.close()  # resets it, which the server has not heard yet
            clock.time += 3600
            server.sweep()
            await server.drain(0)

    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


def test_serving_on_stdio_loads_no_parser_of_http() -> None:
    code = (
        "import sys, dynamic_mcp.host.stdio; print([m for m in sys.modules if 'httptools' in m or 'face.http' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
