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

    One that reads as another group's, as the short form of one, or that clients do not take, gets its short form.
    Entries of two groups with the same short form are not listed.
    """
    found: dict[str, Named] = {}
    twice = set[str]()
    for group, name in entries:
        is_plain = _is_plain(group, name, groups)
        listed = f"{group.name}__{name}" if is_plain else names.hashed_name(group.name, name)
        if not is_plain and found.get(listed, (group,))[0] is not group:
            twice.add(listed)
        found[listed] = (group, name)
    return {listed: each for listed, each in found.items() if listed not in twice} if twice else found


def contenders(name: str, groups: Sequence[GroupView]) -> list[GroupView]:
    """Return the groups of which a name may be a short form, if there are several; the name may be of no other.

    Such a name means what is listed by it, and nothing else: what one server calls its own must not read as the short
    form of another one's.
    """
    if not names.is_short_form(name):
        return []
    found = [group for group in groups if name.startswith(names.short_forms_begin(group.name))]
    return found if len(found) > 1 else []


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
    is_its_own = reading is not None and reading[0] is group and names.qualified_name(group.name, name) == full
    return is_its_own and not contenders(full, groups)
