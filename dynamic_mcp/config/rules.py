"""The base of all rules on the calls of servers."""

from typing import Literal

from msgspec import field
from msgspec.structs import replace

from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.config.section import Section

Policy = Literal["trust", "warn", "hold"]


class CallRule(Section, frozen=True):
    """A rule on the calls of servers, one of a list. `id` is its place: `mcpServers.NAME.guards[0]`."""

    id: str = field(default="", name="x-id")


def place_rules(rules: object, place: Keys) -> object:
    """Return the value of a feature at its key. If it is a list of rules, each one gets its place."""
    if not isinstance(rules, tuple):
        return rules
    return tuple(
        replace(each, id=format_path((*place, number))) if isinstance(each, CallRule) else each
        for number, each in enumerate(rules)
    )
