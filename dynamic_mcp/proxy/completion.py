"""`completion/complete`: to the group that owns the prompt or the resource template."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.errors import ResourceNotFound
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.prompts import find_prompt
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.resources import find_template
from dynamic_mcp.proxy.view import GroupView


class Completion:
    """The use case of completion."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains

    async def complete(self, request: Request) -> Frame:
        """Answer `completion/complete` with the owner's unchanged result."""
        group, params = await self._find_owner(request)
        return await self._chains.send(
            request,
            group,
            request.method,
            wire.members(params),
            timeout_s=group.config.timeouts.prompts_s,
        )

    async def _find_owner(self, request: Request) -> tuple[GroupView, Raw]:
        """Return the owner of what is completed, and the params with the owner's own name for it."""
        params = request.params
        match wire.text(wire.member(params, "ref", "type")):
            case "ref/prompt":
                name = wire.text(wire.member(params, "ref", "name")) or ""
                group, own_key = await find_prompt(request, name)
                return group, params if own_key == name else wire.with_member(params, own_key, "ref", "name")
            case "ref/resource":
                uri = wire.text(wire.member(params, "ref", "uri")) or ""
                owner = await find_template(request, uri)
                if owner is None:
                    raise ResourceNotFound(uri)
                group, own_key = owner
                return group, params if own_key == uri else wire.with_member(params, own_key, "ref", "uri")
            case _:
                raise wire.Malformed("`ref` is neither a `ref/prompt` nor a `ref/resource`")
