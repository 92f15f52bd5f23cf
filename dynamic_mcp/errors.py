"""All expected errors, grouped by who must act. Any other exception is a bug.

Each class defines the exit code of a command and the JSON-RPC code of a response. Only the command line
and the session, which all faces share, catch the base class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil
from typing import ClassVar

# JSON-RPC 2.0, section 5.1; REQUEST_TIMEOUT is the code that MCP's SDKs use.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_TIMEOUT = -32001
RESOURCE_NOT_FOUND = -32002  # MCP 2025-11-25, server/resources
INSUFFICIENT_SCOPE = -32003  # ours; over HTTP, its status is 403
URL_ELICITATION_REQUIRED = -32042  # MCP 2025-11-25, client/elicitation
# MCP 2026-07-28, basic, error codes.
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022


class DynamicMcpError(Exception):
    """An error that a user, a model or a server can fix; `hint` says how."""

    exit_code: int = 1
    rpc_code: ClassVar[int] = INTERNAL_ERROR

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class ConfigError(DynamicMcpError):
    """The config file is invalid. `where` is a path in it, such as `mcpServers.github.url`, or a line and column."""

    exit_code = 2

    def __init__(self, file: str, where: str, message: str, *, hint: str = "") -> None:
        place = f"{file}: `{where}`" if where else file
        super().__init__(f"{place}: {message}", hint=hint)
        self.file = file
        self.where = where
        self.problem = f"`{where}`: {message}" if where else message


# A name that a model invents may be megabytes long and must not be repeated in full.
LONGEST_NAME_SHOWN = 500


class NotFound(DynamicMcpError):
    """A name that nothing has; `near` holds those of the `known` names that are closest to it, best first."""

    exit_code = 2
    rpc_code = INVALID_PARAMS

    def __init__(self, kind: str, name: str, names: Iterable[str] = (), *, hint: str = "") -> None:
        self.name = name
        self.near = tuple(closest(name, names))
        guess = "did you mean " + " or ".join(f"`{n}`" for n in self.near) + "?" if self.near else ""
        shown = name if len(name) <= LONGEST_NAME_SHOWN else f"{name[:LONGEST_NAME_SHOWN]}…"
        super().__init__(f"no {kind} is named `{shown}`", hint=" ".join(filter(None, (guess, hint))))


class NothingToUndo(NotFound):
    """There is no change left to undo."""

    def __init__(self) -> None:
        DynamicMcpError.__init__(self, "nothing to undo")
        self.name = ""
        self.near = ()


class ResourceNotFound(NotFound):
    """No group has a resource with this URI."""

    rpc_code = RESOURCE_NOT_FOUND

    def __init__(self, uri: str) -> None:
        super().__init__("resource", uri)


class Disabled(DynamicMcpError):
    """The config disables this feature for a group."""

    exit_code = 2
    rpc_code = METHOD_NOT_FOUND

    def __init__(self, feature: str, group: str) -> None:
        super().__init__(f"the {feature} feature is disabled for group `{group}`")


class AccessDenied(DynamicMcpError):
    """The access rules do not allow this; only for what the client can see, since the rest does not exist for it."""

    exit_code = 3
    rpc_code = INVALID_PARAMS

    def __init__(self, what: str, how: str) -> None:
        super().__init__(f"the access rules do not allow {what}{how and f' {how}'}; nothing was sent")


class ApprovalNeeded(DynamicMcpError):
    """The request needs a user's approval, and this client cannot ask for it."""

    exit_code = 3
    rpc_code = INVALID_PARAMS

    def __init__(self, what: str, *, hint: str = "") -> None:
        self.what = what
        self.reason = "the client cannot ask"
        super().__init__(f"{what} needs approval, and this client cannot ask a person; nothing was sent", hint=hint)


