"""Who asks persons for a proxy, as the rest of it knows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from dynamic_mcp.client import Client
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Event

if TYPE_CHECKING:  # loaded with the first rule that asks
    from dynamic_mcp.policy.access import Decision
    from dynamic_mcp.proxy.approval.subject import Right
    from dynamic_mcp.proxy.request import Next, UpstreamRequest


class Approval(Protocol):
    """Asks a person whether requests may be sent."""

    @property
    def pending(self) -> int:
        """How many questions are open."""
        ...

    @property
    def outcomes(self) -> Mapping[str, int]:
        """How many questions have come to which end."""
        ...

    async def send(self, call: UpstreamRequest, decision: Decision, right: Right | None, next: Next) -> Frame:
        """Have a request sent once a person has allowed it, perhaps with arguments that the person has changed.

        `right` says why the client may do it at all, where there are access rules. Raises ApprovalDenied,
        ApprovalNeeded and ApprovalPending.
        """
        ...

    def apply(self, config: Config) -> None:
        """Ask as this config says from now on; what was asked or allowed by other rules is denied."""
        ...

    def release(self, client: Client) -> None:
        """Forget what holds for the session of a client that has gone."""
        ...

    async def close(self) -> None:
        """Deny all that waits."""
        ...


OpenApproval = Callable[[Config, Callable[[Event], None]], Approval]


def open_approval(config: Config, note: Callable[[Event], None]) -> Approval:
    """Return what asks persons in their clients only; `note` takes events."""
    from dynamic_mcp.proxy.approval.human import HumanApproval
    from dynamic_mcp.proxy.approval.queued import make_id

    return HumanApproval(config, note, make_id=make_id)
