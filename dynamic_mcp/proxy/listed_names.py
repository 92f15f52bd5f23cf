"""Names that carry their group, as `<group>__<name>`, and what a name of a client can mean.

Which group a name belongs to follows from the names of the groups alone, not from which of them has told its list
first, nor from what a server calls its own: no server can take calls that are meant for another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import names
from dynamic_mcp.proxy.view import GroupView

# A group, and the name of one of its tools or prompts.
Named = tuple[GroupView, str]


def listed_names(entries: Iterable[Named], groups: Sequence[GroupView]) -> dict[str, Named]:
    """Return each entry by the name that it is listed with.

    One that reads as another group's, or that clients do not take, gets its short form.
    """
    shown = [(group, name, _is_plain(group, name, groups)) for group, name in entries]
    short = {names.hashed_name(group.name, name) for group, name, is_plain in shown if not is_plain}
    found: dict[str, Named] = {}
    for group, name, is_plain in shown:
        full = names.qualified_name(group.name, name)
        found[full if is_plain and full not in short else names.hashed_name(group.name, name)] = (group, name)
    return found


def reads_as(name: str, groups: Sequence[GroupView]) -> Named | None:
    """Return the group and the name there that `<group>__<name>` means; None if it begins with no group."""
    begun = [group for group in groups if name.startswith(f"{group.name}__") and len(name) > len(group.name) + 2]
    if not begun:
        return None
    group = max(begun, key=lambda each: len(each.name))
    return group, name.removeprefix(f"{group.name}__")


def find_unread(groups: Iterable[GroupView], kind: ListKind, key: str) -> GroupView | None:
    """Return the group that may have something because its list could not be read; None if several may, or none."""
    found = [group for group in groups if _has_failed(group, kind) and group.may_have(kind, key)]
    return found[0] if len(found) == 1 else None


def _has_failed(group: GroupView, kind: ListKind) -> bool:
    listing = group.catalog.lists.get(kind) if group.catalog else None
    return listing is not None and listing.has_failed


def _is_plain(group: GroupView, name: str, groups: Sequence[GroupView]) -> bool:
    """Return whether clients take `<group>__<name>`, and it reads as this group's."""
    full = f"{group.name}__{name}"
    reading = reads_as(full, groups)
    return reading is not None and reading[0] is group and names.qualified_name(group.name, name) == full
