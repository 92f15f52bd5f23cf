"""Finds out whether an access rule hides what a client was told does not exist. Only the audit log may know."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.config.access import AccessKind
from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.mcp import names, uri_template, wire
from dynamic_mcp.proxy.request import AccessDenial, Observation
from dynamic_mcp.proxy.targets import find_target
from dynamic_mcp.proxy.view import GroupView

if TYPE_CHECKING:  # loaded with the first access rule
    from dynamic_mcp.policy.access import AccessRules

_LISTS = {
    AccessKind.TOOL: ListKind.TOOLS,
    AccessKind.PROMPT: ListKind.PROMPTS,
    AccessKind.RESOURCE: ListKind.RESOURCES,
}


def find_denial(
    observation: Observation, rules: AccessRules, presented: Iterable[tuple[Group, Presentation]]
) -> AccessDenial | None:
    """Return what hides the target of a request; None where nothing does, as far as catalogs are known.

    `presented` are the groups that there are where the client is, whatever is hidden.
    """
    presented = [*presented]
    wanted = _Wanted.of(observation, {group.name for group, _ in presented})
    if wanted is None:
        return None
    for group, presentation in presented:
        name = wanted.name_in(group)
        if name is None or not presentation.features.allows(_LISTS[wanted.kind].capability):
            continue
        of_group = rules.for_group(group.name)
        is_hidden = wanted.has_named(group) and not of_group.is_visible
        whole = GroupView(group, presentation)
        if is_hidden or _has(whole, wanted.kind, name):
            own_name = whole.own_name(name) if wanted.kind is AccessKind.TOOL else name
            judge = of_group if wanted.kind is AccessKind.RESOURCE else GroupView(group, presentation, of_group)
            judgement = judge.judge(wanted.kind, own_name)
            if not judgement.is_visible:
                return AccessDenial(group.name, judgement.decide(None).rule)
    return None


class _Wanted(Struct, frozen=True):
    """The target of a request; `group` is empty if it names none, and `only` is the client's only group."""

    kind: AccessKind
    name: str
    group: str
    only: str | None

    @staticmethod
    def of(observation: Observation, groups: Container[str]) -> _Wanted | None:
        """Return what a request is about; None where no rule can be."""
        target, request = find_target(observation), observation.request
        if target.event == "list":
            return None
        kind, name, group = AccessKind(target.kind), target.name, target.group
        if kind is AccessKind.RESOURCE:  # by its whole URI, not by the recorded one
            name = wire.text(wire.member(request.params, "uri")) or ""
            named = names.split_group_uri(name)
            if named is None and (page := names.split_ui_uri(name)) is not None and page[0] in groups:
                named = page
            group, name = (group, name) if named is None else named
        return _Wanted(kind, name, group, request.client.only)

    def has_named(self, group: Group) -> bool:
        """Return whether the request names this group."""
        return group.name in (self.group, self.only) or self.name.startswith(f"{group.name}__")

    def name_in(self, group: Group) -> str | None:
        """Return which name the tools of a group would show it by; None if it is of another group."""
        if self.only not in (None, group.name) or self.group not in ("", group.name):
            return None
        return (
            self.name if self.only or self.kind is AccessKind.RESOURCE else self.name.removeprefix(f"{group.name}__")
        )


def _has(group: GroupView, kind: AccessKind, name: str) -> bool:
    """Return whether a group is known to have something."""
    if group.catalog is None:
        return False
    if name in group.catalog.entries(_LISTS[kind]):
        return True
    templates = group.catalog.entries(ListKind.TEMPLATES) if kind is AccessKind.RESOURCE else ()
    return any(uri_template.matches(template, name) for template in templates)
