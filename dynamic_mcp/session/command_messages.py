"""The messages between a command and its daemon beyond MCP. Only the sessions of commands may send them.

An error of the daemon keeps its exit code and its hint, and an error of an upstream keeps its bytes.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from dynamic_mcp.config.resolved import Config, Timeouts
from dynamic_mcp.errors import INTERNAL_ERROR, DynamicMcpError, RelayedError, UpstreamError
from dynamic_mcp.groups.catalog import Catalog, decode_catalog, encode_catalog
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.decoding import decode_as

# Selects the session's view; the answer has its groups.
VIEW = "dynamic-mcp/view"
# Returns the requested lists of a group; REREAD first reads its tools again.
CATALOG = "dynamic-mcp/catalog"
REREAD = "dynamic-mcp/reread"
PING = "dynamic-mcp/ping"
SESSIONS = "dynamic-mcp/sessions"
# Serves the page for people, if it is not served yet.
OPEN_UI = "dynamic-mcp/ui"


class GroupOptions(Struct, frozen=True):
    """The options of a group for one command; `result_limit` is in bytes."""

    timeouts: Timeouts
    result_limit: int


class ViewOptions(Struct, frozen=True):
    """The groups that a command sees, and how it uses each."""

    groups: dict[str, GroupOptions]
    split_calls: bool


class GroupFacts(Struct, frozen=True):
    """A group without its catalog; `complaint` says which of its lists are missing, and why."""

    name: str
    description: str
    features: list[str]
    is_ready: bool
    complaint: str


class GroupFactsList(Struct, frozen=True):
    """The groups that a command sees."""

    groups: list[GroupFacts]


class CatalogRequest(Struct, frozen=True):
    """A group, and the kinds of lists that are requested."""

    group: str
    kinds: list[str] = []


class CatalogAnswer(Struct, frozen=True):
    """A group and its catalog."""

    group: GroupFacts
    catalog: Raw

    @classmethod
    def build(cls, group: GroupFacts, catalog: Catalog) -> CatalogAnswer:
        return cls(group, Raw(wire.encode(encode_catalog(catalog))))

    def read_catalog(self) -> Catalog:
        return decode_catalog(wire.members(self.catalog))


class SessionList(Struct, frozen=True):
    """The names of the daemon's clients, without commands, and its process id."""

    clients: list[str]
    process: int


class UiAddress(Struct, frozen=True):
    """The URL that the path of the page is below."""

    url: str


class _ErrorData(Struct, frozen=True):
    """`upstream` is the JSON-RPC error of a server; the other members are about an error of the daemon."""

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
    """Return the exception for an error from the daemon."""
    decoded = decode_as(error, _Error)
    data = decoded.data
    if len(data.upstream):
        return upstream_error(data.upstream, group)
    return RelayedError(decoded.message, hint=data.hint, exit_code=data.exit_code, reason=data.reason)


def upstream_error(error: Raw, group: str) -> UpstreamError:
    """Return the exception for the JSON-RPC error of an upstream."""
    message = wire.text(wire.member(error, "message")) or bytes(error).decode()
    code = bytes(wire.member(error, "code")).decode()
    return UpstreamError(group, f"the server answered with error {code}: {message}")
