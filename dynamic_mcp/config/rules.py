"""What rules on the calls of servers have in common, and the plug-ins."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal, TypeVar

from msgspec import field
from msgspec.structs import replace

from dynamic_mcp.config.section import Section
from dynamic_mcp.config.types import Duration, Globs, Json, PluginName

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


class Plugin(Section, frozen=True):
    """A plug-in on the way of calls and lists."""

    use: Annotated[
        PluginName,
        "The name under which a package offers it (entry point group `dynamic_mcp.middleware`), or `module:Class`.",
    ]
    servers: Annotated[Globs, "The servers that it is used for, by name; globs. Default: all."] = ("*",)
    options: Annotated[dict[str, Json], "What it is given when it is opened."] = {}
    timeout_s: Annotated[Duration, "How long each of its steps may take, without what follows it. Default: 5s."] = (
        field(default=5.0, name="timeout")
    )
    on_error: Annotated[
        Literal["fail", "skip"],
        "What an error of the plug-in does to a call: `fail` refuses it, `skip` goes on without the plug-in."
        " Default: fail.",
    ] = "fail"

    @property
    def skips_errors(self) -> bool:
        """Whether calls go on without it after an error."""
        return self.on_error == "skip"
