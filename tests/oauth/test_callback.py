"""The listener that the browser comes back to: one answer, to the login that is under way, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import httpx2
import pytest

from dynamic_mcp.oauth.callback import Callback
from tests.web import web_client

STATE = "s" * 43


@pytest.fixture
async def callback() -> AsyncIterator[Callback]:
    async with Callback(None, STATE) as callback:
        yield callback


async def get(callback: Callback, **query: str) -> httpx2.Response:
    async with web_client() as browser:
        return await browser.get(f"{callback.redirect_uri}?{urlencode(query)}")


async def raw(callback: Callback, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", callback.port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


async def is_waiting(callback: Callback) -> bool:
    """Tell whether the right answer still counts."""
    page = await get(callback, code="c", state=STATE)
    return page.status_code == 200 and (await callback.wait_for_response()).code == "c"


async def test_the_right_response_is_accepted_and_confirmed_to_the_user(callback: Callback) -> None:
    page = await get(callback, code="c", state=STATE, iss="https://as.test")

    found = await callback.wait_for_response()
    assert (found.code, found.iss, found.error) == ("c", "https://as.test", None)
    assert page.status_code == 200
    assert "close this window" in page.text


@pytest.mark.parametrize(
    "query", [{}, {"code": "c"}, {"code": "c", "state": ""}, {"code": "c", "state": "x"}, {"state": STATE}]
)
async def test_a_response_without_the_right_state_or_without_a_code_changes_nothing(
    callback: Callback, query: dict[str, str]
) -> None:
    assert (await get(callback, **query)).status_code == 400
    assert await is_waiting(callback)


async def test_a_parameter_that_is_there_twice_changes_nothing(callback: Callback) -> None:
    async with web_client() as browser:
        page = await browser.get(f"{callback.redirect_uri}?code=a&code=b&state={STATE}")

    assert page.status_code == 400
    assert await is_waiting(callback)


async def test_a_replay_is_refused(callback: Callback) -> None:
    assert await is_waiting(callback)
    assert (await get(callback, code="d", state=STATE)).status_code == 400
    assert (await callback.wait_for_response()).code == "c"


async def test_an_error_of_whoever_it_is_from_is_not_shown(callback: Callback) -> None:
    page = await get(callback, error="<script>alert(1)</script>", state=STATE)

    assert "alert" not in page.text
    assert "refused" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["referrer-policy"] == "no-referrer"
    assert (await callback.wait_for_response()).error == "<script>alert(1)</script>"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /favicon.ico HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /callback HTTP/1.1\r\n\r\n",
        b"GET http://evil/callback HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET //x/callback HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /[ HTTP/1.1\r\n\r\n",
        b"\xff\xfe\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
async def test_stray_connections_change_nothing(callback: Callback, data: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", callback.port)
    writer.write(data)
    writer.write_eof()
    with contextlib.suppress(OSError):
        assert b"200" not in (await asyncio.wait_for(reader.read(), 20))[:20]
    writer.close()

    assert await is_waiting(callback)


async def test_another_method_or_another_name_is_refused(callback: Callback) -> None:
    target = f"/callback?code=c&state={STATE}".encode()
    own = f"127.0.0.1:{callback.port}".encode()
    assert b" 405 " in await raw(callback, b"POST " + target + b" HTTP/1.1\r\nHost: " + own + b"\r\n\r\n")
    assert b" 400 " in await raw(callback, b"GET " + target + b" HTTP/1.1\r\nHost: evil.com\r\n\r\n")
    assert await is_waiting(callback)


async def test_connections_that_say_nothing_do_not_keep_the_browser_out(callback: Callback) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", callback.port) for _ in range(20)]

    assert await is_waiting(callback)
    for _, writer in silent:
        writer.close()


async def test_it_listens_only_on_loopback_and_only_while_entered() -> None:
    async with Callback(None, STATE) as callback:
        port = callback.port
        assert callback.redirect_uri.startswith(f"http://127.0.0.1:{port}/")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", port)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