class ApprovalDenied(DynamicMcpError):
    """The user denied approval, or could not be asked; `reason` says why."""

    exit_code = 3
    rpc_code = INVALID_PARAMS

    def __init__(self, what: str, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{what} was not approved: {reason}; nothing was sent")


class ApprovalPending(DynamicMcpError):
    """The user has not decided yet; the same call, repeated, waits for the decision or uses it.

    `id` names the question, and `expires` says until when it waits, in seconds since 1970. Only a local user can run
    the command that decides; on the page, others may have the right to.
    """

    exit_code = 3
    rpc_code = INVALID_PARAMS

    def __init__(self, what: str, id: str, expires: float, *, is_local: bool = True) -> None:
        self.id, self.expires = id, expires
        ask = f"ask the user to run `dynamic-mcp approve allow {id}`"
        if not is_local:
            who = "an administrator or an approver of this dynamic-mcp server"
            ask = f"only {who} can approve it: have the user ask for `{id}`"
        super().__init__(
            f"{what} waits for approval `{id}`; nothing was sent yet",
            hint=f"{ask}, then call again with the same arguments",
        )


class RefusedByGuard(DynamicMcpError):
    """A guard does not let a call with these arguments pass; `rule` is its place in the config."""

    exit_code = 3
    rpc_code = INVALID_PARAMS

    def __init__(self, what: str, rule: str, message: str = "") -> None:
        self.rule = rule
        reason = message or f"`{rule}` does not allow these arguments"
        super().__init__(f"{what} was refused: {reason}; nothing was sent")


class RateLimited(DynamicMcpError):
    """There were too many calls; another one is allowed in `wait_s` seconds."""

    exit_code = 3

    def __init__(self, what: str, rule: str, wait_s: float) -> None:
        self.rule, self.wait_s = rule, wait_s
        super().__init__(f"{what} was called too often; nothing was sent", hint=f"try again in {_in_words(wait_s)}")


class StoreDown(DynamicMcpError):
    """What replicas share decides about a call, and cannot be used now."""

    exit_code = 3

    def __init__(self, what: str, reason: str) -> None:
        hint = "try again later; the administrator of this dynamic-mcp server finds the reason in its log"
        super().__init__(f"{what} was refused: {reason}; nothing was sent", hint=hint)


class DefinitionHeld(DynamicMcpError):
    """The definition of a tool or a prompt has changed, looks dangerous or is unknown, and is not approved."""

    exit_code = 3
    rpc_code = INVALID_PARAMS

    def __init__(self, what: str, group: str, reason: str, *, hint: str) -> None:
        super().__init__(f"{what} of group `{group}` is held back: {reason}; nothing was sent", hint=hint)


class PluginError(DynamicMcpError):
    """A plug-in cannot be loaded or opened, or has failed or hung."""

    def __init__(self, plugin: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"plug-in `{plugin}`: {message}", hint=hint)
        self.plugin = plugin
        self.problem = message


class NotRecorded(DynamicMcpError):
    """The audit log cannot be written, and the config wants nothing changed then that is not recorded."""

    exit_code = 3

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"{what} may change something, and the audit log cannot be written: {reason}; nothing was sent",
            hint="ask the administrator of dynamic-mcp to repair the audit log; calls that only read still work",
        )


class MissingScope(DynamicMcpError):
    """The client's token lacks `scopes` that the access rules want."""

    exit_code = 4
    rpc_code = INSUFFICIENT_SCOPE

    def __init__(self, what: str, scopes: tuple[str, ...]) -> None:
        named = " ".join(scopes)
        super().__init__(
            f"{what} needs a token with the scope `{named}`; nothing was sent", hint="log in again with it"
        )
        self.scopes = scopes


class MethodNotAllowed(DynamicMcpError):
    """The access rules are not about requests of this method, so that none is passed on."""

    exit_code = 3
    rpc_code = METHOD_NOT_FOUND

    def __init__(self, method: str) -> None:
        super().__init__(f"method not found: `{method}`")


class Interrupted(DynamicMcpError):
    """The process that served a request has ended before it could answer."""

    exit_code = 5

    def __init__(self, method: str) -> None:
        super().__init__(
            f"dynamic-mcp ended while this request was in flight; `{method}` may have run, and was not sent again"
        )


class DaemonError(DynamicMcpError):
    """The daemon cannot be started or stopped."""


class Upgraded(DynamicMcpError, ImportError):
    """The files of this program were replaced while it runs, so `module` cannot be loaded any more."""

    def __init__(self, module: str) -> None:
        hint = "restart the AI tool, or the service, that runs it"
        super().__init__("dynamic-mcp was upgraded: restart it", hint=hint)
        self.name = module


class RegistryError(DynamicMcpError):
    """A registry cannot be reached, refuses us, or answers with nonsense."""

    exit_code = 5

    def __init__(self, registry: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"registry `{registry}`: {message}", hint=hint)


class UntrustedPackage(DynamicMcpError):
    """What vouches for a package does not hold: it may not be what it claims to be."""

    exit_code = 3


class ListenError(DynamicMcpError):
    """HTTP cannot be served at an address."""


class UnsafeAddress(ListenError):
    """HTTP is not served at an address that others can reach, unless that is wanted."""

    exit_code = 2


class RelayedError(DynamicMcpError):
    """An error that the daemon reports to a command; `reason` says what happened without naming the group."""

    def __init__(self, message: str, *, hint: str, exit_code: int, reason: str) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
        self.reason = reason


class InvalidArguments(DynamicMcpError):
    """The params of a request do not match what the method accepts."""

    exit_code = 2
    rpc_code = INVALID_PARAMS


# How to give a server a token that a user has created for it.
TOKEN_HINT = "give it one with `--header 'Authorization: Bearer ${TOKEN}'`, in a config with `headers`"  # noqa: S105


