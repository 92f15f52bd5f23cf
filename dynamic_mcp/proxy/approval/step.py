"""Approval on the way of calls: what access rules and guards ask about waits for a person."""

from __future__ import annotations

from collections.abc import Awaitable

from dynamic_mcp.config.access import Kind
from dynamic_mcp.errors import ApprovalNeeded
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.policy.access import Decision
from dynamic_mcp.proxy.approval.subject import Right
from dynamic_mcp.proxy.chain import ChangingStep
from dynamic_mcp.proxy.request import Next, Restart, UpstreamRequest


class AskForApproval(ChangingStep):
    """Asks a person where the decision so far says so."""

    def __call__(self, call: UpstreamRequest, next: Next, restart: Restart) -> Awaitable[Frame]:
        """Pass a call on at once, or once a person allows it: by then arguments and config may be others."""
        if call.decision is None or not call.decision.must_ask:
            return next(call)
        return self._ask(call, call.decision, lambda allowed: restart(allowed, next))

    async def _ask(self, call: UpstreamRequest, decision: Decision, following: Next) -> Frame:
        approval = self.services.approval
        if approval is None:
            raise ApprovalNeeded(f"{call.label or call.method} of group `{call.group.name}`")
        return await approval.send(call, decision, self._find_right(call, decision), following)

    def _find_right(self, call: UpstreamRequest, decision: Decision) -> Right | None:
        """Return why the client may do what a person is asked about; None without access rules."""
        rules = self.services.view_for(call.request.client).access_rules
        if rules is None:
            return None
        rule = decision.allowed_by
        if not rule:  # a guard asks about a tool of a group of which everything is allowed
            name = wire.text((call.params or {}).get("name")) or ""
            rule = rules.for_group(call.group.name).judge(Kind.TOOL, name).decide(None).allowed_by
        return Right(tuple(sorted(rules.roles)), rule)
