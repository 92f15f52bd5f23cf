"""The overrides step: maps shown names and arguments to the server's own."""

from __future__ import annotations

from collections.abc import Awaitable

from msgspec import Raw, structs

from dynamic_mcp.errors import NotFound
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Step
from dynamic_mcp.proxy.request import Next, UpstreamRequest


class RestoreCalls(Step):
    """Turns calls of shown tools into calls of the server's own."""

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        """Pass on a call in the server's terms. Raises InvalidArguments and NotFound."""
        return next(_restore(call) if call.method == "tools/call" else call)


def _restore(call: UpstreamRequest) -> UpstreamRequest:
    params = call.params or {}
    shown = call.tool or ""
    tool = call.group.find_shown(shown)
    if tool is None:
        raise NotFound(f"tool of group `{call.group.name}`", shown)
    arguments = params.get("arguments")
    restored = tool.restore(arguments)
    changed: dict[str, Raw] = {}
    if tool.own_name != shown:
        changed["name"] = Raw(wire.encode(tool.own_name))
    if restored is not None and restored is not arguments:
        changed["arguments"] = restored
    if not changed:
        return call
    return structs.replace(call, params={**params, **changed}, tool=tool.own_name)