class LoginNeeded(DynamicMcpError):
    """A group needs a login. `command` starts one, or the `hint` says what does.

    With `may_want_token`, the server does not say where to log in, so a token may be what it wants.

    `is_done` tells cheaply whether a user has logged in since. With a `scope`, there is a login, but it lacks this
    scope. `why` is the outcome of the last attempt to log in.
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
        hint: str = "",
        may_want_token: bool = False,
    ) -> None:
        what = f"needs a login with the scope `{scope}`" if scope else "needs a login"
        if may_want_token:
            what, hint = "needs a token", hint or f"{TOKEN_HINT}, or run `{command}`, which asks for one or logs in"
        self.reason = f"{what}; {why}" if why else what
        super().__init__(f"group `{group}` {self.reason}", hint=hint or f"run `{command}`")
        self.group = group
        self.scope = scope
        self.why = why
        self.is_done = is_done or (lambda: False)

    def with_hint(self, hint: str) -> LoginNeeded:
        """Return this error for a user who logs in by other means than the command."""
        return LoginNeeded(self.group, "", scope=self.scope, why=self.why, is_done=self.is_done, hint=hint)


class TokenNeeded(LoginNeeded):
    """A group exchanges the token that its caller has shown, and has got none for it; no login of ours helps.

    `is_done` tells whether the caller has shown another one since. With a `scope`, the token lacks this scope.
    """

    def __init__(
        self,
        group: str,
        reason: str,
        *,
        hint: str,
        scope: str | None = None,
        is_done: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(group, "", scope=scope, is_done=is_done, hint=hint)
        self.reason = reason
        DynamicMcpError.__init__(self, f"group `{group}` {reason}", hint=hint)


class UpstreamError(DynamicMcpError):
    """Something went wrong with the server behind a group."""

    exit_code = 5

    def __init__(self, group: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"group `{group}`: {message}", hint=hint)
        self.group = group
        self.reason = message


class Unreachable(UpstreamError):
    """No link could be opened. `final` means that another attempt would fail too."""

    def __init__(self, group: str, message: str, *, hint: str = "", final: bool = False) -> None:
        super().__init__(group, message, hint=hint)
        self.final = final


class LinkLost(UpstreamError):
    """The link ended while the request was in flight."""


class NotSent(LinkLost):
    """The link ended before the request was written, so it certainly did not run."""


class LoginFailed(UpstreamError):
    """A login failed."""


class HttpError(UpstreamError):
    """The server responded with an HTTP error status."""

    def __init__(self, group: str, message: str, *, status: int, hint: str = "") -> None:
        super().__init__(group, message, hint=hint)
        self.status = status


class TimedOut(UpstreamError):
    """The server did not respond in time."""

    rpc_code = REQUEST_TIMEOUT


class Busy(UpstreamError):
    """Too many calls are waiting; nothing was sent."""

    def __init__(self, group: str, message: str) -> None:
        super().__init__(group, message, hint="try again when some of the calls before it are done")


class ProtocolViolation(UpstreamError):
    """The server violated the protocol."""


class ErrorAnswer(UpstreamError):
    """The server answered one of our own requests with a JSON-RPC `error`, as it came; its code is `code`."""

    def __init__(self, group: str, message: str, *, code: int | None = None, error: bytes = b"") -> None:
        super().__init__(group, message)
        self.code = code
        self.error = error

    @property
    def is_unknown(self) -> bool:
        """Return whether the server lacks the method."""
        return self.code == METHOD_NOT_FOUND


class Unanswered(UpstreamError):
    """The server needs an answer of the client to go on, and the client gave none."""


def _in_words(seconds: float) -> str:
    whole = max(1, ceil(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{ceil(whole / 60)} min" if whole <= 7200 else f"{ceil(whole / 3600)} h"


# Comparing two names takes time that grows with the product of their lengths, and a server may have many names.
_LONGEST_COMPARED = 256
_MAX_COMPARED = 2_000_000


def closest(name: str, names: Iterable[str], *, most: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return up to `most` of the names that are similar to `name` in any case, best first; `cutoff` is 0 to 1.

    The work is bounded: long names, and names beyond a limit, are skipped.
    """
    if len(name) > _LONGEST_COMPARED:
        return []
    compared: list[str] = []
    left = _MAX_COMPARED
    for each in names:
        if len(each) <= _LONGEST_COMPARED:
            left -= len(name) * len(each) + 1
            if left < 0:
                break
            compared.append(each)
    by_folded = {each.casefold(): each for each in reversed(compared)}
    if not by_folded:
        return []
    from difflib import get_close_matches  # only after a misspelled name

    return [by_folded[match] for match in get_close_matches(name.casefold(), by_folded, n=most, cutoff=cutoff)]
