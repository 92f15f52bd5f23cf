"""Prepares questions of servers for clients: adds the name of the server, and refuses dangerous URLs.

A client of all servers knows the proxy only, so without a name a user would not know which server asks.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Raw, structs

from dynamic_mcp.client import Client
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.elicitation import required_elicitations
from dynamic_mcp.mcp.own_meta import GROUP
from dynamic_mcp.mcp.wire import Frame

ELICIT = "elicitation/create"
# The members that a person sees, and decides on.
_NAMED = frozenset((ELICIT, "sampling/createMessage"))
# How many questions one answer of a server may ask.
_MAX_QUESTIONS = 50
_LONGEST_URL = 8192
_SCHEMES = ("https://", "http://")
_UNSEEN = re.compile(r"[\x00-\x20\x7f-\xa0\\]")


class UnsafeQuestion(InvalidArguments):
    """A server asks for what its client is not asked."""


def prepare(group: str, client: Client, frame: Frame) -> Frame:
    """Return a request of a server as its client is asked it. Raises UnsafeQuestion.

    A client of this server alone knows who asks, and gets it as it came.
    """
    if frame.method == ELICIT:
        check_elicitation(frame.params)
    if client.only is not None or frame.method not in _NAMED:
        return frame
    return structs.replace(frame, params=_with_name(group, frame.method, frame.params))


def prepare_input(group: str, client: Client, answer: Frame) -> Frame:
    """Return a result of a modern server that asks for input, as its modern client gets it. Raises UnsafeQuestion."""
    requests = wire.members(wire.member(answer.result, "inputRequests") or wire.EMPTY_OBJECT)
    if len(requests) > _MAX_QUESTIONS:
        raise UnsafeQuestion(f"asks {len(requests)} questions at once, and {_MAX_QUESTIONS} are asked at most")
    prepared: dict[str, Raw] = {}
    for key, request in requests.items():
        frame = Frame(method=wire.text(wire.member(request, "method")) or "", params=wire.member(request, "params"))
        changed = prepare(group, client, frame)
        prepared[key] = request if changed is frame else wire.with_member(request, changed.params, "params")
    if all(prepared[key] is request for key, request in requests.items()):
        return answer
    return structs.replace(answer, result=wire.with_member(answer.result, prepared, "inputRequests"))


def prepare_error(group: str, client: Client, answer: Frame) -> Frame:
    """Return an error with the elicitations that it asks for (-32042), named; one that asks for none as it came."""
    if client.only is not None or not (elicitations := required_elicitations(answer.error)):
        return answer
    named = [_with_name(group, ELICIT, each) for each in elicitations]
    return structs.replace(answer, error=wire.with_member(answer.error, named, "data", "elicitations"))


def check_error(answer: Frame) -> Frame:
    """Return an error that may ask for elicitations, or another one if a client must not be asked for them."""
    try:
        for each in required_elicitations(answer.error):
            check_elicitation(each)
    except UnsafeQuestion as exc:
        return wire.error_frame(exc.rpc_code, f"the server {exc.message}")
    return answer


def check_elicitation(params: Raw) -> None:
    """Check the URL of an elicitation, if it has one. Raises UnsafeQuestion."""
    if bytes(params).lstrip()[:1] != b"{":
        return
    members = wire.members(params)
    url = wire.text(members.get("url")) or ""
    is_unclear = "url" in members and _is_twice(params, "url")
    if "url" in members and (is_unclear or not _may_be_opened(url)):
        raise UnsafeQuestion(f"asks a person to open {url[:100]!a}: it must be `https`, or `http` to loopback")


def _is_twice(params: Raw, name: str) -> bool:
    """Return whether an object has a duplicate member: a client may take the value that was not checked."""
    try:
        return wire.list_names(params).count(name) > 1
    except RecursionError:
        return True  # as far as can be told


def _may_be_opened(url: str) -> bool:
    if len(url) > _LONGEST_URL or _UNSEEN.search(url):  # browsers and people read these in other ways
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if not host or parts.username is not None or parts.password is not None or not url.lower().startswith(_SCHEMES):
        return False
    return parts.scheme == "https" or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _with_group(meta: Raw, group: str) -> Raw:
    """Return a `_meta` with the name of a group at its end, and each byte that was there. Raises Malformed."""
    wire.members(meta)
    inner = bytes(meta).strip()[1:-1].strip()
    name = wire.encode({GROUP: group})[1:-1]
    return Raw(b"{%s}" % (b",".join((inner, name)) if inner else name))


def _with_name(group: str, method: str, params: Raw) -> Raw:
    """Return the params of a question with the name of the group that asks: for its user, and for the client."""
    try:
        members = wire.members(params) if len(params) else {}
        message = members.get("message")
        if method == ELICIT and message is not None and wire.text(message) is not None:
            members["message"] = Raw(wire.encode(f"{group} asks: ")[:-1] + bytes(message)[1:])
        members["_meta"] = _with_group(members.get("_meta", wire.EMPTY_OBJECT), group)
        return Raw(wire.encode(members))
    except wire.Malformed:  # a `_meta` that is no object
        raise UnsafeQuestion("asks with params that cannot be read") from None
