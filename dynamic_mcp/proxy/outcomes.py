"""The outcome of a request, in the words that the audit log, spans and metrics share (`error.type` of OpenTelemetry).

Who failed decides: a server by its JSON-RPC code, a tool by `tool_error`, and we by the name of our error's class,
whatever the client receives.
"""

from __future__ import annotations

import asyncio
import re

import msgspec
from msgspec import Struct

from dynamic_mcp import errors
from dynamic_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    DynamicMcpError,
    MissingScope,
)
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.mcp.wire import Frame

TOOL_ERROR = "tool_error"
CANCELLED = "cancelled"
BUG = "internal_error"
# A code that is none, and in metrics all that we do not know: a server may make up any number of them.
OTHER = "_OTHER"

_CODES = frozenset(str(code) for code in vars(errors).values() if isinstance(code, int))
# Whoever answers with one of these is not to blame.
_BY_CALLER = frozenset((PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, RESOURCE_NOT_FOUND))
_CODES_BY_CALLER = frozenset(map(str, _BY_CALLER))
_CODE = re.compile(rb"-?[0-9]{1,19}")
_IS_ERROR = b'"isError"'


class Outcome(Struct, frozen=True):
    """The outcome of a request; `error_type` is empty for a success.

    `code` and `message` are of the JSON-RPC error that it is answered with, if it is. `blames_caller` says that
    only the caller is to blame.
    """

    error_type: str = ""
    code: str = ""
    message: str = ""
    blames_caller: bool = False

    @property
    def label(self) -> str:
        """The kind of failure, as one of a few words."""
        return known_code(self.error_type)


WELL = Outcome()


def known_code(error: str) -> str:
    """Return an error's name, or its code if it is one that MCP, JSON-RPC or we use."""
    return error if error in _CODES or not error.lstrip("-").isdecimal() else OTHER


def outcome_of(method: str, answer: Frame | None, error: BaseException | None) -> Outcome:
    """Return the outcome of a client's request."""
    return _of_error(method, error) if answer is None else read_answer(method, answer)


def blame_server(outcome: Outcome, sent: Outcome) -> Outcome:
    """Return the outcome of a request whose result is an error; `sent` is the outcome of the request to the upstream.

    A model is told in a result with which code a server has refused a call: that is still the server's error.
    """
    return Outcome(sent.error_type, blames_caller=sent.blames_caller) if sent.code else outcome


def upstream_outcome_of(method: str, answer: Frame | None, error: BaseException | None) -> Outcome:
    """Return the outcome of a request to an upstream."""
    if answer is not None:
        return read_answer(method, answer)
    return Outcome(CANCELLED) if isinstance(error, asyncio.CancelledError) else Outcome(_name(error))


def read_answer(method: str, answer: Frame) -> Outcome:
    """Return the outcome that an answer states."""
    if len(answer.error):
        data = bytes(wire.member(answer.error, "code"))
        code = data.decode() if _CODE.fullmatch(data) else OTHER
        message = wire.text(wire.member(answer.error, "message")) or ""
        return Outcome(code, code, message, blames_caller=code in _CODES_BY_CALLER)
    return Outcome(TOOL_ERROR) if method == "tools/call" and _is_error(answer) else WELL


def _of_error(method: str, error: BaseException | None) -> Outcome:
    match error:
        case asyncio.CancelledError():
            return Outcome(CANCELLED, blames_caller=True)
        case DynamicMcpError():
            blames_caller = error.rpc_code in _BY_CALLER or isinstance(error, MissingScope)
            if method == "tools/call" and not isinstance(error, MissingScope):
                return Outcome(_name(error), blames_caller=blames_caller)
            return Outcome(_name(error), str(error.rpc_code), error.message, blames_caller)
        case wire.Malformed() | StateRefused():
            return Outcome(_name(error), str(INVALID_PARAMS), str(error), blames_caller=True)
    return Outcome(BUG, str(INTERNAL_ERROR), "internal error of dynamic-mcp")


def _name(error: BaseException | None) -> str:
    return type(error).__name__ if isinstance(error, DynamicMcpError | wire.Malformed | StateRefused) else BUG


class _Result(Struct):
    is_error: bool = msgspec.field(name="isError", default=False)


_decode = msgspec.json.Decoder(_Result).decode


def _is_error(answer: Frame) -> bool:
    if _IS_ERROR not in bytes(answer.result):
        return False
    try:
        return _decode(answer.result).is_error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
