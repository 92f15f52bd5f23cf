"""The program with its own authorization server, and a client's document that it can fetch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.program import BOUND_S, Json, full

REDIRECT = "http://localhost:3030/callback"
BEHIND_PROXY: Json = [{"kind": "login"}, {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}]


@contextlib.asynccontextmanager
async def serving_logins(
    folder: Path, auth: Json = BEHIND_PROXY, port: int | None = None, **settings: Json
) -> AsyncIterator[HttpProgram]:
    """Run the program with a server `a` and an authorization server of its own."""
    port = port or free_port()
    http = {"public_url": f"http://127.0.0.1:{port}/mcp", "auth": auth}
    settings = {"http": http, "access": {"default": "allow"}, **settings}
    servers = {"a": full("--name", "a")}
    async with asyncio.timeout(BOUND_S), serving_http(folder, servers, port=port, settings=settings) as program:
        yield program
        assert "Traceback" not in program.log()


def make_certificate(folder: Path) -> Path:
    """Return a file with a certificate for localhost and its key; skip the test if none can be made."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    file = folder / "localhost.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command.split(), *names, "-keyout", file, "-out", file], check=True, capture_output=True)
    return file


@contextlib.asynccontextmanager
async def publishing(certificate: Path) -> AsyncIterator[tuple[str, list[str]]]:
    """Publish the document of a client over https; return its URL, and the requests for it."""
    requests: list[str] = []
    port = free_port()
    url = f"https://localhost:{port}/oauth/client.json"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
        document = {"client_id": url, "client_name": "Published", "redirect_uris": [REDIRECT]}
        body = json.dumps({**document, "token_endpoint_auth_method": "none"}).encode()
        head = (
            f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
        )
        writer.write(f"{head}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    async with await asyncio.start_server(answer, "127.0.0.1", port, ssl=tls):
        yield url, requests
