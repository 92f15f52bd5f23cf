"""HTTP while its settings change: it is opened, moved and closed, and a certificate is replaced."""

from __future__ import annotations

import asyncio
import signal
import ssl
from pathlib import Path

import httpx2
import pytest

from tests.certificates import make_certificate
from tests.journeys.remote_server import free_port
from tests.own_process import OWN
from tests.process.http_client import connected, serving_http, write_config
from tests.process.test_http import refuses
from tests.program import odd, running, started, text_of

pytestmark = pytest.mark.alone_only("a reload is the same in a daemon")


def url_of(port: int, path: str = "/mcp") -> str:
    return f"http://127.0.0.1:{port}{path}"


async def test_a_reload_opens_moves_and_closes_http(tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    servers = {"odd": odd()}
    async with running(str(write_config(tmp_path, servers))) as program:
        await program.initialize()
        write_config(tmp_path, servers, http={"listen": first})
        await program.says(url_of(first))
        async with connected(url_of(first)) as client:
            write_config(tmp_path, servers, http={"listen": second})
            await program.says(url_of(second))
            await refuses(first)
            client.url = url_of(second)
            assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a", "the session has moved along"
        write_config(tmp_path, servers)
        await program.says(f"stopped serving HTTP at {url_of(second)}")
        await refuses(second)
        assert text_of(await program.call("odd", "echo", {"text": "a"})) == "a"


async def test_a_path_changes_without_a_new_session(tmp_path: Path) -> None:
    port = free_port()
    servers = {"odd": odd()}
    async with serving_http(write_config(tmp_path, servers), str(port)) as program:
        await program.says(url_of(port))
        async with connected(url_of(port)) as client:
            write_config(tmp_path, servers, http={"path": "/tools"})
            await program.says(url_of(port, "/tools"))
            client.url = url_of(port, "/tools")
            assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"


async def test_the_same_port_of_more_addresses_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    port = free_port()
    servers = {"odd": odd()}
    file = write_config(tmp_path, servers, http={"listen": port})
    async with serving_http(file) as program:
        await program.says(url_of(port))
        async with connected(url_of(port)):
            pass  # the config is watched once the first client has its answer
        write_config(tmp_path, servers, http={"listen": f"0.0.0.0:{port}", "insecure": True})
        await program.says(f"http://0.0.0.0:{port}/mcp")
        async with connected(url_of(port)) as client:
            assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"


@pytest.mark.parametrize("why", ["in use", "unsafe"])
async def test_what_cannot_be_had_leaves_the_old_address_and_is_told(tmp_path: Path, why: str) -> None:
    port = free_port()
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    taken = listener.sockets[0].getsockname()[1]
    servers = {"odd": odd()}
    async with listener, running(str(write_config(tmp_path, servers, http={"listen": port}))) as program:
        await program.initialize()
        await program.says(url_of(port))

        listen = taken if why == "in use" else f"0.0.0.0:{taken}"
        write_config(tmp_path, servers, http={"listen": listen})

        told = await program.hears("notifications/message")
        assert "HTTP is not served as configured" in str(told)
        assert f"it is still served at {url_of(port)}" in str(told)
        async with connected(url_of(port)) as client:
            assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"


@pytest.mark.posix_only("Windows has no SIGHUP")
async def test_https_takes_a_new_certificate_with_sighup(tmp_path: Path) -> None:
    port = free_port()
    old = make_certificate(tmp_path)
    tls = {"cert": "cert.pem", "key": "key.pem"}
    file = write_config(tmp_path, {"odd": odd()}, http={"listen": f"localhost:{port}", "tls": tls})
    async with serving_http(file) as program:
        await program.says(f"over HTTP at https://localhost:{port}/mcp")
        async with connected(f"https://localhost:{port}/mcp", verify=trusting(old)) as client:
            assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"
            new = make_certificate(tmp_path)
            program.process.send_signal(signal.SIGHUP)
            await program.says("was read again")
            assert text_of(await client.call("odd", "echo", {"text": "b"})) == "b", "connections stay"
        async with connected(f"https://localhost:{port}/mcp", verify=trusting(new)):
            pass
        with pytest.raises(httpx2.ConnectError):
            async with connected(f"https://localhost:{port}/mcp", verify=trusting(old)):
                pass


@pytest.mark.posix_only("Windows has no SIGHUP")
async def test_a_certificate_that_cannot_be_used_leaves_the_old_one(tmp_path: Path) -> None:
    port = free_port()
    old = make_certificate(tmp_path)
    tls = {"cert": "cert.pem", "key": "key.pem"}
    file = write_config(tmp_path, {}, http={"listen": f"localhost:{port}", "tls": tls})
    async with serving_http(file) as program:
        await program.says("over HTTP at")
        (tmp_path / "key.pem").write_text("no key")
        program.process.send_signal(signal.SIGHUP)
        await program.says("the old certificate is still used")
        async with connected(f"https://localhost:{port}/mcp", verify=trusting(old)):
            pass


async def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    options = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    async with started(*OWN, "serve", str(write_config(tmp_path, {})), "--http", "0", *options) as program:
        assert await program.ends() == 1
    assert f"the certificate `{tmp_path / 'cert.pem'}`" in await program.stderr()


def trusting(certificate: bytes) -> ssl.SSLContext:
    """Return what trusts this certificate and no other."""
    return ssl.create_default_context(cadata=certificate.decode())
