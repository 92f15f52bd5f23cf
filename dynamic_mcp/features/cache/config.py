"""Configures which results are cached, and for how long."""

from typing import Annotated, Literal

from msgspec import field

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.rules import CallRule
from dynamic_mcp.config.types import Duration, Globs, Size


class Cache(CallRule, frozen=True):
    """Keeps results of tools that only read, and of resources."""

    tools: Annotated[
        Globs,
        "The tools whose results are cached, by the names that the server gives them. Default: none.",
    ] = ()
    resources: Annotated[Globs, "The resources that are cached, by URI. Default: none."] = ()
    ttl_s: Annotated[Duration, "How long a cached result is used. Default: 5min."] = field(default=300.0, name="ttl")
    per: Annotated[
        Literal["person", "all"],
        "Who gets a cached result: the `person` whose call it was, or `all` who may make this call. Default: person.",
    ] = "person"
    max_bytes: Annotated[Size, "The maximum size of all cached results of this rule, in memory. Default: 16MB."] = (
        field(default=16_000_000, name="max")
    )

    def __post_init__(self) -> None:
        if not self.tools and not self.resources:
            raise FlawError("needs `tools` or `resources`")

    @property
    def per_person(self) -> bool:
        return self.per == "person"


Caches = tuple[Cache, ...]
