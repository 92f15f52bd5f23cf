"""Prompts of all groups: listed as `<group>__<name>`, and taken by their own name too while it is unique."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from msgspec import Raw

from dynamic_mcp.config.access import AccessKind
from dynamic_mcp.errors import Disabled, InvalidArguments, NotFound
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.instance import FIND_WITHIN_S
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.elicitations import name_asker
from dynamic_mcp.proxy.listed_names import Named, contenders, find_unread, listed_names, reads_as
from dynamic_mcp.proxy.lists import Item, answer_list, learn
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView, View


class Prompts:
    """The use cases of prompts."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains

    async def list_prompts(self, request: Request) -> Frame:
        """Answer `prompts/list`."""
        return await answer_list(request, ListKind.PROMPTS, partial(_rename, request.view))

    async def get(self, request: Request) -> Frame:
        """Answer `prompts/get` with the owner's unchanged result."""
        params = wire.members(request.params)
        name = wire.text(params.get("name"))
        if not name:
            raise wire.Malformed("`name` of the prompt is missing")
        group, own_name = await find_prompt(request, name)
        answer = await self._chains.send(
            request,
            group,
            request.method,
            params if own_name == name else {**params, "name": Raw(wire.encode(own_name))},
            timeout_s=group.config.timeouts.prompts_s,
            label=f"prompt `{own_name}`",
        )
        return name_asker(group.name, request.client, answer) if len(answer.error) else answer


async def find_prompt(request: Request, name: str) -> Named:
    """Return the group of a prompt and its name there. Raises NotFound, Disabled and InvalidArguments."""
    groups = request.view.offering("prompts")
    found = _find(groups, name)
    if not found:
        await learn(request.client, groups, [ListKind.PROMPTS], FIND_WITHIN_S)
        found = _find(groups, name)
    if len(found) == 1:
        return found[0]
    if not found:
        if contenders(name, groups):
            _refuse(name, request.view)
        for group in groups:
            group.refuse_held(AccessKind.PROMPT, name.removeprefix(f"{group.name}__"))
        return _find_unread(groups, name) or _refuse(name, request.view)
    by_name = _by_listed_name(groups)
    candidates = " or ".join(f"`{listed}`" for listed, each in by_name.items() if each in found)
    raise InvalidArguments(f"more than one group has a prompt named `{name}`", hint=f"ask for {candidates}")


def _find_unread(groups: list[GroupView], name: str) -> Named | None:
    """Return the prompt that a name means if it is in no list because one could not be read."""
    reading = reads_as(name, groups)
    if reading is not None:
        return reading if reading[0].may_have(ListKind.PROMPTS, reading[1]) else None
    unread = find_unread(groups, ListKind.PROMPTS, name)
    return None if unread is None else (unread, name)


def _refuse(name: str, view: View) -> NoReturn:
    for group in view:
        if not group.offers("prompts") and name.startswith(f"{group.name}__"):
            raise Disabled("prompts", group.name)
    raise NotFound("prompt", name, _by_listed_name(view.offering("prompts")))


def _find(groups: list[GroupView], name: str) -> list[Named]:
    """Return the prompts that a name means; one that begins with a group is no plain name of another group's."""
    listed = _by_listed_name(groups).get(name)
    if listed is not None:
        return [listed]
    if contenders(name, groups):
        return []
    reading = reads_as(name, groups)
    owners = groups if reading is None else [reading[0]]
    return [(group, name) for group in owners if group.catalog and name in group.catalog.entries(ListKind.PROMPTS)]


def _by_listed_name(groups: list[GroupView]) -> dict[str, Named]:
    """Return every prompt by the name that it is listed with."""
    known = ((group, group.catalog) for group in groups if group.catalog)
    return listed_names(
        ((group, own_name) for group, catalog in known for own_name in catalog.entries(ListKind.PROMPTS)), groups
    )


def _rename(view: View, items: list[Item]) -> list[Raw]:
    by_name = _by_listed_name(view.offering("prompts"))
    names_of = {(group.name, own_name): name for name, (group, own_name) in by_name.items()}
    shown = ((names_of.get((group.name, own_name)), entry) for group, own_name, entry in items)
    return [wire.with_member(entry, name, "name") for name, entry in shown if name is not None]
