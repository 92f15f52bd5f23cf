"""What the proxy itself asks of an instance, on behalf of its clients: log levels and subscriptions."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec import Raw

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.observe.log_output import group_logger

log = logging.getLogger(__name__)


async def tell(group: Group, instance: Instance, method: str, params: Mapping[str, Raw]) -> None:
    """Send a request whose answer nobody needs; a failure is logged."""
    try:
        await instance.request(method, params, timeout_s=group.config.timeouts.resources_s)
    except DynamicMcpError as exc:
        group_logger(log, group.name).warning("group %s: %s: %s", group.name, method, exc.message)
