"""The access rules on the way to an upstream: each request is decided once more, with the arguments that are sent.

What a client may not use is not in its view, so it is refused before, like what does not exist. Here is decided what
depends on arguments, on scopes and on a person, and what has changed since the request began.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from msgspec import Raw

from dynamic_mcp.config.access import Effect, Kind
from dynamic_mcp.errors import (
    AccessDenied,
    ApprovalNeeded,
    MethodNotAllowed,
    MissingScope,
    NotFound,
    ResourceNotFound,
)
from dynamic_mcp.groups.audience import Client
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.access import Decision
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.system.bounded import BoundedDict

_MAX_TASKS = 10_000
_TASKS = frozenset(("tasks/get", "tasks/cancel", "tasks/update", "tasks/result"))
_RESOURCES = frozenset(("resources/read", "resources/subscribe"))
# What concerns nothing that rules are about, or only what was decided before.
_HARMLESS = frozenset(
    (
        "ping",
        "logging/setLevel",
        "resources/unsubscribe",
        "tasks/list",
    )
)
# Parameters that say what a request is about.
_TEXTS = frozenset(("name", "uri", "taskId", "type"))
_KEYS = _TEXTS | {"arguments", "ref"}
_FOLDED_KEYS = frozenset(key.casefold() for key in _KEYS)


class Authorization:
    """Decides about requests to upstreams. `view_for` returns what a client may see now."""

    def __init__(self, view_for: Callable[[Client], View]) -> None:
        self._view_for = view_for
        self._tools_of_tasks: BoundedDict[tuple[str, str], str] = BoundedDict(_MAX_TASKS)

    def check(self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw] | None) -> None:
        """Let a request pass, or raise AccessDenied, ApprovalNeeded, MissingScope or NotFound."""
        self._check(group, method, params or {})
        view = self._view_for(request.client)
        current = view.get(group.name)
        if current is None:
            raise NotFound("group", group.name, view.names, hint=view.names_in_words())
        if current.rules is not group.rules:  # the config has changed since
            self._check(current, method, params or {})

    def note_task(self, group: str, id: str, tool: str) -> None:
        """Note which tool a task is of."""
        self._tools_of_tasks[group, id] = tool

    def _check(self, group: GroupView, method: str, params: Mapping[str, Raw]) -> None:
        if group.rules is None or method in _HARMLESS:
            return
        _check_form(params)
        if method == "tools/call":
            _check_named(group, Kind.TOOL, params.get("name"), params.get("arguments"))
        elif method == "prompts/get":
            _check_named(group, Kind.PROMPT, params.get("name"), params.get("arguments"))
        elif method in _RESOURCES:
            _check_resource(group, params.get("uri"))
        elif method == "completion/complete":
            _check_completion(group, params.get("ref", wire.EMPTY_OBJECT))
        elif method in _TASKS:
            self._check_task(group, wire.text(params.get("taskId")) or "")
        else:
            raise MethodNotAllowed(method)

    def _check_task(self, group: GroupView, id: str) -> None:
        tool = self._tools_of_tasks.get((group.name, id))
        if tool is None or not group.judge(Kind.TOOL, tool).is_visible:
            raise NotFound("task", id)


def _check_form(params: Mapping[str, Raw]) -> None:
    """Refuse what servers may read in another way than we do. Raises wire.Malformed.

    Some do not care about the case of a key, some take the first of two equal keys, and some take a list for a text.
    """
    for key, value in params.items():
        if key in _TEXTS and wire.text(value) is None:
            raise wire.Malformed(f"`{key}` is not a string")
        if key not in _KEYS and key.casefold() in _FOLDED_KEYS:
            raise wire.Malformed(f"`{key}` is not a parameter")
    if "ref" in params:
        keys: list[str] = json.loads(bytes(params["ref"]), object_pairs_hook=lambda pairs: [key for key, _ in pairs])
        reference = wire.members(params["ref"])
        if len(keys) != len(reference):
            raise wire.Malformed("`ref` has a key twice")
        _check_form(reference)


def _check_named(group: GroupView, kind: Kind, name: Raw | None, arguments: Raw | None) -> None:
    text = wire.text(name) or ""
    judgement = group.judge(kind, text)
    if not judgement.is_visible:
        raise NotFound(kind.value, text)
    what = f"`{text}` of group `{group.name}`"
    _enforce(judgement.decide(arguments), what, "with these arguments" if judgement.settled is None else "")


def _check_resource(group: GroupView, uri: Raw | None) -> None:
    text = wire.text(uri) or ""
    assert group.rules is not None
    judgement = group.rules.judge(Kind.RESOURCE, text)
    if not judgement.is_visible:
        raise ResourceNotFound(text)
    _enforce(judgement.decide(None), f"`{text}` of group `{group.name}`", "")


def _check_completion(group: GroupView, reference: Raw) -> None:
    """Let completions pass for what may be listed: they say nothing of what it does."""
    assert group.rules is not None
    name = wire.text(wire.member(reference, "name")) or ""
    uri = wire.text(wire.member(reference, "uri")) or ""
    if wire.text(wire.member(reference, "type")) == "ref/prompt":
        if not group.judge(Kind.PROMPT, name).is_visible:
            raise NotFound("prompt", name)
    elif not (group.rules.shows_template(uri) if "{" in uri else group.rules.may_see_resource(uri)):
        raise ResourceNotFound(uri)


def _enforce(decision: Decision, what: str, how: str) -> None:
    match decision.effect:
        case Effect.ALLOW:
            return
        case Effect.ASK:
            raise ApprovalNeeded(what)
        case Effect.DENY if decision.scopes:
            raise MissingScope(what, decision.scopes)
        case Effect.DENY:
            raise AccessDenied(what, how)
