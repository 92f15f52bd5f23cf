"""`completion/complete`: to the group that owns the prompt or the resource template."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.errors import ResourceNotFound
from dynamic_mcp.groups.instance import Group
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.prompts import Prompts
from dynamic_mcp.proxy.resources import Resources
from dynamic_mcp.session.legacy import Session


class Completion:
    """The use case of completion."""

    def __init__(self, prompts: Prompts, resources: Resources) -> None:
        self._prompts = prompts
        self._resources = resources

    async def complete(self, session: Session, frame: Frame) -> Frame:
        """Answer `completion/complete` with the owner's result as it is."""
        group, params = await self._routed(frame.params)
        return await group.request(
            frame.method,
            wire.members(params),
            timeout_s=group.config.timeouts.prompts_s,
            caller=session,
            what=frame.method,
        )

    async def _routed(self, params: Raw) -> tuple[Group, Raw]:
        """Return the owner of what is completed, and the params with the owner's own name for it."""
        match wire.text(wire.member(params, "ref", "type")):
            case "ref/prompt":
                name = wire.text(wire.member(params, "ref", "name")) or ""
                group, own = await self._prompts.owner(name)
                return group, params if own == name else wire.with_member(params, own, "ref", "name")
            case "ref/resource":
                uri = wire.text(wire.member(params, "ref", "uri")) or ""
                owner = await self._resources.template_owner(uri)
                if owner is None:
                    raise ResourceNotFound(uri)
                group, own = owner
                return group, params if own == uri else wire.with_member(params, own, "ref", "uri")
            case _:
                raise wire.Malformed("`ref` is neither a `ref/prompt` nor a `ref/resource`")
