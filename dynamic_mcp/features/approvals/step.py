"""The approvals step: calls that access rules and guards ask about wait for a user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from dynamic_mcp.client import Client
from dynamic_mcp.config.access import AccessKind
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.approvals.subject import Right
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.policy.access import Decision
from dynamic_mcp.proxy.chain import ChangingStep, Services
from dynamic_mcp.proxy.request import CallPlan, Next, Request, Restart, UpstreamRequest

if TYPE_CHECKING:  # loaded with the first rule that asks
    from dynamic_mcp.features.approvals.human import HumanApproval
    from dynamic_mcp.system.shared_store import SharedStore


def make_approval(services: Services) -> HumanApproval:
    """Return an approval that asks in clients and, unless the proxy is a command's, in the queue of `approve`."""
    from dynamic_mcp.features.approvals.human import HumanApproval
    from dynamic_mcp.features.approvals.notices import ApprovalNotices
    from dynamic_mcp.features.approvals.queue import ApprovalServer
    from dynamic_mcp.features.approvals.store import FOLDER

    folder = services.state_folder
    if folder is None:
        return HumanApproval(services.config, services.note, clock=services.clock, is_command=True)
    return HumanApproval(
        services.config,
        services.note,
        clock=services.clock,
        open_server=lambda receive: ApprovalServer(folder / FOLDER, receive),
        notices=ApprovalNotices(),
    )


class AskForApproval(ChangingStep):
    """Asks a user if the decision so far requires it."""

    def __init__(self, services: Services, make: Callable[[Services], HumanApproval] = make_approval) -> None:
        super().__init__(services)
        self._make = make
        self._human: HumanApproval | None = None
        if services.config.asks:
            self._approval()

    def __call__(self, call: UpstreamRequest, next: Next, restart: Restart) -> Awaitable[Frame]:
        """Pass a call on at once, or once a user allows it; arguments and config may have changed by then."""
        decision = call.decision
        if decision is None or not decision.must_ask:
            return next(call)
        right = self._find_right(call, decision)
        return self._approval().send(call, decision, right, lambda allowed: restart(allowed, next))

    async def ask_ahead(self, request: Request, plan: CallPlan) -> None:
        await self._approval().ask_ahead(request, plan, self._find_right)

    def apply(self, configs: Iterable[Config]) -> None:
        if self._human is not None:
            self._human.apply(self.services.config)

    def release(self, client: Client) -> None:
        if self._human is not None:
            self._human.release(client)

    def share(self, store: SharedStore | None) -> None:
        if self._human is not None:
            self._share(self._human, store)

    async def close(self) -> None:
        if self._human is not None:
            await self._human.close()

    def _approval(self) -> HumanApproval:
        if self._human is None:
            self._human = self._make(self.services)
            self.services.approvals = self._human.counts
            if self.services.shared_store is not None:
                self._share(self._human, self.services.shared_store)
        return self._human

    def _share(self, human: HumanApproval, store: SharedStore | None) -> None:
        folder = self.services.state_folder
        if store is None or folder is None:
            human.share(None, None)
            return
        from dynamic_mcp.features.approvals.shared import SharedCalls
        from dynamic_mcp.features.approvals.shared_grants import SharedGrants
        from dynamic_mcp.features.approvals.store import FOLDER

        config = str(self.services.config.file)
        human.share(
            lambda server: SharedCalls(store, server, folder / FOLDER, config),
            lambda *arguments: SharedGrants(store, *arguments),
        )

    def _find_right(self, call: UpstreamRequest, decision: Decision) -> Right | None:
        """Return why the client may make the call; None without access rules."""
        rules = self.services.view_for(call.request.client).access_rules
        if rules is None:
            return None
        rule = decision.allowed_by
        if not rule:  # a guard asks about a tool of a group of which everything is allowed
            name = wire.text((call.params or {}).get("name")) or ""
            rule = rules.for_group(call.group.name).judge(AccessKind.TOOL, name).decide(None).allowed_by
        return Right(tuple(sorted(rules.roles)), rule)
