"""How a serving proxy asks persons: in their clients, and in the queue that `dynamic-mcp approve` answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.proxy.request import Event

if TYPE_CHECKING:  # loaded with the first rule that asks
    from dynamic_mcp.proxy.approval.approval import Approval
    from dynamic_mcp.proxy.approval.notices import ApprovalNotices


class Approving:
    """Opens what asks persons, once a rule wants that."""

    def __init__(self) -> None:
        self._notices: ApprovalNotices | None = None

    def open(self, config: Config, note: Callable[[Event], None]) -> Approval:
        """Return what asks persons; `note` takes events."""
        from dynamic_mcp.proxy.approval.human import HumanApproval
        from dynamic_mcp.proxy.approval.notices import ApprovalNotices
        from dynamic_mcp.proxy.approval.queued import approvals_dir, make_id
        from dynamic_mcp.proxy.approval.server import ApprovalServer

        self._notices = notices = ApprovalNotices()
        return HumanApproval(
            config,
            note,
            make_id=make_id,
            open_server=lambda receive: ApprovalServer(approvals_dir(), receive),
            notify=notices.notify,
        )

    async def close(self) -> None:
        """End the programs that tell persons what waits."""
        if self._notices is not None:
            await self._notices.close()
