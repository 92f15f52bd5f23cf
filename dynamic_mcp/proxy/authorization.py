"""The access rules on the way to an upstream: each request is decided once more, with the arguments that are sent.

What a client may not use is not in its view, so it is refused before, like what does not exist. Here is decided what
depends on arguments, on scopes and on a person, and what has changed since the request began.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from msgspec import Raw, Struct

from dynamic_mcp.client import Client
from dynamic_mcp.config.access import Effect, Kind
from dynamic_mcp.errors import (
    AccessDenied,
    ApprovalNeeded,
    MethodNotAllowed,
    MissingScope,
    NotFound,
    ResourceNotFound,
)
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.access import Decision
from dynamic_mcp.policy.globs import fold
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
_FOLDED_KEYS = frozenset(map(fold, _KEYS))


class Right(Struct, frozen=True):
    """Why a client may do something: its roles, and the rule that allows it; without access rules, neither."""

    roles: tuple[str, ...] = ()
    rule: str = ""


class Authorization:
    """Decides about requests to upstreams. `view_for` returns what a client may see now."""

    def __init__(self, view_for: Callable[[Client], View]) -> None:
        self._view_for = view_for
        self._tools_of_tasks: BoundedDict[tuple[str, str], str] = BoundedDict(_MAX_TASKS)

    def check(self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw] | None) -> None:
        """Let a subscription pass, which nobody is asked about.

        Raises AccessDenied, ApprovalNeeded, MissingScope and NotFound.
        """
        decision = self.decide(request, group, method, params)
        if decision is not None and decision.must_ask:
            hint = "read the resource whenever you need it: a person is asked then; subscriptions cannot be approved"
            raise ApprovalNeeded(f"`{method}` of group `{group.name}`", hint=hint)

    def decide(
        self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw] | None
    ) -> Decision | None:
        """Let a request pass, once a person agrees if the decision says so; None where no rule is about it.

        Raises AccessDenied, MissingScope and NotFound.
        """
        decision = self._decide(request, group, method, params or {}, group)
        view = self._view_for(request.client)
        current = view.get(group.name)
        if current is None:
            raise NotFound("group", group.name, view.names, hint=view.names_in_words())
        if current.rules is not group.rules:  # the config has changed since
            decision = self._decide(request, current, method, params or {}, group)
        return decision

    def find_right(
        self, request: Request, group: GroupView, params: Mapping[str, Raw] | None, decision: Decision
    ) -> Right:
        """Return why a client may do what a person is asked about."""
        rules = self._view_for(request.client).access_rules
        if rules is None:
            return Right()
        rule = decision.allowed_by
        if not rule:  # a guard asks about a tool of a group of which everything is allowed
            name = wire.text((params or {}).get("name")) or ""
            rule = rules.for_group(group.name).judge(Kind.TOOL, name).decide(None).allowed_by
        return Right(tuple(sorted(rules.roles)), rule)

    def note_task(self, group: str, id: str, tool: str) -> None:
        """Note which tool a task is of."""
        self._tools_of_tasks[group, id] = tool

    def _decide(
        self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw], seen: GroupView
    ) -> Decision | None:
        """Decide as a view of the group says; `seen` is that of the client, which has its names."""
        if group.rules is None or method in _HARMLESS:
            return None
        check_form(params)
        match method:
            case "tools/call":
                name = wire.text(params.get("name")) or ""
                return _decide_named(request, group, Kind.TOOL, params, seen.shown_name(name))
            case "prompts/get":
                name = wire.text(params.get("name")) or ""
                return _decide_named(request, group, Kind.PROMPT, params, name)
            case _ if method in _RESOURCES:
                return _decide_resource(request, group, params.get("uri"))
            case "completion/complete":
                _check_completion(group, params.get("ref", wire.EMPTY_OBJECT))
            case _ if method in _TASKS:
                self._check_task(group, wire.text(params.get("taskId")) or "")
            case _:
                raise MethodNotAllowed(method)
        return None

    def _check_task(self, group: GroupView, id: str) -> None:
        tool = self._tools_of_tasks.get((group.name, id))
        if tool is None or not group.judge(Kind.TOOL, tool).is_visible:
            raise NotFound("task", id)


def check_form(params: Mapping[str, Raw]) -> None:
    """Refuse params that servers may read in another way than we do. Raises wire.Malformed.

    Some do not care about the case of a key, some take the first of two equal keys, and some take a list for a text.
    """
    for key, value in params.items():
        if key in _TEXTS and wire.text(value) is None:
            raise wire.Malformed(f"`{key}` is not a string")
        if key not in _KEYS and fold(key) in _FOLDED_KEYS:
            raise wire.Malformed(f"`{key}` is not a parameter")
    if "ref" in params:
        keys: list[str] = json.loads(bytes(params["ref"]), object_pairs_hook=lambda pairs: [key for key, _ in pairs])
        reference = wire.members(params["ref"])
        if len(keys) != len(reference):
            raise wire.Malformed("`ref` has a key twice")
        check_form(reference)


def _decide_named(
    request: Request, group: GroupView, kind: Kind, params: Mapping[str, Raw], shown_name: str
) -> Decision:
    judgement = group.judge(kind, wire.text(params.get("name")) or "")
    if not judgement.is_visible:
        raise NotFound(kind.value, shown_name)
    decision = judgement.decide(params.get("arguments"))
    how = "with these arguments" if judgement.settled is None else ""
    return _enforce(request, decision, f"`{shown_name}` of group `{group.name}`", how)


def _decide_resource(request: Request, group: GroupView, uri: Raw | None) -> Decision:
    text = wire.text(uri) or ""
    assert group.rules is not None
    judgement = group.rules.judge(Kind.RESOURCE, text)
    if not judgement.is_visible:
        raise ResourceNotFound(text)
    return _enforce(request, judgement.decide(None), f"`{text}` of group `{group.name}`", "")


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


def _enforce(request: Request, decision: Decision, what: str, how: str) -> Decision:
    if request.observation is not None:
        request.observation.note_decision(decision)
    if decision.effect is not Effect.DENY:
        return decision
    if decision.scopes:
        raise MissingScope(what, decision.scopes)
    raise AccessDenied(what, how)
