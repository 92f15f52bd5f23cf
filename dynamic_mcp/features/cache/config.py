"""Configures which results are cached, and for how long."""

from typing import Annotated, Literal

from msgspec import field

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.rules import CallRule
from dynamic_mcp.config.types import Duration, Globs, Size


class Cache(CallRule, frozen=True):
    """Keeps results of tools that only read, and of resources."""

    tools: Annotated[Globs, "The tools, by the names that the server gives them; globs. Default: none."] = ()
    resources: Annotated[Globs, "The resources, by URI; globs. Default: none."] = ()
    ttl_s: Annotated[Duration, "How long a result is used. Default: 5min."] = field(default=300.0, name="ttl")
    per: Annotated[
        Literal["person", "all"],
        "Who gets a result that is kept: the person whose call it was of, or all who may make this call."
        " Default: person.",
    ] = "person"
    max_bytes: Annotated[Size, "The maximum size of all results of this rule, in memory. Default: 16MB."] = field(
        default=16_000_000, name="max"
    )

    def __post_init__(self) -> None:
        if not self.tools and not self.resources:
            raise FlawError("needs `tools` or `resources`")

    @property
    def per_person(self) -> bool:
        return self.per == "person"


Caches = tuple[Cache, ...]
