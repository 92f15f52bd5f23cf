"""Configures limits on the rate and the concurrency of tool calls."""

from typing import Annotated, Literal

from msgspec import Meta

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.rules import CallRule
from dynamic_mcp.config.section import Everyday
from dynamic_mcp.config.types import Globs, Rate

# What gets a separate count.
Counted = Literal["person", "tool"]
# What happens while the store that replicas share cannot be used.
Fallback = Literal["count", "refuse"]


class Limit(CallRule, frozen=True):
    """A bound on how often, or how many at once, tools are called."""

    tools: Annotated[
        Globs, "The tools that the rule is about, by the names that the server gives them. Default: all.", Everyday()
    ] = ("*",)
    per: Annotated[
        tuple[Counted, ...],
        "What is counted separately: each person, each tool, or, with both, each person's calls of each tool."
        " Default: all calls together.",
        Everyday(),
    ] = ()
    rate: Annotated[
        Rate | None, "How many calls in which time: `5/s`, `60/min`, `1000/h`, `10000/d`.", Everyday()
    ] = None
    burst: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        "How many calls may come at once after a pause. Default: the calls of one second, at least 1.",
    ] = None
    concurrent: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        "The maximum number of calls of these tools at once; further ones wait. `concurrency` is about the whole"
        " server.",
    ] = None

    without_store: Annotated[
        Fallback,
        "What replicas that share a store do while it cannot be used: `count` the calls, each replica by itself, or"
        " `refuse` them. Default: `count`.",
    ] = "count"

    def __post_init__(self) -> None:
        if self.rate is None and self.concurrent is None:
            raise FlawError("needs `rate` or `concurrent`")
        if self.rate is None and self.burst is not None:
            raise FlawError("has a `burst`, which needs `rate`")

    @property
    def per_person(self) -> bool:
        return "person" in self.per

    @property
    def per_tool(self) -> bool:
        return "tool" in self.per

    @property
    def capacity(self) -> int:
        """The largest burst of calls after a pause."""
        return self.burst or max(1, int(self.rate or 1))


Limits = tuple[Limit, ...]
