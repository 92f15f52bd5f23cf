"""The access rules on the way to an upstream: each request is decided once more, with the arguments that are sent.

What a client may not use is not in its view, so it is refused before, like what does not exist. Here is decided what
depends on arguments, on scopes and on a person, and what has changed since the request began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from msgspec import Raw, structs

from dynamic_mcp.config.access import AccessKind, Effect
from dynamic_mcp.errors import (
    AccessDenied,
    ApprovalDenied,
    ApprovalNeeded,
    MethodNotAllowed,
    MissingScope,
    NotFound,
    ResourceNotFound,
)
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.policy.access import Decision
from dynamic_mcp.proxy.call_form import HARMLESS, check_form
from dynamic_mcp.proxy.chain import Services, Step
from dynamic_mcp.proxy.request import Next, Request, UpstreamRequest
from dynamic_mcp.proxy.view import GroupView
from dynamic_mcp.system.bounded import BoundedDict

_MAX_TASKS = 10_000
_TASKS = frozenset(("tasks/get", "tasks/cancel", "tasks/update", "tasks/result"))
_NO_APPROVALS = "this dynamic-mcp has no approvals, so the call cannot be approved"
_RESOURCES = frozenset(("resources/read", "resources/subscribe"))
_ABOUT_RESOURCES = frozenset(("skills/get", "resources/directory/read"))  # they say no more than a list


class AccessStep(Step):
    """Decides about requests to upstreams, by what their clients may see now."""

    decides = True

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._tools_of_tasks: BoundedDict[tuple[str, str], str] = BoundedDict(_MAX_TASKS)

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        """Decide about a request. Raises AccessDenied, MissingScope and NotFound."""
        decision = self._decide(call.request, call.group, call.method, call.params)
        return next(call if decision is None else structs.replace(call, decision=decision))

    def check(self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw] | None) -> None:
        """Check a subscription, which needs no approval.

        Raises AccessDenied, ApprovalNeeded, MissingScope and NotFound.
        """
        check_form(params or {})
        decision = self._decide(request, group, method, params)
        if decision is not None and decision.must_ask:
            hint = "read the resource whenever you need it: a person is asked then; subscriptions cannot be approved"
            raise ApprovalNeeded(f"`{method}` of group `{group.name}`", hint=hint)

    def recheck(self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw] | None) -> None:
        """Refuse requests that a change of the config has hidden or denied, or that would now need approval."""
        before = request.view.get(group.name)
        if before is not None and before.rules is group.rules:
            return
        before_decision = None if before is None else self._judge(request, before, method, params or {}, before)
        decision = self._judge(request, group, method, params or {}, group)
        if decision is not None and decision.must_ask and (before_decision is None or not before_decision.must_ask):
            raise ApprovalNeeded(f"`{method}` of group `{group.name}`", hint="the rules have changed; try again")

    def record_task(self, group: GroupView, id: str, tool: str) -> None:
        """Remember which tool a task is of: who may not use the tool may not ask about its tasks either."""
        self._tools_of_tasks[group.name, id] = tool

    def _decide(
        self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw] | None
    ) -> Decision | None:
        """Return the decision about a request; None where no rule is about it."""
        decision = self._judge(request, group, method, params or {}, group)
        view = self.services.view_for(request.client)
        current = view.get(group.name)
        if current is None:
            raise NotFound("group", group.name, view.names, hint=view.names_in_words())
        if current.rules is not group.rules:  # the config has changed since
            if current.rules is not None and method not in HARMLESS:
                check_form(params or {})
            decision = self._judge(request, current, method, params or {}, group)
        return decision

    def _judge(
        self, request: Request, group: GroupView, method: str, params: Mapping[str, Raw], visible: GroupView
    ) -> Decision | None:
        """Decide as a view of the group says; `visible` is the view of the client, which has its names."""
        if group.rules is None or method in HARMLESS:
            return None
        match method:
            case "tools/call":
                name = wire.text(params.get("name")) or ""
                return _decide_named(request, group, AccessKind.TOOL, params, visible.shown_name(name))
            case "prompts/get":
                name = wire.text(params.get("name")) or ""
                return _decide_named(request, group, AccessKind.PROMPT, params, name)
            case _ if method in _RESOURCES:
                return _decide_resource(request, group, params.get("uri"))
            case _ if method in _ABOUT_RESOURCES:
                uri = wire.text(params.get("uri")) or ""
                if not group.rules.may_see_resource(uri):
                    raise ResourceNotFound(uri)
            case "completion/complete":
                _check_completion(group, params.get("ref", wire.EMPTY_OBJECT))
            case _ if method in _TASKS:
                self._check_task(group, wire.text(params.get("taskId")) or "")
            case _:
                raise MethodNotAllowed(method)
        return None

    def _check_task(self, group: GroupView, id: str) -> None:
        tool = self._tools_of_tasks.get((group.name, id))
        if tool is None or not group.judge(AccessKind.TOOL, tool).is_visible:
            raise NotFound("task", id)


class RefuseUnapproved(Step):
    """Takes the place of approvals in a program without them."""

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        """Pass on what needs no approval. Raises ApprovalDenied."""
        if call.decision is None or not call.decision.must_ask:
            return next(call)
        raise ApprovalDenied(_name(call), _NO_APPROVALS)


def _name(call: UpstreamRequest) -> str:
    params = call.params or {}
    name = wire.text(params.get("name")) or wire.text(params.get("uri")) or ""
    return f"`{call.group.shown_name(name) if call.method == 'tools/call' else name}` of group `{call.group.name}`"


def _decide_named(
    request: Request, group: GroupView, kind: AccessKind, params: Mapping[str, Raw], shown_name: str
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
    judgement = group.rules.judge(AccessKind.RESOURCE, text)
    if not judgement.is_visible:
        raise ResourceNotFound(text)
    return _enforce(request, judgement.decide(None), f"`{text}` of group `{group.name}`", "")


def _check_completion(group: GroupView, reference: Raw) -> None:
    """Check a completion: it is allowed for targets that may be listed."""
    assert group.rules is not None
    name = wire.text(wire.member(reference, "name")) or ""
    uri = wire.text(wire.member(reference, "uri")) or ""
    if wire.text(wire.member(reference, "type")) == "ref/prompt":
        if not group.judge(AccessKind.PROMPT, name).is_visible:
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
