"""What a command and its daemon say to each other beyond MCP. Only the session of a command is answered.

An error of the daemon itself keeps its exit code and its hint on the way, and one of an upstream its bytes.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from dynamic_mcp.config.resolved import Config, Timeouts
from dynamic_mcp.errors import INTERNAL_ERROR, DynamicMcpError, RelayedError, UpstreamError
from dynamic_mcp.groups.catalog import Catalog, decode_catalog, encode_catalog
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.decoding import decode_as

# Choose what the session sees; the answer has the groups.
VIEW = "dynamic-mcp/view"
# A group's catalog, as far as these lists of it are wanted; the same after reading its tools again.
CATALOG = "dynamic-mcp/catalog"
REREAD = "dynamic-mcp/reread"
PING = "dynamic-mcp/ping"
SESSIONS = "dynamic-mcp/sessions"


class GroupOptions(Struct, frozen=True):
    """How a command uses a group: `result_limit` is in bytes."""

    timeouts: Timeouts
    result_limit: int


class ViewOptions(Struct, frozen=True):
    """What a command sees: these groups only, each used as it says."""

    groups: dict[str, GroupOptions]
    split_calls: bool


class GroupFacts(Struct, frozen=True):
    """A group without its catalog; `complaint` says what is missing from its lists, and why."""

    name: str
    description: str
    features: list[str]
    is_ready: bool
    complaint: str


class GroupFactsList(Struct, frozen=True):
    """The groups that a command sees."""

    groups: list[GroupFacts]


class CatalogRequest(Struct, frozen=True):
    """Which group, and which of its lists by the name of their kind."""

    group: str
    kinds: list[str] = []


class CatalogAnswer(Struct, frozen=True):
    """A group, and what it offers."""

    group: GroupFacts
    catalog: Raw

    @classmethod
    def build(cls, group: GroupFacts, catalog: Catalog) -> CatalogAnswer:
        """Return the answer that has this catalog."""
        return cls(group, Raw(wire.encode(encode_catalog(catalog))))

    def read_catalog(self) -> Catalog:
        """Return the catalog."""
        return decode_catalog(wire.members(self.catalog))


class SessionList(Struct, frozen=True):
    """The clients of the daemon that are no commands, by their names for themselves, and its process id."""

    clients: list[str]
    process: int


class _ErrorData(Struct, frozen=True):
    """`upstream` is the JSON-RPC error of a server; the rest is about an error of the daemon."""

    exit_code: int = DynamicMcpError.exit_code
    hint: str = ""
    reason: str = ""
    upstream: Raw = wire.ABSENT


class _Error(Struct, frozen=True):
    message: str
    data: _ErrorData = _ErrorData()


def view_options(config: Config) -> ViewOptions:
    """Return what a command with this config sees."""
    return ViewOptions(
        {
            group.name: GroupOptions(group.timeouts, config.presentations[group.name].answers.limit)
            for group in config.groups
        },
        config.split_calls,
    )


def encode_error(exc: DynamicMcpError) -> Frame:
    """Return the answer to a request that failed in the daemon."""
    data = {"exit_code": exc.exit_code, "hint": exc.hint, "reason": getattr(exc, "reason", exc.message)}
    return wire.error_frame(exc.rpc_code, exc.message, data)


def encode_upstream_error(error: Raw) -> Frame:
    """Return the answer to a request that an upstream answered with a JSON-RPC error."""
    return wire.error_frame(INTERNAL_ERROR, "the server answered with an error", {"upstream": error})


def decode_error(error: Raw, group: str) -> DynamicMcpError:
    """Return what a command raises for an error that the daemon has sent."""
    found = decode_as(error, _Error)
    if len(found.data.upstream):
        return upstream_error(found.data.upstream, group)
    return RelayedError(found.message, hint=found.data.hint, exit_code=found.data.exit_code, reason=found.data.reason)


def upstream_error(error: Raw, group: str) -> UpstreamError:
    """Return what a command raises for the JSON-RPC error of an upstream."""
    message = wire.text(wire.member(error, "message")) or bytes(error).decode()
    code = bytes(wire.member(error, "code")).decode()
    return UpstreamError(group, f"the server answered with error {code}: {message}")
