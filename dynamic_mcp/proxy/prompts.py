"""Prompts of all groups: listed as `<group>__<name>`, and taken by their own name too while it is unique."""

from __future__ import annotations

from functools import partial

from msgspec import Raw

from dynamic_mcp.config.access import Kind
from dynamic_mcp.errors import Disabled, DynamicMcpError, InvalidArguments, NotFound
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import names, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.lists import FIND_WITHIN_S, Item, answer_list, learn
from dynamic_mcp.proxy.pipeline import Pipeline
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView, View


class Prompts:
    """The use cases of prompts."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def list_prompts(self, request: Request) -> Frame:
        """Answer `prompts/list`."""
        return await answer_list(request, ListKind.PROMPTS, partial(_rename, request.view))

    async def get(self, request: Request) -> Frame:
        """Answer `prompts/get` with the owner's result as it is."""
        params = wire.members(request.params)
        name = wire.text(params.get("name"))
        if not name:
            raise wire.Malformed("`name` of the prompt is missing")
        group, own = await find_prompt(request, name)
        return await self._pipeline.send(
            request,
            group,
            request.method,
            params if own == name else {**params, "name": Raw(wire.encode(own))},
            timeout_s=group.config.timeouts.prompts_s,
            label=f"prompt `{own}`",
        )


async def find_prompt(request: Request, name: str) -> tuple[GroupView, str]:
    """Return the group of a prompt and its name there. Raises NotFound, Disabled and InvalidArguments."""
    groups = request.view.offering("prompts")
    found = _find(groups, name)
    if not found:
        await learn(request.client, groups, [ListKind.PROMPTS], FIND_WITHIN_S)
        found = _find(groups, name)
    if len(found) == 1:
        return found[0]
    if not found:
        for group in groups:
            group.refuse_held(Kind.PROMPT, name.removeprefix(f"{group.name}__"))
        raise _not_found(name, request.view)
    candidates = " or ".join(f"`{names.qualified_name(group.name, own)}`" for group, own in found)
    raise InvalidArguments(f"more than one group has a prompt named `{name}`", hint=f"ask for {candidates}")


def _not_found(name: str, view: View) -> DynamicMcpError:
    for group in view:
        if not group.offers("prompts") and name.startswith(f"{group.name}__"):
            return Disabled("prompts", group.name)
    return NotFound("prompt", name, _by_listed_name(view.offering("prompts")))


def _find(groups: list[GroupView], name: str) -> list[tuple[GroupView, str]]:
    listed = _by_listed_name(groups).get(name)
    if listed is not None:
        return [listed]
    return [(group, name) for group in groups if group.known and name in group.known.entries(ListKind.PROMPTS)]


def _by_listed_name(groups: list[GroupView]) -> dict[str, tuple[GroupView, str]]:
    """Return every prompt by the name that it is listed with; a name that is taken gets its short form."""
    found: dict[str, tuple[GroupView, str]] = {}
    for group in groups:
        for own in group.known.entries(ListKind.PROMPTS) if group.known else ():
            name = names.qualified_name(group.name, own)
            found[name if name not in found else names.hashed_name(group.name, own)] = (group, own)
    return found


def _rename(view: View, items: list[Item]) -> list[Raw]:
    by_name = _by_listed_name(view.offering("prompts"))
    names_of = {(group.name, own): name for name, (group, own) in by_name.items()}
    return [wire.with_member(entry, names_of[group.name, own], "name") for group, own, entry in items]
