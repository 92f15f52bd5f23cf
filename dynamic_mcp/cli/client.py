"""A command as a client of a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp import __version__
from dynamic_mcp.cli.inbox import Inbox
from dynamic_mcp.cli.output import Progress
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.types import parse_seconds
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import NEWEST
from dynamic_mcp.proxy.client_group import ClientGroup

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config

T = TypeVar("T")


class CommandClient(Protocol):
    """A session with a proxy; log messages and progress from upstreams go to stderr."""

    @property
    def groups(self) -> Sequence[ClientGroup]: ...

    def group(self, name: str) -> ClientGroup: ...

    async def initialize(self) -> Raw:
        """Return the result of `initialize`."""
        ...

    async def ask(self, method: str, params: Mapping[str, object], *, group: str = "") -> Raw:
        """Return the result of a request. Raises DynamicMcpError, also for an upstream's JSON-RPC error."""
        ...


def introduce(command: str, inbox: Inbox) -> dict[str, object]:
    """Return the params of `initialize`; the client name is the command line, for the audit log."""
    info = {"name": command, "title": "dynamic-mcp on the command line", "version": __version__}
    return {"protocolVersion": NEWEST.name, "capabilities": inbox.capabilities, "clientInfo": info}


async def for_each_group(
    client: CommandClient, progress: Progress, do: Callable[[ClientGroup], Awaitable[T]]
) -> list[T]:
    """Run `do` for all groups concurrently; return the results in the order of the groups."""

    async def do_one(group: ClientGroup) -> T:
        try:
            return await do(group)
        finally:
            progress.complete(group.name)

    return await asyncio.gather(*map(do_one, client.groups))


def with_timeout(config: Config, text: str | None, kind: Literal["tools_s", "resources_s", "prompts_s"]) -> Config:
    """Return the config with the timeout of `--timeout`, if set. Raises InvalidArguments."""
    if text is None:
        return config
    try:
        limit_s = parse_seconds(text)
    except FlawError as exc:
        raise InvalidArguments(f"--timeout {exc}", hint=exc.hint) from exc
    change = {kind: limit_s}
    groups = (replace(group, timeouts=replace(group.timeouts, **change)) for group in config.groups)
    return replace(config, groups=tuple(groups))


def encode_params(params: Mapping[str, object]) -> bytes:
    """Encode the params of a request on one line; JSON typed by the user may span several."""
    # JSON allows line ends only between tokens, where they are white space
    return wire.encode(params).replace(b"\n", b" ").replace(b"\r", b" ")
