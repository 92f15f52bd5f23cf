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
    """Who calls: `issuer` and `subject` name the person, `roles` are those of the access rules.

    `client` and `client_version` are what the AI tool calls itself; anybody can call himself so.
    """

    subject: str = "user"
    issuer: str = "local"
    roles: tuple[str, ...] = ()
    client: str = ""
    client_version: str = ""


@dataclass(frozen=True)
class CallRequest:
    """A call of a tool, a prompt that is got, or a resource that is read.

    `server` is its name in the config, and `name` the server's own name of the tool or prompt, or the URI. A call
    that goes on after a question to the client may come as a request of its own, with `is_retry`.
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
        """The arguments, decoded when they are asked for. Raises ValueError if they are no JSON object."""
        return decode_object(self.raw_arguments)

    @cached_property
    def meta(self) -> Mapping[str, Any]:  # Any: JSON
        """What the client has put into `_meta`. Raises ValueError if that is no JSON object."""
        return decode_object(self.raw_meta)

    def replace(self, *, arguments: Mapping[str, Any] | bytes) -> CallRequest:  # Any: JSON
        """Return the request with other arguments, to go on with it. Raises TypeError and ValueError if not JSON."""
        if self.kind == "resource":
            raise ValueError("a resource is read without arguments")
        raw = arguments if isinstance(arguments, bytes) else encode_object(arguments)
        return replace(self, raw_arguments=raw)


@dataclass(frozen=True, init=False)
class CallResult:
    """A result as MCP defines it for the kind of call: `raw` is its JSON.

    Of a tool it has `content`, of a prompt `messages`, of a resource `contents`.
    """

    raw: bytes

    def __init__(self, result: Mapping[str, Any] | bytes) -> None:  # Any: JSON
        object.__setattr__(self, "raw", result if isinstance(result, bytes) else encode_object(result))

    @classmethod
    def text(cls, text: str, *, structured: Mapping[str, Any] | None = None) -> CallResult:  # Any: JSON
        """Return the result of a tool that says this, with structured content if it is given."""
        content = {"content": [{"type": "text", "text": text}]}
        return cls(content if structured is None else {**content, "structuredContent": structured})

    @classmethod
    def error(cls, text: str) -> CallResult:
        """Return an error that the model or the person reads.

        It is a result with `isError` of a tool; of a prompt or a resource it becomes a JSON-RPC error.
        """
        return cls({"content": [{"type": "text", "text": text}], "isError": True})

    @cached_property
    def value(self) -> Mapping[str, Any]:  # Any: JSON
        """The result, decoded when it is asked for. Raises ValueError if it is no JSON object."""
        return decode_object(self.raw)

    @property
    def content(self) -> Sequence[Mapping[str, Any]]:  # Any: JSON
        """The blocks of a tool's result; none if it has no list of them."""
        content = self.value.get("content")
        return content if isinstance(content, list) else []

    @property
    def structured_content(self) -> Any:  # Any: JSON
        """The structured content of a tool's result; None if there is none."""
        return self.value.get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Whether it is the result of a tool that has failed."""
        return self.value.get("isError") is True

    @property
    def is_complete(self) -> bool:
        """Whether the call is done: the server neither asks the client something, nor goes on as a task."""
        return "task" not in self.value and self.value.get("resultType", "complete") == "complete"

    def replace(self, **members: Any) -> CallResult:  # Any: JSON
        """Return the result with other members, named as MCP names them: `result.replace(content=[...])`."""
        return CallResult({**self.value, **members})


class CallFailed(Exception):
    """What `next` raises if the call failed after the plug-in: refused, timed out, or a JSON-RPC error of the server.

    A plug-in that does not catch it changes nothing. `code` is that of the JSON-RPC error.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
