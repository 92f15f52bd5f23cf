"""Which era a link has: the client's if the server speaks it, however the server takes what it does not know."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import GroupConfig, Program, Timeouts
from dynamic_mcp.errors import DynamicMcpError, ErrorAnswer, HttpError, UpstreamError
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.handshake import Era, ServerInfo
from dynamic_mcp.upstream.link import LinkOwner
from dynamic_mcp.upstream.open import open_link
from tests.fake_parties import Ear
from tests.fakes import group_config
from tests.journeys.remote_server import free_port, listening
from tests.program import BOUND_S, UPSTREAMS
from tests.upstream.remote import remote, text
from tests.upstreams.conformance_modern import ModernHttp
from tests.upstreams.odd_http import OddHttp

OLD, NEW = ClientInfo(), ClientInfo(MODERN)


def program(*args: object) -> GroupConfig:
    """Return the config of a program in Python."""
    command = Program(command=sys.executable, args=tuple(map(str, args)), env={**os.environ}, cwd=None)
    return group_config("up", upstream=command, timeouts=Timeouts(BOUND_S, BOUND_S, BOUND_S, BOUND_S))


@contextlib.asynccontextmanager
async def opened(
    config: GroupConfig, hello: ClientInfo, lacks: Era | None = None, listener: LinkOwner | None = None
) -> AsyncIterator[tuple[AnyLink, ServerInfo]]:
    """Open a link and close it in the end."""
    async with asyncio.timeout(BOUND_S):
        link, server = await open_link(config, listener or Ear(), hello, lacks=lacks)
        try:
            yield link, server
        finally:
            await link.close()


def protocol(server: ServerInfo) -> str | None:
    return wire.text(server.result.get("protocolVersion"))


@contextlib.asynccontextmanager
async def sdk_server() -> AsyncIterator[str]:
    """Run the server of the Python SDK over HTTP."""
    port = free_port()
    async with listening(sys.executable, str(UPSTREAMS / "sdk_modern.py"), str(port), port=port):
        yield f"http://127.0.0.1:{port}/mcp"


# --- servers of both eras --------------------------------------------------------------------------------


@pytest.mark.parametrize(("hello", "spoken"), [(OLD, "2025-11-25"), (NEW, "2026-07-28")], ids=["old", "new"])
@pytest.mark.parametrize("transport", ["stdio", pytest.param("http", marks=pytest.mark.full)])
async def test_a_server_of_both_eras_is_spoken_to_in_the_clients(
    transport: str, hello: ClientInfo, spoken: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if transport == "http":
            config: GroupConfig = remote(await stack.enter_async_context(sdk_server()))
        else:
            config = program(UPSTREAMS / "sdk_modern.py")
        link, server = await stack.enter_async_context(opened(config, hello))

        assert (protocol(server), server.lacks) == (spoken, None)
        assert link.is_modern == hello.revision.is_stateless
        assert link.has_streams == (transport == "http")
        assert (server.instructions, await text(link, "era")) == ("Be kind.", spoken)
        assert wire.text(wire.member(server.result["serverInfo"], "name")) == "sdk-modern"


# --- modern servers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hello", "lacks"), [(OLD, "legacy"), (NEW, None)], ids=["old", "new"])
async def test_a_program_that_is_modern_only_serves_clients_of_both_eras(
    hello: ClientInfo, lacks: Era | None
) -> None:
    async with opened(program(UPSTREAMS / "conformance_modern.py"), hello) as (link, server):
        assert (link.is_modern, link.has_streams, protocol(server)) == (True, False, "2026-07-28")
        assert server.lacks == lacks
        assert server.instructions == "A server for tests."
        assert set(server.result) == {"protocolVersion", "capabilities", "instructions", "serverInfo"}


@pytest.mark.parametrize("kind", ["http", None])
@pytest.mark.parametrize(("hello", "lacks"), [(OLD, "legacy"), (NEW, None)], ids=["old", "new"])
async def test_a_remote_server_that_is_modern_only_serves_clients_of_both_eras(
    hello: ClientInfo, lacks: Era | None, kind: None
) -> None:
    async with ModernHttp() as far, opened(remote(far.url, kind), hello) as (link, server):
        assert (link.is_modern, link.has_streams, protocol(server)) == (True, True, "2026-07-28")
        assert server.lacks == lacks


async def test_a_server_that_is_known_to_be_modern_only_is_not_greeted() -> None:
    async with ModernHttp() as far, opened(remote(far.url), OLD, "legacy") as (link, server):
        assert link.is_modern
        assert server.lacks == "legacy"
        assert not far.received("initialize")


@pytest.mark.parametrize(
    ("kind", "is_modern"),
    [("slow", True), ("slow-deaf", True), ("slow-both", False)],
    ids=["refuses", "ignores", "greets"],
)
async def test_a_program_that_starts_slowly_is_asked_in_both_ways_and_is_legacy_if_it_greets(
    kind: str, is_modern: bool, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    async with opened(program(UPSTREAMS / "eras.py", kind, log), NEW) as (link, server):
        assert (link.is_modern, server.lacks) == (is_modern, None)

    assert log.read_text().split()[:3] == ["start", "server/discover", "initialize"]


async def test_a_slow_program_that_is_known_to_be_modern_only_is_not_greeted(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async with opened(program(UPSTREAMS / "eras.py", "late", log), NEW, "legacy") as (link, _):
        assert link.is_modern

    assert log.read_text().split() == ["start", "server/discover"]


@pytest.mark.parametrize("hello", [OLD, NEW], ids=["old", "new"])
async def test_a_server_of_revisions_that_nobody_knows_says_which(hello: ClientInfo, tmp_path: Path) -> None:
    with pytest.raises(ErrorAnswer, match="2099-01-01"):
        async with opened(program(UPSTREAMS / "eras.py", "newer", tmp_path / "log"), hello):
            pass


async def test_what_a_server_of_no_era_said_first_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ErrorAnswer, match="answered initialize with the error"):
        async with opened(program(UPSTREAMS / "eras.py", "broken", tmp_path / "log"), OLD):
            pass


# --- legacy servers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["silent", "crash", "empty"])
async def test_a_modern_client_is_served_by_a_legacy_program_whatever_it_makes_of_the_question(
    kind: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    async with opened(program(UPSTREAMS / "eras.py", kind, log), NEW) as (link, server):
        assert (link.is_modern, server.lacks) == (False, "modern")
        await link.request("tools/list", timeout_s=BOUND_S)

    started_again = ["start"] if kind == "crash" else []
    greeted = ["initialize", "notifications/initialized", "tools/list"]
    assert log.read_text().split() == ["start", "server/discover", *started_again, *greeted]


@pytest.mark.parametrize("kind", ["silent", "crash"])
async def test_a_program_that_is_known_to_be_legacy_is_not_asked(kind: str, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async with opened(program(UPSTREAMS / "eras.py", kind, log), NEW, "modern") as (link, server):
        assert (link.is_modern, server.lacks) == (False, "modern")

    assert log.read_text().split()[:2] == ["start", "initialize"]


@pytest.mark.parametrize("kind", ["http", None])
async def test_a_modern_client_is_served_by_a_legacy_server(kind: None) -> None:
    async with OddHttp() as far, opened(remote(far.url, kind), NEW) as (link, server):
        assert (link.is_modern, link.has_streams, server.lacks) == (False, True, "modern")
        assert await text(link, "echo", text="x") == "x"


async def test_a_modern_client_is_served_over_the_older_transport() -> None:
    async with OddHttp(older="yes") as far, opened(remote(far.url, None), NEW) as (link, server):
        assert (link.is_modern, link.has_streams, server.lacks) == (False, False, "modern")
        assert await text(link, "echo", text="x") == "x"


async def test_an_assumption_that_fails_is_made_anew() -> None:
    async with OddHttp() as far, opened(remote(far.url), OLD, "legacy") as (link, server):
        assert (link.is_modern, server.lacks) == (False, "modern")
    async with ModernHttp() as modern, opened(remote(modern.url), NEW, "modern") as (link, server):
        assert (link.is_modern, server.lacks) == (True, "legacy")


@pytest.mark.parametrize("status", ["401", "403", "500"])
async def test_a_status_that_says_nothing_of_the_era_is_the_error(status: str) -> None:
    async with OddHttp(on_initialize=status) as far:
        with pytest.raises(HttpError, match=status):
            async with opened(remote(far.url), OLD):
                pass

        assert len(far.requests) == 1


async def test_a_server_that_cannot_be_reached_is_asked_once() -> None:
    with pytest.raises(UpstreamError, match="refuses connections"):
        async with opened(remote(f"http://127.0.0.1:{free_port()}/mcp"), NEW):
            pass


async def test_a_program_that_ends_in_any_case_says_how() -> None:
    with pytest.raises(DynamicMcpError, match="exited with code 7"):
        async with opened(program("-c", "raise SystemExit(7)"), NEW):
            pass
