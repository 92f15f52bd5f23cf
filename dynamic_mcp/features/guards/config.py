"""Configures which arguments of calls are refused."""

from typing import Annotated, Literal

from msgspec import field
from msgspec.structs import replace

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.config.rules import CallRule
from dynamic_mcp.config.section import Everyday
from dynamic_mcp.config.types import Globs, JsonPath, LongText, Pattern


class Guard(CallRule, frozen=True):
    """A rule on the arguments of tools: `deny` refuses what it matches, `allow` what it does not match."""

    tools: Annotated[
        Globs, "The tools that the rule is about, by the names that the server gives them. Default: all.", Everyday()
    ] = ("*",)
    path: Annotated[
        JsonPath | None,
        "Which values to check. One that is no text is checked as compact JSON. Default: every text in the"
        " arguments.",
        Everyday(),
    ] = field(default=None, name="argument")
    deny: Annotated[Pattern | None, "Refuse the call if a value contains this (RE2).", Everyday()] = None
    allow: Annotated[
        Pattern | None,
        "Refuse the call unless each value matches this as a whole (RE2), and there is one.",
        Everyday(),
    ] = None
    message: Annotated[LongText, "What the model is told if the call is refused. Default: which rule refused it."] = (
        ""
    )
    effect: Annotated[
        Literal["deny", "ask"],
        "`ask` asks a person instead of refusing the call. Default: deny.",
        Everyday(),
    ] = "deny"

    def __post_init__(self) -> None:
        if (self.deny is None) == (self.allow is None):
            raise FlawError("needs `deny` or `allow`, and not both")

    @property
    def asks(self) -> bool:
        return self.effect == "ask"


Guards = tuple[Guard, ...]


def resolve(presentation: Presentation) -> Presentation:
    """Record in a presentation whether one of the guards asks a user."""
    guards = presentation.rules_of("guards", Guard)
    return replace(presentation, asks=presentation.asks or any(guard.asks for guard in guards))
