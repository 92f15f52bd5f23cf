"""URIs of skills: which group and which of its files each means, and how each is listed.

A skill has the URI of its server where that means this very file here. Otherwise it is `skill://<group>/<path>`:
where an earlier group has a file of that URI, and where its first segment is another group that may have skills. So
no server can take the place of another one's skill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Raw

from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import names, wire
from dynamic_mcp.proxy.view import GroupView


def has_skills(group: GroupView) -> bool:
    """Return whether a group may have skills, as far as it is known."""
    return group.catalog is None or group.catalog.declares(ListKind.SKILLS)


def knows(group: GroupView, uri: str) -> bool:
    """Return whether a group lists a resource, or a skill that it is a file of."""
    catalog = group.catalog
    return catalog is not None and (uri in catalog.entries(ListKind.RESOURCES) or catalog.has_skill_file(uri))


def read_group(groups: Sequence[GroupView], uri: str) -> tuple[GroupView, str] | None:
    """Return the group that a URI of a skill begins with, and the rest of it as that group's URI."""
    split = names.split_skill_uri(uri)
    if split is None:
        return None
    group = next((each for each in groups if each.name == split[0] and has_skills(each)), None)
    return None if group is None else (group, split[1])


def find(groups: Sequence[GroupView], uri: str) -> tuple[GroupView, str] | None:
    """Return the group that is known to have a resource or a file of a skill, and its URI there."""
    reading = read_group(groups, uri)
    if reading is None:
        owner = next((group for group in groups if knows(group, uri)), None)
        return None if owner is None else (owner, uri)
    group, own_uri = reading
    known = next((each for each in (own_uri, uri) if knows(group, each)), None)
    return None if known is None else (group, known)


def candidates(groups: Sequence[GroupView], uri: str) -> list[tuple[GroupView, str]]:
    """Return what an unlisted URI may mean."""
    reading = read_group(groups, uri)
    return [(group, uri) for group in groups] if reading is None else [(reading[0], uri), reading]


def listed_skill(groups: Sequence[GroupView], group: GroupView, entry: Raw) -> Raw:
    """Return the entry of a skill as it is listed beside these groups: its URIs may change, and nothing else."""
    members = wire.members(entry)
    uri, files = wire.text(members.get("uri")) or "", _files(members)
    if all(_means(groups, group, each) for each in (uri, *(each for each, _ in files))):
        return entry
    return renamed_skill(group, entry)


def _means(groups: Sequence[GroupView], group: GroupView, uri: str) -> bool:
    """Return whether a URI of a group means this very file, or no known one and no other group."""
    found = find(groups, uri)
    return read_group(groups, uri) is None if found is None else found == (group, uri)


def renamed_skill(group: GroupView, entry: Raw) -> Raw:
    """Return the entry of a skill with the URIs that carry its group."""
    members = wire.members(entry)
    uri, files = wire.text(members.get("uri")) or "", _files(members)
    if files:
        rows = [wire.with_member(each, names.group_skill_uri(group.name, own), "uri") for own, each in files]
        members["resources"] = Raw(wire.encode(rows))
    members["uri"] = Raw(wire.encode(names.group_skill_uri(group.name, uri)))
    return Raw(wire.encode(members))


def _files(skill: Mapping[str, Raw]) -> list[tuple[str, Raw]]:
    """Return the files of a skill by their URIs; none of one that is generated, or that is malformed."""
    try:
        rows = wire.elements(skill.get("resources", wire.EMPTY_ARRAY))
        return [(wire.text(wire.member(each, "uri")) or "", each) for each in rows]
    except wire.Malformed:
        return []
