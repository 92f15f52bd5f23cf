"""What rules on the calls of servers have in common."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from msgspec import field
from msgspec.structs import replace

from dynamic_mcp.config.section import Section

Policy = Literal["trust", "warn", "hold"]


class Rule(Section, frozen=True):
    """A rule on the calls of servers. `id` is its place in the config, such as `guards[0]`."""

    id: str = field(default="", name="x-id")


T = TypeVar("T", bound=Rule)


def numbered(key: str) -> Callable[[Sequence[T]], tuple[T, ...]]:
    """Return a function that names rules by their places in the list of a key: `guards[0]`."""

    def number(rules: Sequence[T]) -> tuple[T, ...]:
        return tuple(replace(each, id=f"{key}[{number}]") for number, each in enumerate(rules))

    return number


def place_rules(rules: Iterable[T], place: str) -> tuple[T, ...]:
    """Return rules with the whole path of each as its name: `settings.guards[0]`."""
    return tuple(replace(each, id=f"{place}.{each.id}") for each in rules)
