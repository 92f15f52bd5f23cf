"""What rules on the calls of servers have in common."""

from typing import Literal

from msgspec import field
from msgspec.structs import replace

from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.config.section import Section

Policy = Literal["trust", "warn", "hold"]


class Rule(Section, frozen=True):
    """A rule on the calls of servers, one of a list. `id` is its place: `settings.guards[0]`."""

    id: str = field(default="", name="x-id")


def place_rules(rules: object, place: Keys) -> object:
    """Return what a feature has at its key; if these are rules, each with its place."""
    if not isinstance(rules, tuple):
        return rules
    return tuple(
        replace(each, id=format_path((*place, number))) if isinstance(each, Rule) else each
        for number, each in enumerate(rules)
    )
