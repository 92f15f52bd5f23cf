"""Finds the target of a request for the audit log, also where it was refused before the target was looked up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from dynamic_mcp.config.masking import mask_string
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.request import Observation
from dynamic_mcp.tools.meta_tools import CALLS, GET

EventName = Literal["call", "read", "prompt", "list"]

EVENTS: Mapping[str, EventName] = {"tools/call": "call", "resources/read": "read", "prompts/get": "prompt"}
_KINDS = {"tools/call": "tool", "resources/read": "resource", "prompts/get": "prompt"}

# A name that a model makes up may be megabytes long.
_LONGEST_NAME = 1000
# Of larger requests, only what was refused is looked at again.
_LARGE = 64 * 1024
# W3C Trace Context, section 3.2.
_TRACEPARENT = re.compile(rb'"traceparent"\s*:\s*"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}')
_NOBODY = "0" * 32


class Target(Struct, frozen=True, gc=False):
    """The target of a request. `shown` is the name that the client wrote, if it is another one."""

    event: EventName
    kind: str
    group: str = ""
    name: str = ""
    shown: str = ""
    arguments: Raw = wire.ABSENT


def find_target(observation: Observation) -> Target:
    """Return the target of a request: its group and name if they are known, else what the client wrote."""
    request, group, name = observation.request, observation.group, observation.name
    method = request.method
    kind, event = _KINDS[method], EVENTS[method]
    if group is not None and (kind == "resource" or len(request.params) > _LARGE):
        return Target(event, kind, group.name, _clean(name, kind))
    if group is not None and kind == "tool":
        shown = "" if observation.asked in ("", name) else _shorten(observation.asked)
        return Target(event, kind, group.name, _shorten(name), shown)
    params = _read(request.params)
    target_name = params.uri if kind == "resource" else params.name
    arguments, asked_group = params.arguments, ""
    if kind == "tool" and not request.view.scope.is_single:
        if target_name == GET and group is None:
            return Target("list", "search", name=GET, arguments=arguments)
        if target_name in CALLS:
            call = _read(arguments)
            asked_group, target_name, arguments = call.group, call.name or target_name, call.args
    if group is None:
        return Target(event, kind, _shorten(asked_group), _clean(target_name, kind), arguments=arguments)
    return Target(event, kind, group.name, _shorten(name), "" if target_name == name else _shorten(target_name))


def find_trace(meta: Raw | None) -> str:
    """Return the trace id in the `_meta` of params; empty if there is none."""
    if meta is None or not len(meta) or len(meta) > _LARGE:
        return ""
    found = _TRACEPARENT.search(meta)
    trace = "" if found is None else found[1].decode()
    return "" if trace == _NOBODY else trace


class _Members(Struct, frozen=True, gc=False):
    """The members that may name a target, in params or in the arguments of our own tools."""

    name: str = ""
    uri: str = ""
    group: str = ""
    arguments: Raw = wire.ABSENT
    args: Raw = wire.ABSENT


_decode = msgspec.json.Decoder(_Members).decode
_NOTHING = _Members()


def _read(data: Raw) -> _Members:
    if not len(data):
        return _NOTHING
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _read_odd(data)


def _read_odd(data: Raw) -> _Members:
    """Read what has other types than it should, or is JSON in a text, as some models write arguments."""
    text = wire.text(data)
    try:
        found = wire.members(data if text is None else text.strip().encode(errors="replace"))
    except wire.Malformed:
        return _NOTHING
    name, uri, group = (wire.text(found.get(name)) or "" for name in ("name", "uri", "group"))
    return _Members(name, uri, group, found.get("arguments", wire.ABSENT), found.get("args", wire.ABSENT))


def _clean(name: str, kind: str) -> str:
    """Return a name that is not too long, and a URI without secrets."""
    return _shorten(mask_string(name[: 2 * _LONGEST_NAME]) if kind == "resource" else name)


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
