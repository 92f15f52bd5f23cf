"""A proxy whose clients are recorded, and the lines that it has written."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynamic_mcp.config.access import Access
from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.arguments import ArgumentMode
from dynamic_mcp.features.audit.keeper import Keeping
from dynamic_mcp.features.audit.observer import AuditObserver
from dynamic_mcp.features.audit.recorder import Trail
from dynamic_mcp.identity import LOCAL_USER, Authentication
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Observers
from tests.fakes import Client, FakeUpstream, Opener, config_of, group_config, tool

Json = Any  # whatever JSON a test writes down

USES = ("call", "read", "prompt", "list")
KEEPING = Keeping(180 * 86_400.0)
ANSWERS: dict[str, Json] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        "serverInfo": {"name": "fake server", "version": "1.2.3"},
    },
    "tools/list": {"tools": [tool("get_thing"), tool("delete_thing"), tool("silent"), tool("broken")]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
    "prompts/list": {"prompts": [{"name": "review"}]},
    "prompts/get": {"messages": []},
    "resources/list": {"resources": [{"uri": "file:///a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
}


@dataclass
class Audited:
    """The proxy, its upstream, and its log."""

    proxy: Proxy
    upstream: FakeUpstream
    trail: Trail

    async def join(self, authentication: Authentication = LOCAL_USER, *, only: str | None = None) -> Client:
        """Return a client that has said hello."""
        client = Client(self.proxy, authentication=authentication, only=only)
        info = {"name": "tester", "version": "2.0"}
        await client.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return client

    def lines(self) -> list[dict[str, Json]]:
        """Return the lines of all uses of servers, once they are written."""
        self.trail.close()
        return uses_in(self.trail.directory)


def read_lines(directory: Path, *, was_killed: bool = False) -> list[dict[str, Json]]:
    """Return the lines of a log, whose chain is whole.

    If its writer was killed, which the system may do in the middle of a write, a line may be cut short where the next
    one names it.
    """
    found: list[dict[str, Json]] = []
    prev, torn = chain.ZERO, b""
    for file in days.list_files(directory):
        for data in file.read_bytes().splitlines():
            try:
                link = chain.read_link(data)
            except chain.Damaged:
                assert was_killed
                assert not torn
                torn = data
                continue
            assert link.prev == prev
            prev = link.hash
            found.append(json.loads(data))
            if torn:
                detail = found[-1]["detail"]
                assert (detail["reason"], detail["sha256"]) == ("torn", hashlib.sha256(torn).hexdigest())
                torn = b""
    assert not torn
    return found


def uses_in(directory: Path, *, was_killed: bool = False) -> list[dict[str, Json]]:
    """Return the lines of a log that are about the use of a server, and no other events."""
    return [line for line in read_lines(directory, was_killed=was_killed) if line["event"] in USES]


@contextlib.asynccontextmanager
async def audited(
    directory: Path,
    *,
    arguments: ArgumentMode = "keys",
    stops_writes: bool = False,
    access: Access | None = None,
    **changes: Json,
) -> AsyncIterator[Audited]:
    """Run a proxy in front of a fake upstream `up`, with a log in this directory."""
    upstream = FakeUpstream(ANSWERS)
    proxy = Proxy(config_of(group_config("up", **changes), access=access), opener=Opener(up=[upstream]))
    trail = Trail(directory, KEEPING, stops_writes=stops_writes)
    observer = AuditObserver(trail, arguments=arguments, config="/c.jsonc", roles_of=proxy.roles_of)
    proxy.observers = Observers([observer])
    try:
        yield Audited(proxy, upstream, trail)
    finally:
        trail.close()
        await proxy.close()
