"""Everything that can go wrong on purpose, split by who must act; anything else that is raised is a bug.

Each class fixes the exit code of a command and the JSON-RPC code of an answer. Only the command line
and the session, which every face shares, catch the root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

# JSON-RPC 2.0, section 5.1; REQUEST_TIMEOUT is the code that MCP's SDKs use.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_TIMEOUT = -32001
RESOURCE_NOT_FOUND = -32002  # MCP 2025-11-25, server/resources


class DynamicMcpError(Exception):
    """Something that a person, a model or a server can put right; `hint` says how."""

    exit_code: ClassVar[int] = 1
    rpc_code: ClassVar[int] = INTERNAL_ERROR

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class ConfigError(DynamicMcpError):
    """The config file cannot be used: `where` is the path in it, as `mcpServers.github.url`, or a line and column."""

    exit_code = 2

    def __init__(self, file: str, where: str, message: str, *, hint: str = "") -> None:
        place = f"{file}: `{where}`" if where else file
        super().__init__(f"{place}: {message}", hint=hint)
        self.file = file
        self.where = where
        self.problem = f"`{where}`: {message}" if where else message


# What a model makes up may be megabytes, and must not come back to it whole.
LONGEST_NAME_SHOWN = 500


class NotFound(DynamicMcpError):
    """A name that nothing has; `near` holds those of the `known` names that are closest to it, best first."""

    exit_code = 2
    rpc_code = INVALID_PARAMS

    def __init__(self, kind: str, name: str, known: Iterable[str] = (), *, hint: str = "") -> None:
        self.name = name
        self.near = tuple(closest(name, known))
        guess = "did you mean " + " or ".join(f"`{n}`" for n in self.near) + "?" if self.near else ""
        shown = name if len(name) <= LONGEST_NAME_SHOWN else f"{name[:LONGEST_NAME_SHOWN]}…"
        super().__init__(f"no {kind} is named `{shown}`", hint=" ".join(filter(None, (guess, hint))))


class NothingToUndo(NotFound):
    """No change is left that can be undone."""

    def __init__(self) -> None:
        DynamicMcpError.__init__(self, "there is nothing to undo")
        self.name = ""
        self.near = ()


class ResourceNotFound(NotFound):
    """A URI that no group has."""

    rpc_code = RESOURCE_NOT_FOUND

    def __init__(self, uri: str) -> None:
        super().__init__("resource", uri)


class Disabled(DynamicMcpError):
    """A feature that the config switches off for a group."""

    exit_code = 2
    rpc_code = METHOD_NOT_FOUND

    def __init__(self, feature: str, group: str) -> None:
        super().__init__(f"the {feature} feature is disabled for group `{group}`")


class InvalidArguments(DynamicMcpError):
    """A request whose params are not what the method takes."""

    exit_code = 2
    rpc_code = INVALID_PARAMS


class LoginNeeded(DynamicMcpError):
    """A group that wants a login; `command` starts one, and `is_done` tells, cheaply, when somebody has done it.

    With a `scope` somebody is logged in, but not for this; `why` says what came of a login that was tried.
    """

    exit_code = 4

    def __init__(
        self,
        group: str,
        command: str,
        *,
        scope: str | None = None,
        why: str = "",
        is_done: Callable[[], bool] | None = None,
    ) -> None:
        what = f"needs a login for more: `{scope}`" if scope else "needs a login"
        self.reason = f"{what}; {why}" if why else what
        super().__init__(f"group `{group}` {self.reason}", hint=f"run `{command}`")
        self.group = group
        self.scope = scope
        self.is_done = is_done or (lambda: False)


class UpstreamError(DynamicMcpError):
    """What went wrong with the server behind a group."""

    exit_code = 5

    def __init__(self, group: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"group `{group}`: {message}", hint=hint)
        self.group = group
        self.reason = message


class Unreachable(UpstreamError):
    """No link could be opened; `final` when another attempt cannot end otherwise."""

    def __init__(self, group: str, message: str, *, hint: str = "", final: bool = False) -> None:
        super().__init__(group, message, hint=hint)
        self.final = final


class LinkLost(UpstreamError):
    """The link ended while the request was under way."""


class NotSent(LinkLost):
    """The link was over before the request was written: it certainly did not run."""


class LoginFailed(UpstreamError):
    """A login that came to nothing."""


class HttpError(UpstreamError):
    """The server answered with an HTTP status that is no answer to the request."""

    def __init__(self, group: str, message: str, *, status: int, hint: str = "") -> None:
        super().__init__(group, message, hint=hint)
        self.status = status


class TimedOut(UpstreamError):
    """No answer in time."""

    rpc_code = REQUEST_TIMEOUT


class Busy(UpstreamError):
    """More calls than may wait; nothing was sent."""

    def __init__(self, group: str, message: str) -> None:
        super().__init__(group, message, hint="try again when some of them are done")


class ProtocolViolation(UpstreamError):
    """The server sent something that the protocol does not allow."""


class Refused(UpstreamError):
    """The server answered a request of the proxy's own with a JSON-RPC error; `is_unknown`: it has no such method."""

    def __init__(self, group: str, message: str, *, is_unknown: bool = False) -> None:
        super().__init__(group, message)
        self.is_unknown = is_unknown


def closest(name: str, names: Iterable[str], *, most: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return up to `most` of the names that are similar to `name` in any case, best first; `cutoff` is 0 to 1."""
    by_folded = {each.casefold(): each for each in reversed([*names])}
    if not by_folded:
        return []
    from difflib import get_close_matches  # only when somebody got a name wrong

    return [by_folded[match] for match in get_close_matches(name.casefold(), by_folded, n=most, cutoff=cutoff)]
