"""What is said of the certificate that clients see."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.doctor.certificates import check_certificate
from dynamic_mcp.doctor.findings import Level
from tests.certificates import make_certificate
from tests.journeys.remote_server import free_port
from tests.program import BOUND_S

DAY_S = 86_400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a certificate for `localhost`, of a day."""
    make_certificate(tmp_path)
    return tmp_path


@contextlib.asynccontextmanager
async def serving_tls(folder: Path) -> AsyncIterator[int]:
    """Serve with the certificate, at the port that is handed out."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=tls)
    async with asyncio.timeout(BOUND_S), server:
        yield server.sockets[0].getsockname()[1]


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "cert.pem")


@pytest.mark.parametrize(
    ("days", "level", "what"),
    [(-20.0, Level.OK, "valid for 21 days"), (0.5, Level.WARNING, "expires in 0 days")],
)
async def test_a_certificate_that_expires_soon_is_a_warning(
    folder: Path, days: float, level: Level, what: str
) -> None:
    async with serving_tls(folder) as port:
        url, now = f"https://localhost:{port}/mcp", time.time() + days * DAY_S
        (found,) = await check_certificate("here", url, context=trusting(folder), now=now)
    assert (found.level, what in found.what) == (level, True), found.what


async def test_a_certificate_that_nobody_trusts_is_refused_by_clients(folder: Path) -> None:
    async with serving_tls(folder) as port:
        (found,) = await check_certificate("here", f"https://localhost:{port}/mcp")
    assert (found.level, "it is signed by itself" in found.what) == (Level.WARNING, True), found.what


async def test_a_certificate_for_another_host_is_named(folder: Path) -> None:
    async with serving_tls(folder) as port:
        url = f"https://127.0.0.1:{port}/mcp"
        (found,) = await check_certificate("here", url, context=trusting(folder))
    assert found.level is Level.WARNING
    assert "subjectAltName" in found.hint


@pytest.mark.parametrize("host", ["127.0.0.1", "a..example"])
async def test_what_cannot_be_reached_is_said_to_have_no_tls(host: str) -> None:
    async with asyncio.timeout(BOUND_S):
        (found,) = await check_certificate("here", f"https://{host}:{free_port()}/mcp")
    assert f"no connection with TLS to `{host}`" in found.what


async def test_plain_http_has_no_certificate() -> None:
    assert await check_certificate("here", "http://127.0.0.1/mcp") == []
