"""What takes the place of the handshake with a modern upstream: it is asked what it is (`server/discover`).

MCP 2026-07-28, versioning, backward compatibility: what a server answers shows its era.
"""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.errors import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    HttpError,
    ProtocolViolation,
    Refused,
)
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.revisions import LEGACY, MODERN
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.upstream.handshake import ServerHello, error_code, result_of
from dynamic_mcp.upstream.link import Link
from dynamic_mcp.upstream.modern_stamp import Stamp

# Errors that only modern servers answer with.
MODERN_ERRORS = frozenset((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION))
# Statuses that say nothing of a server's era, besides those of 500 and above.
_INCONCLUSIVE = frozenset((401, 403, 407, 408, 429))
# Members of the result that are not about the server.
_NOT_SAID = frozenset(("supportedVersions", "_meta", envelope.RESULT_TYPE, envelope.TTL_MS, envelope.CACHE_SCOPE))


async def discover(link: Link, stamp: Stamp, config: GroupConfig, within_s: float) -> ServerHello | None:
    """Ask an upstream what it is; None if it shows that it is legacy.

    Raises Refused for a modern upstream that has no revision in common with the proxy, and UpstreamError and
    LoginNeeded where its era remains unknown.
    """
    try:
        answer = await _ask(link, stamp, within_s)
    except HttpError as exc:
        if exc.status >= 500 or exc.status in _INCONCLUSIVE:
            raise
        return None
    except ProtocolViolation:
        return None
    code = error_code(answer)
    if len(answer.error) and code not in MODERN_ERRORS:
        return None
    if code == UNSUPPORTED_VERSION:
        _check_versions(wire.member(answer.error, "data", "supported"), config)
        return None
    try:
        result = result_of(answer, config, "server/discover")
    except ProtocolViolation:
        return None
    if "supportedVersions" not in result:
        return None
    if MODERN.name not in _versions(result["supportedVersions"]):
        _check_versions(result["supportedVersions"], config)
        return None
    said = {name: value for name, value in result.items() if name not in _NOT_SAID}
    server_info = envelope.meta_of(result).get(envelope.SERVER_INFO)
    if server_info is not None:
        said["serverInfo"] = server_info
    return ServerHello({"protocolVersion": Raw(wire.encode(MODERN.name)), **said})


async def _ask(link: Link, stamp: Stamp, within_s: float) -> Frame:
    """Ask once more if the upstream refuses our revision and names it as one that it speaks."""
    answer = await link.request("server/discover", stamp.params(), timeout_s=within_s)
    supported = wire.member(answer.error, "data", "supported")
    if error_code(answer) != UNSUPPORTED_VERSION or MODERN.name not in _versions(supported):
        return answer
    return await link.request("server/discover", stamp.params(), timeout_s=within_s)


def _check_versions(versions: Raw, config: GroupConfig) -> None:
    """Return if an upstream without our modern revision speaks a legacy one. Raises Refused."""
    names = _versions(versions)
    if not any(revision.name in names for revision in LEGACY):
        if MODERN.name in names:
            raise Refused(config.name, f"refuses `{MODERN.name}`, which it says it speaks", code=UNSUPPORTED_VERSION)
        shown = ", ".join(f"`{name[:40]}`" for name in names[:5]) or "no version that it names"
        raise Refused(config.name, f"speaks {shown}, and the proxy does not", code=UNSUPPORTED_VERSION)


def _versions(versions: Raw) -> list[str]:
    try:
        return [name for each in wire.elements(versions) if (name := wire.text(each)) is not None]
    except wire.Malformed:
        return []
