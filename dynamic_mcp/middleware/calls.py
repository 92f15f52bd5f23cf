"""A call on its way to a server, and its result: immutable, and decoded only where a plug-in looks inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from dynamic_mcp.middleware.json_bytes import decode_object, encode_object

CallKind = Literal["tool", "prompt", "resource"]


@dataclass(frozen=True)
class CallerInfo:
    """The caller: `issuer` and `subject` identify the user, `roles` are those of the access rules.

    `client` and `client_version` come from the AI tool, unverified.
    """

    subject: str = "user"
    issuer: str = "local"
    roles: tuple[str, ...] = ()
    client: str = ""
    client_version: str = ""


@dataclass(frozen=True)
class CallRequest:
    """A call of a tool, a prompt to get, or a resource to read.

    `server` is its name in the config, and `name` the server's name of the tool or prompt, or the URI. A call that
    continues after a question to the client may arrive as a new request, with `is_retry`.
    """

    kind: CallKind
    server: str
    name: str
    caller: CallerInfo = CallerInfo()
    raw_arguments: bytes = b"{}"
    raw_meta: bytes = b"{}"
    is_retry: bool = False

    @cached_property
    def arguments(self) -> Mapping[str, Any]:  # Any: JSON
        """The arguments, decoded on access. Raises ValueError if they are not a JSON object."""
        return decode_object(self.raw_arguments)

    @cached_property
    def meta(self) -> Mapping[str, Any]:  # Any: JSON
        """The client's `_meta`. Raises ValueError if it is not a JSON object."""
        return decode_object(self.raw_meta)

    def replace(self, *, arguments: Mapping[str, Any] | bytes) -> CallRequest:  # Any: JSON
        """Return the request with other arguments, to continue with. Raises TypeError and ValueError if not JSON."""
        if self.kind == "resource":
            raise ValueError("a resource is read without arguments")
        raw = arguments if isinstance(arguments, bytes) else encode_object(arguments)
        return replace(self, raw_arguments=raw)


@dataclass(frozen=True, init=False)
class CallResult:
    """A result as MCP defines it for this kind of call: `raw` is its JSON.

    The result of a tool has `content`, of a prompt `messages`, of a resource `contents`.
    """

    raw: bytes

    def __init__(self, result: Mapping[str, Any] | bytes) -> None:  # Any: JSON
        object.__setattr__(self, "raw", result if isinstance(result, bytes) else encode_object(result))

    @classmethod
    def text(cls, text: str, *, structured: Mapping[str, Any] | None = None) -> CallResult:  # Any: JSON
        """Return a tool's result with this text, and with structured content if given."""
        content = {"content": [{"type": "text", "text": text}]}
        return cls(content if structured is None else {**content, "structuredContent": structured})

    @classmethod
    def error(cls, text: str) -> CallResult:
        """Return an error for the model or the user.

        A tool gets a result with `isError`; for a prompt or a resource it becomes a JSON-RPC error.
        """
        return cls({"content": [{"type": "text", "text": text}], "isError": True})

    @cached_property
    def value(self) -> Mapping[str, Any]:  # Any: JSON
        """The result, decoded on access. Raises ValueError if it is not a JSON object."""
        return decode_object(self.raw)

    @property
    def content(self) -> Sequence[Mapping[str, Any]]:  # Any: JSON
        """The blocks of a tool's result; empty if it has no list of them."""
        content = self.value.get("content")
        return content if isinstance(content, list) else []

    @property
    def structured_content(self) -> Any:  # Any: JSON
        """The structured content of a tool's result; None if there is none."""
        return self.value.get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Return whether it is the result of a failed tool."""
        return self.value.get("isError") is True

    @property
    def is_complete(self) -> bool:
        """Return whether the call is done: no question to the client is open, and it does not continue as a task."""
        return "task" not in self.value and self.value.get("resultType", "complete") == "complete"

    def replace(self, **members: Any) -> CallResult:  # Any: JSON
        """Return the result with other members, named as MCP names them: `result.replace(content=[...])`."""
        return CallResult({**self.value, **members})


class CallFailed(Exception):
    """Raised by `next` if the call failed after the plug-in: refused, timed out, or a JSON-RPC error of the server.

    A plug-in that does not catch it changes nothing. `code` is that of the JSON-RPC error.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
