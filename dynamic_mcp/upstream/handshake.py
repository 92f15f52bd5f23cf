"""The handshake with an upstream: the introduction of the client, and the answer of the upstream."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Raw, Struct

from dynamic_mcp.client import OURSELVES, ClientInfo
from dynamic_mcp.config.resolved import Broken, GroupConfig
from dynamic_mcp.errors import ErrorAnswer, ProtocolViolation
from dynamic_mcp.mcp import revisions, wire
from dynamic_mcp.mcp.revisions import NEWEST
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.upstream.mask import mask_of

if TYPE_CHECKING:
    from dynamic_mcp.upstream.any_link import AnyLink
    from dynamic_mcp.upstream.link import Link

log = logging.getLogger(__name__)

Era = Literal["legacy", "modern"]

# Servers, by group and answer, whose version was reported in the log since the start.
_COMPLAINED: set[tuple[str, str | None]] = set()
# A server that declares nothing is asked for every list; it refuses unknown ones.
_UNDECLARED: Mapping[str, Raw] = dict.fromkeys(("tools", "resources", "prompts"), wire.EMPTY_OBJECT)


class ServerInfo(Struct, frozen=True):
    """The members of the `initialize` result of an upstream, as bytes.

    A modern upstream sends the same by `server/discover`. `lacks` is the era that the upstream does not support.
    """

    result: dict[str, Raw]
    lacks: Era | None = None

    @property
    def is_declared(self) -> bool:
        """True if the upstream declared its capabilities."""
        return "capabilities" in self.result

    @property
    def capabilities(self) -> Mapping[str, Raw]:
        """The capabilities of the upstream, by name; one that declares none may have every list."""
        if not self.is_declared:
            return _UNDECLARED
        try:
            return wire.members(self.result["capabilities"])
        except wire.Malformed:
            return {}

    @property
    def instructions(self) -> str:
        return wire.text(self.result.get("instructions")) or ""

    @property
    def title(self) -> str:
        """The display name of the upstream."""
        try:
            info = wire.members(self.result.get("serverInfo", wire.EMPTY_OBJECT))
        except wire.Malformed:
            return ""
        return wire.text(info.get("title")) or ""


Opened: TypeAlias = "tuple[AnyLink, ServerInfo]"


def complete_info(info: Raw) -> Raw:
    """Return the `clientInfo` of a client, or ours if it lacks members that servers insist on."""
    complete = all(wire.text(wire.member(info, name)) for name in ("name", "version"))
    return info if complete else OURSELVES


def lacking(era: Era | None, server: ServerInfo) -> ServerInfo:
    """Return the answer of an upstream with the era that the upstream does not support."""
    return server if era is None else ServerInfo(server.result, era)


async def initialize(link: Link, hello: ClientInfo, config: GroupConfig) -> ServerInfo:
    """Initialize as the lifecycle of the MCP specification requires.

    A server that answers with an unknown revision, or with none, is served as the closest older one. Raises
    UpstreamError.
    """
    revision = NEWEST if hello.revision.is_stateless else hello.revision
    params = {
        "protocolVersion": Raw(wire.encode(revision.name)),
        "capabilities": hello.capabilities,
        "clientInfo": hello.client_info,
    }
    answer = await link.request("initialize", params, timeout_s=config.timeouts.connect_s)
    result = result_of(answer, config, "initialize")
    name = wire.text(result.get("protocolVersion"))
    if revisions.find(name) not in revisions.LEGACY and (config.name, name) not in _COMPLAINED:
        _COMPLAINED.add((config.name, name))
        answered = "no protocol version" if name is None else f"the unknown protocol version `{name[:40]}`"
        served = revisions.closest_older(name).name
        group_logger(log, config.name).warning(
            "group %s: the server answered with %s; it is served as %s", config.name, answered, served
        )
    link.notify("notifications/initialized")
    return ServerInfo(result)


def error_code(answer: wire.Frame) -> int | None:
    """Return the code of an error; None if there is none."""
    code = wire.value(wire.member(answer.error, "code"))
    return code if isinstance(code, int) else None


def result_of(answer: wire.Frame, config: GroupConfig, what: str) -> dict[str, Raw]:
    """Return the members of a result that the proxy itself must read. Raises ErrorAnswer and ProtocolViolation."""
    if len(answer.error):
        error = bytes(answer.error).decode("utf-8", "replace")
        if not isinstance(config.upstream, Broken):
            error = mask_of(config.upstream)(error)
        message = f"answered {what} with the error {error}"
        raise ErrorAnswer(config.name, message, code=error_code(answer), error=bytes(answer.error))
    try:
        return wire.members(answer.result)
    except wire.Malformed:
        raise ProtocolViolation(config.name, f"answered {what} with something other than an object") from None
